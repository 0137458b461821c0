// The MCP SDK for TypeScript from 2 on.
import { Client, StreamableHTTPClientTransport } from "@modelcontextprotocol/client";
import { HEADERS, MCP, run } from "./checks.mjs";
import { checksOf } from "./mcp_checks.mjs";

const client = new Client({ name: "matrix", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(MCP), { requestInit: { headers: HEADERS } }));
await run(checksOf(client));
