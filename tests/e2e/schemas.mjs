// Reads every tool of a server as a strict reader of JSON Schema does; prints one line for each schema it objects to.
import Ajv2020 from "ajv/dist/2020.js";
import addFormats from "ajv-formats";

const [address] = process.argv.slice(2);
const tools = [];
let cursor;
do {
  const params = cursor ? { cursor } : {};
  const answer = await fetch(`${address}?toolsets=all`, {
    method: "POST",
    headers: {
      "content-type": "application/json",
      accept: "application/json, text/event-stream",
      "mcp-protocol-version": "2025-11-25",
    },
    body: JSON.stringify({ jsonrpc: "2.0", id: 1, method: "tools/list", params }),
  });
  const text = await answer.text();
  const line = text.split("\n").find((found) => found.startsWith("data: {"));
  const page = JSON.parse(line ? line.slice(6) : text).result;
  tools.push(...page.tools);
  cursor = page.nextCursor;
} while (cursor);

// The fixtures of the conformance suite try what a schema may hold at all.
const ours = tools.filter((tool) => !/^(test_|json_schema_)/.test(tool.name));
const ajv = addFormats(new Ajv2020({ strict: true, allErrors: true, logger: false }));
let failed = 0;
for (const tool of ours) {
  for (const kind of ["inputSchema", "outputSchema"]) {
    if (!tool[kind]) continue;
    try {
      ajv.compile(tool[kind]);
    } catch (error) {
      failed += 1;
      console.log(`${tool.name}, ${kind}: ${error.message}`);
    }
  }
}
if (ours.length < 40) {
  failed += 1;
  console.log(`only ${ours.length} tools were listed`);
}
console.log(`${ours.length} tools read strictly`);
process.exit(failed ? 1 : 0);
