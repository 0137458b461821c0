// The OpenAI Agents SDK for JavaScript, as it comes: by the Responses API.
import { Agent, MCPServerStreamableHttp, MemorySession, OpenAIResponsesModel, run as runAgent, setTracingDisabled, tool } from "@openai/agents";
import OpenAI from "openai";
import { z } from "zod";
import { CHAT, FIRST, HEADERS, KEY, MCP, MODEL, SECOND, STRUCTURED, TOOL, V1, callOf, joined, run, toolChecks, weather } from "./checks.mjs";

setTracingDisabled(true);
const model = new OpenAIResponsesModel(new OpenAI({ baseURL: V1, apiKey: KEY }), MODEL);
const server = new MCPServerStreamableHttp({ url: MCP, requestInit: { headers: HEADERS } });
await server.connect();
const agent = (parts) => new Agent({ name: "matrix", instructions: "Do what is asked.", model, ...parts });
const ask = async (text, parts, options) => (await runAgent(agent(parts), text, options)).finalOutput;

await run({
  chat: () => ask(CHAT),
  stream: async () => joined((await runAgent(agent(), CHAT, { stream: true })).toTextStream()),
  tools: () => {
    const parameters = z.object({ city: z.string() });
    const execute = ({ city }) => weather(city);
    return ask(TOOL, { tools: [tool({ name: "weather", description: "The weather of a city.", parameters, execute })] });
  },
  structured: () => ask(STRUCTURED, { outputType: z.object({ city: z.string(), degrees: z.number() }) }),
  turns: async () => {
    const session = new MemorySession();
    return `${await ask(FIRST, {}, { session })} ${await ask(SECOND, {}, { session })}`;
  },
  connect: async () => (await server.listTools()).map((found) => found.name),
  ...toolChecks((call) => ask(callOf(call), { mcpServers: [server] })),
});
