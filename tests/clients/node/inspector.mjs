// The command line of the MCP inspector.
import { execFile } from "node:child_process";
import { fileURLToPath } from "node:url";
import { KEY, MCP, run, toolChecks } from "./checks.mjs";

const program = fileURLToPath(
  new URL("node_modules/@modelcontextprotocol/inspector/clients/launcher/build/index.js", import.meta.url),
);
const server = ["--cli", MCP, "--transport", "http", "--header", `Authorization: Bearer ${KEY}`];

// Its status says whether the call was refused; the result is what it writes.
const inspect = (...options) =>
  new Promise((resolve) => execFile(process.execPath, [program, ...server, ...options], (_error, written) => resolve(written)));

const call = async ([name, given]) => {
  const pairs = Object.entries(given).flatMap(([key, value]) => ["--tool-arg", `${key}=${value}`]);
  return JSON.parse(await inspect("--method", "tools/call", "--tool-name", name, ...pairs)).content[0].text;
};

await run({
  connect: async () => JSON.parse(await inspect("--method", "tools/list")).tools.map((tool) => tool.name),
  ...toolChecks(call),
});
