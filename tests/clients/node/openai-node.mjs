// The OpenAI SDK for Node.
import OpenAI from "openai";
import { zodResponseFormat } from "openai/helpers/zod";
import { z } from "zod";
import { CHAT, FIRST, KEY, MODEL, REFUSED, SECOND, STRUCTURED, TOOL, V1, failure, joined, run, weather } from "./checks.mjs";

// Lines to paste
const client = new OpenAI({ baseURL: V1, apiKey: KEY });
// End of the lines
const said = (content) => [{ role: "user", content }];
const refusal = () => failure(client.chat.completions.create({ model: MODEL, messages: said(REFUSED), temperature: 0.5 }));

await run({
  chat: async () => (await client.chat.completions.create({ model: MODEL, messages: said(CHAT) })).choices[0].message.content,
  stream: async () =>
    joined(
      await client.chat.completions.create({ model: MODEL, messages: said(CHAT), stream: true }),
      (chunk) => chunk.choices[0]?.delta.content,
    ),
  tools: async () => {
    const parameters = { type: "object", properties: { city: { type: "string" } }, required: ["city"] };
    const tool = { name: "weather", parse: JSON.parse, function: ({ city }) => weather(city), parameters };
    const runner = client.chat.completions.runTools({
      model: MODEL,
      messages: said(TOOL),
      tools: [{ type: "function", function: { ...tool, description: "The weather of a city." } }],
    });
    return runner.finalContent();
  },
  structured: async () => {
    const format = zodResponseFormat(z.object({ city: z.string(), degrees: z.number() }), "weather");
    const answer = await client.chat.completions.parse({ model: MODEL, messages: said(STRUCTURED), response_format: format });
    return answer.choices[0].message.parsed;
  },
  turns: async () => {
    const first = await client.responses.create({ model: MODEL, input: FIRST });
    const second = await client.responses.create({ model: MODEL, input: SECOND, previous_response_id: first.id });
    return `${first.output_text} ${second.output_text}`;
  },
  refused: async () => (await refusal()).message,
  param: async () => `the field is ${(await refusal()).param}.`,
  embeddings: async () => {
    const answer = await client.embeddings.create({ model: "baobab/minilm-l6-v2", input: "Hello" });
    return `${answer.data[0].embedding.length} numbers`;
  },
});
