// The Anthropic SDK for Node.
import Anthropic from "@anthropic-ai/sdk";
import { betaZodTool } from "@anthropic-ai/sdk/helpers/beta/zod";
import { zodOutputFormat } from "@anthropic-ai/sdk/helpers/zod";
import { z } from "zod";
import { BASE, CHAT, FIRST, KEY, MODEL, REFUSED, SECOND, STRUCTURED, TOOL, failure, joined, run, weather } from "./checks.mjs";

// Lines to paste
const client = new Anthropic({ baseURL: BASE, apiKey: KEY });
// End of the lines
const request = (...texts) => ({
  model: MODEL,
  max_tokens: 200,
  messages: texts.map((content, index) => ({ role: index % 2 ? "assistant" : "user", content })),
});
const ask = async (...texts) => (await client.messages.create(request(...texts))).content[0].text;

await run({
  chat: () => ask(CHAT),
  stream: () => joined(client.messages.stream(request(CHAT)), (event) => event.delta?.text),
  tools: async () => {
    const tool = betaZodTool({
      name: "weather",
      description: "The weather of a city.",
      inputSchema: z.object({ city: z.string() }),
      run: ({ city }) => weather(city),
    });
    return (await client.beta.messages.toolRunner({ ...request(TOOL), tools: [tool] })).content[0].text;
  },
  structured: async () => {
    const format = zodOutputFormat(z.object({ city: z.string(), degrees: z.number() }));
    return (await client.messages.parse({ ...request(STRUCTURED), output_config: { format } })).parsed_output;
  },
  turns: async () => {
    const first = await ask(FIRST);
    return `${first} ${await ask(FIRST, first, SECOND)}`;
  },
  refused: async () => (await failure(client.messages.create({ ...request(REFUSED), temperature: 0.5 }))).message,
});
