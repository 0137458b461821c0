// The Vercel AI SDK as an MCP client: what its model sees, which calls the tools.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { createMCPClient } from "@ai-sdk/mcp";
import { generateText, isStepCount } from "ai";
import { APP, APPROVAL, BASE, HEADERS, KEY, MCP, MODEL, REFUSAL, SEARCH, VALUE, approve, callOf, run } from "./checks.mjs";

const baobab = createOpenAICompatible({ name: "baobab", baseURL: `${BASE}/v1/${APP}`, apiKey: KEY });
const client = await createMCPClient({ transport: { type: "http", url: MCP, headers: HEADERS } });
const tools = await client.tools();
const call = async (check) =>
  (await generateText({ model: baobab(MODEL), prompt: callOf(check), tools, stopWhen: isStepCount(3) })).text;

await run({
  connect: () => Object.keys(tools),
  value: () => call(VALUE),
  search: () => call(SEARCH),
  refusal: () => call(REFUSAL),
  approval: async () => {
    const asked = await call(APPROVAL);
    await approve();
    return asked + (await call(APPROVAL));
  },
});
