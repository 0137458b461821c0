// mcp-remote, between a client that only starts programs and the server. A person agrees that it gets a key.
import { run } from "../node/checks.mjs";
import { checksOf } from "../node/mcp_checks.mjs";
import { connected } from "./remote.mjs";

await run(checksOf(await connected()));
