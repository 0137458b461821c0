// The command line Codex, with a key.
import { MCP, run } from "../node/checks.mjs";
import { checksOf } from "./codex_checks.mjs";

await run(checksOf(`url="${MCP}",bearer_token_env_var="SERVER_KEY"`));
