// The Vercel AI SDK with its provider for Anthropic.
import { createAnthropic } from "@ai-sdk/anthropic";
import { checksOf } from "./ai_checks.mjs";
import { BASE, KEY, MODEL, run } from "./checks.mjs";

await run(checksOf(createAnthropic({ baseURL: `${BASE}/v1`, apiKey: KEY })(MODEL)));
