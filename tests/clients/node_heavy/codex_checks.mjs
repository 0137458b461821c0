// What the command line Codex shows; `server` is how its settings name the MCP server.
import { fileURLToPath } from "node:url";
import { CHAT, KEY, MODEL, V1, toolChecks } from "../node/checks.mjs";
import { output, prompt } from "./command.mjs";

const program = fileURLToPath(new URL("node_modules/@openai/codex/bin/codex.js", import.meta.url));

export const checksOf = (server) => {
  const settings = [
    'model_provider="baobab"',
    `model_providers.baobab={name="Baobab",base_url="${V1}",env_key="SERVER_KEY",wire_api="responses"}`,
    `mcp_servers.baobab={${server},default_tools_approval_mode="approve"}`,
  ].flatMap((setting) => ["-c", setting]);
  const given = ["--skip-git-repo-check", ...settings, "-m", MODEL];
  const ask = (...words) => output(process.execPath, [program, "exec", ...words], { SERVER_KEY: KEY });
  const begin = (text) => ask(...given, text);
  return {
    chat: () => begin(`Do this:\n${CHAT}`),
    turns: async () => `${await begin("Do this:\n/say One.")} ${await ask("resume", "--last", ...given, "Do this:\n/say Two.")}`,
    ...toolChecks((call) => begin(prompt(call))),
  };
};
