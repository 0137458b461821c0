// The command line Codex, with mcp-remote before the server, to which a person has agreed before.
import { MCP, run } from "../node/checks.mjs";
import { checksOf } from "./codex_checks.mjs";
import { connected, program } from "./remote.mjs";

await (await connected()).close();
const { value, search, refusal, approval } = checksOf(`command="${process.execPath}",args=["${program}","${MCP}"],required=true`);
await run({ value, search, refusal, approval });
