// The command line Codex.
import { fileURLToPath } from "node:url";
import { APP, APPROVAL, BASE, CHAT, KEY, MCP, MODEL, REFUSAL, SEARCH, VALUE, approve, run } from "../node/checks.mjs";
import { output, prompt } from "./command.mjs";

const program = fileURLToPath(new URL("node_modules/@openai/codex/bin/codex.js", import.meta.url));
const settings = [
  'model_provider="baobab"',
  `model_providers.baobab={name="Baobab",base_url="${BASE}/v1/${APP}",env_key="SERVER_KEY",wire_api="responses"}`,
  `mcp_servers.baobab={url="${MCP}",bearer_token_env_var="SERVER_KEY",default_tools_approval_mode="approve"}`,
].flatMap((setting) => ["-c", setting]);
const given = ["--skip-git-repo-check", ...settings, "-m", MODEL];
const ask = (...words) => output(process.execPath, [program, "exec", ...words], { SERVER_KEY: KEY });
const begin = (text) => ask(...given, text);

await run({
  chat: () => begin(`Do this:\n${CHAT}`),
  turns: async () => `${await begin("Do this:\n/say One.")} ${await ask("resume", "--last", ...given, "Do this:\n/say Two.")}`,
  value: () => begin(prompt(VALUE)),
  search: () => begin(prompt(SEARCH)),
  refusal: () => begin(prompt(REFUSAL)),
  approval: async () => {
    const asked = await begin(prompt(APPROVAL));
    await approve();
    return asked + (await begin(prompt(APPROVAL)));
  },
});
