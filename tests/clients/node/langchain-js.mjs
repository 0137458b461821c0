// LangChain for JavaScript: its model, and an agent whose model calls the tools of its MCP adapter.
import { MultiServerMCPClient } from "@langchain/mcp-adapters";
import { ChatOpenAI } from "@langchain/openai";
import { createAgent, tool } from "langchain";
import { z } from "zod";
import { CHAT, FIRST, HEADERS, KEY, MCP, MODEL, SECOND, STRUCTURED, TOOL, V1, callOf, joined, run, toolChecks, weather } from "./checks.mjs";

const model = new ChatOpenAI({ model: MODEL, apiKey: KEY, configuration: { baseURL: V1 } });
const mcp = new MultiServerMCPClient({
  throwOnLoadError: true,
  mcpServers: { baobab: { transport: "http", url: MCP, headers: HEADERS } },
});
const served = await mcp.getTools();
const asked = async (content, tools) => {
  const answer = await createAgent({ model, tools }).invoke({ messages: [{ role: "user", content }] });
  return answer.messages.at(-1).text;
};
const call = (check) => asked(callOf(check), served);

await run({
  chat: async () => (await model.invoke(CHAT)).text,
  stream: async () => joined(await model.stream(CHAT), (chunk) => chunk.text),
  tools: () => {
    const schema = z.object({ city: z.string() });
    return asked(TOOL, [tool(({ city }) => weather(city), { name: "weather", description: "The weather.", schema })]);
  },
  structured: () => model.withStructuredOutput(z.object({ city: z.string(), degrees: z.number() })).invoke(STRUCTURED),
  turns: async () => {
    const first = await model.invoke(FIRST);
    return `${first.text} ${(await model.invoke([["user", FIRST], first, ["user", SECOND]])).text}`;
  },
  connect: () => served.map((found) => found.name),
  ...toolChecks(call),
});
