// The command line Claude Code.
import { fileURLToPath } from "node:url";
import { BASE, CHAT, HEADERS, KEY, MCP, MODEL, run, toolChecks } from "../node/checks.mjs";
import { output, prompt } from "./command.mjs";

const program = fileURLToPath(new URL("node_modules/@anthropic-ai/claude-code-linux-x64/claude", import.meta.url));
const environment = {
  ANTHROPIC_BASE_URL: BASE,
  ANTHROPIC_API_KEY: KEY,
  ANTHROPIC_MODEL: MODEL,
  CLAUDE_CODE_DISABLE_NONESSENTIAL_TRAFFIC: "1",
  DISABLE_AUTOUPDATER: "1",
  // Or its model must first look for the tools, which a scripted one does not.
  ENABLE_TOOL_SEARCH: "false",
};
const servers = JSON.stringify({ mcpServers: { baobab: { type: "http", url: MCP, headers: HEADERS } } });
const ask = (text, ...options) =>
  output(
    program,
    ["-p", "--strict-mcp-config", "--mcp-config", servers, "--allowedTools", "mcp__baobab", ...options, "--", text],
    environment,
  );

await run({
  chat: () => ask(`Do this:\n${CHAT}`),
  stream: () => ask(`Do this:\n${CHAT}`, "--output-format", "stream-json", "--verbose", "--include-partial-messages"),
  tools: () => ask(`Do this:\n/call Bash {"command": "echo 'Rain in' Oslo.", "description": "Say the weather"}`, "--allowedTools", "Bash(echo:*)", "mcp__baobab"),
  turns: async () => {
    const first = await ask("Do this:\n/say One.");
    return `${first} ${await ask("Do this:\n/say Two.", "--continue")}`;
  },
  connect: async () => {
    const init = (await ask(`Do this:\n${CHAT}`, "--output-format", "stream-json", "--verbose")).split("\n")[0];
    return init;
  },
  ...toolChecks((call) => ask(prompt(call))),
});
