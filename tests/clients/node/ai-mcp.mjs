// The Vercel AI SDK as an MCP client: what its model sees, which calls the tools.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createMCPClient } from "@ai-sdk/mcp";
import { generateText, isStepCount } from "ai";
import { HEADERS, KEY, MCP, MODEL, V1, callOf, run, toolChecks } from "./checks.mjs";

const baobab = createOpenAICompatible({ name: "baobab", baseURL: V1, apiKey: KEY });
const client = await createMCPClient({ transport: { type: "http", url: MCP, headers: HEADERS } });
const tools = await client.tools();
const call = async (check) =>
  (await generateText({ model: baobab(MODEL), prompt: callOf(check), tools, stopWhen: isStepCount(3) })).text;

await run({
  connect: () => Object.keys(tools),
  ...toolChecks(call),
});
