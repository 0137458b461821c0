// What the Vercel AI SDK shows with any of its providers.
import { Output, generateText, isStepCount, streamText, tool } from "ai";
import { z } from "zod";
import { CHAT, FIRST, REFUSED, SECOND, STRUCTURED, TOOL, failure, joined, weather } from "./checks.mjs";

const refusal = (model) => failure(generateText({ model, prompt: REFUSED, temperature: 0.5 }));

export const checksOf = (model) => ({
  chat: async () => (await generateText({ model, prompt: CHAT })).text,
  stream: () => joined(streamText({ model, prompt: CHAT }).textStream),
  tools: async () => {
    const inputSchema = z.object({ city: z.string() });
    const described = tool({ description: "The weather of a city.", inputSchema, execute: ({ city }) => weather(city) });
    return (await generateText({ model, prompt: TOOL, tools: { weather: described }, stopWhen: isStepCount(3) })).text;
  },
  structured: async () => {
    const output = Output.object({ schema: z.object({ city: z.string(), degrees: z.number() }) });
    return (await generateText({ model, prompt: STRUCTURED, output })).output;
  },
  turns: async () => {
    const messages = [{ role: "user", content: FIRST }];
    const first = await generateText({ model, messages });
    messages.push(...first.response.messages, { role: "user", content: SECOND });
    return `${first.text} ${(await generateText({ model, messages })).text}`;
  },
  refused: async () => {
    const { statusCode, message } = await refusal(model);
    return `${statusCode} ${message}`;
  },
  param: async () => `the field is ${(await refusal(model)).data.error.param}.`,
});
