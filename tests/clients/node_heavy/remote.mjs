// mcp-remote as the program between a client that only starts programs and the server.
import { fileURLToPath } from "node:url";
import { Client } from "@modelcontextprotocol/sdk/client/index.js";
import { StdioClientTransport } from "@modelcontextprotocol/sdk/client/stdio.js";
import { BASE, MCP } from "../node/checks.mjs";

async function post(path, body, token) {
  const headers = { "Content-Type": "application/json", ...(token && { Authorization: `Bearer ${token}` }) };
  const answer = await fetch(BASE + path, { method: "POST", headers, body: JSON.stringify(body) });
  if (!answer.ok) throw new Error(`${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}

/** What a person does on the page that mcp-remote opens, by the operations that the page calls. */
async function agree(address) {
  const page = await fetch(address, { redirect: "manual" });
  const request = new URL(page.headers.get("location"), BASE).searchParams.get("request");
  const { token } = await post("/platform/login", { email: "owner@localhost", password: process.env.CLIENT_PASSWORD });
  const decision = await post("/oauth/decision", { request, decision: "approve", approval: "destructive" }, token);
  await fetch(decision.redirect_to);
}

export const program = fileURLToPath(new URL("node_modules/mcp-remote/dist/proxy.js", import.meta.url));

/** A client that is connected through mcp-remote, to which a person has agreed. Its tokens are in the home folder. */
export async function connected() {
  // It writes the address, and no browser is wanted.
  const env = { ...process.env, BROWSER: "true" };
  const transport = new StdioClientTransport({ command: process.execPath, args: [program, MCP], env, stderr: "pipe" });
  let written = "";
  let agreed = false;
  const end = (error) => {
    console.error(error, written);
    process.exit(1);
  };
  transport.stderr.on("data", (data) => {
    written += data;
    const address = written.match(/(http\S+[?&]response_type=code\S*)\s/)?.[1];
    if (address && !agreed) {
      agreed = true;
      agree(address).catch(end);
    }
  });
  const client = new Client({ name: "matrix", version: "1" });
  await client.connect(transport).catch(end);
  return client;
}
