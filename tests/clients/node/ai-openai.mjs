// The Vercel AI SDK with its provider for OpenAI, as it comes: by the Responses API.
import { createOpenAI } from "@ai-sdk/openai";
import { checksOf } from "./ai_checks.mjs";
import { KEY, MODEL, V1, run } from "./checks.mjs";

await run(checksOf(createOpenAI({ baseURL: V1, apiKey: KEY })(MODEL)));
