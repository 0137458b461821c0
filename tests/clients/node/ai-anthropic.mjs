// The Vercel AI SDK with its provider for Anthropic.
import { createAnthropic } from "@ai-sdk/anthropic";
import { checksOf } from "./ai_checks.mjs";
import { BASE, KEY, MODEL, run } from "./checks.mjs";

// Lines to paste
const baobab = createAnthropic({ baseURL: `${BASE}/v1`, apiKey: KEY });
// End of the lines
await run(checksOf(baobab(MODEL)));
