// The Vercel AI SDK with its provider for OpenAI, as it comes: by the Responses API.
import { createOpenAI } from "@ai-sdk/openai";
import { checksOf } from "./ai_checks.mjs";
import { APP, BASE, KEY, MODEL, run } from "./checks.mjs";

await run(checksOf(createOpenAI({ baseURL: `${BASE}/v1/${APP}`, apiKey: KEY })(MODEL)));
