// The Vercel AI SDK with its provider for whatever speaks the wire of OpenAI.
import { createOpenAICompatible } from "@ai-sdk/openai-compatible";
import { checksOf } from "./ai_checks.mjs";
import { KEY, MODEL, V1, run } from "./checks.mjs";

// Lines to paste
const baobab = createOpenAICompatible({
  name: "baobab",
  baseURL: V1,
  apiKey: KEY,
  supportsStructuredOutputs: true,
});
// End of the lines
await run(checksOf(baobab(MODEL)));
