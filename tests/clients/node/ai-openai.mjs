// The Vercel AI SDK with its provider for OpenAI, as it comes: by the Responses API.
import { createOpenAI } from "@ai-sdk/openai";
import { checksOf } from "./ai_checks.mjs";
import { KEY, MODEL, V1, run } from "./checks.mjs";

// Lines to paste
const baobab = createOpenAI({ baseURL: V1, apiKey: KEY });
// End of the lines
await run(checksOf(baobab(MODEL)));
