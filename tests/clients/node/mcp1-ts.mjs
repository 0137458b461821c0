// The MCP SDK for TypeScript before 2.
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StreamableHTTPClientTransport } from "@modelcontextprotocol/sdk/client/streamableHttp.js";
import { HEADERS, MCP, run } from "./checks.mjs";
import { checksOf } from "./mcp_checks.mjs";

const client = new Client({ name: "matrix", version: "1" });
await client.connect(new StreamableHTTPClientTransport(new URL(MCP), { requestInit: { headers: HEADERS } }));
await run(checksOf(client));
