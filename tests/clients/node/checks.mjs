// What the scripts of all Node clients share: where the server is, what is asked, and how they report.
// A script prints one line of JSON for each check, with what its client saw; the runner judges.
export const BASE = process.env.CLIENT_BASE;
export const APP = process.env.CLIENT_APP;
export const KEY = process.env.CLIENT_KEY;
export const MODEL = process.env.CLIENT_MODEL;
export const V1 = `${BASE}/v1/${APP}`;
export const MCP = `${BASE}/mcp?app_id=${APP}`;
export const HEADERS = { Authorization: `Bearer ${KEY}` };

export const CHAT = "/say Hello from a client.";
export const FIRST = "/say One.";
export const SECOND = "/say Two.";
export const TOOL = '/call weather {"city": "Oslo"}';
export const REFUSED = "/refuse temperature";
export const STRUCTURED = 'The weather: {"city": "Oslo", "degrees": 7}';

const VALUE = ["kv_get", { key: "greeting" }];
const SEARCH = ["search_tools", { query: "acquire a lock" }];
const REFUSAL = ["kv_get", { key: "nowhere" }];
const APPROVAL = ["kv_put", { key: "doomed", value: "replaced" }];

export const weather = (city) => `Rain in ${city}.`;

/** The command that makes the built-in model call the tool of a check. */
export const callOf = ([name, given]) => `/call ${name} ${JSON.stringify(given)}`;

/** The text of a stream, which must have come in more than one piece. */
export async function joined(stream, text = (piece) => piece) {
  const pieces = [];
  for await (const piece of stream) if (text(piece)) pieces.push(text(piece));
  if (pieces.length < 2) throw new Error(`the stream came in ${pieces.length} pieces`);
  return pieces.join("");
}

/** Let the owner approve what waits in the app, and wait until it is done. */
async function approve() {
  for (const item of (await ask("GET", "/v1/approvals?status=pending")).approvals) {
    if (item.app_id !== APP) continue;
    await ask("POST", `/v1/approvals/${item.id}/approve`);
    while (!["executed", "failed"].includes((await ask("GET", `/v1/approvals/${item.id}`)).approval.status)) {
      await new Promise((resume) => setTimeout(resume, 100));
    }
  }
}

/** The checks of the server's tools; `call` gives what the client, or its model, sees of a call `[name, arguments]`. */
export const toolChecks = (call) => ({
  value: () => call(VALUE),
  search: () => call(SEARCH),
  refusal: () => call(REFUSAL),
  approval: async () => {
    const asked = await call(APPROVAL);
    await approve();
    return asked + (await call(APPROVAL));
  },
});

/** The error with which a request that is refused ends. */
export const failure = (answer) => answer.then(() => Promise.reject(new Error("it is answered")), (error) => error);

/** Make each check that is wanted, a function that returns what the client saw, and report it. */
export async function run(checks) {
  const wanted = process.env.CLIENT_CHECKS.split(",");
  for (const [check, see] of Object.entries(checks)) {
    if (!wanted.includes(check)) continue;
    let report;
    try {
      const saw = await see();
      report = { check, saw: typeof saw === "string" ? saw : JSON.stringify(saw) };
    } catch (error) {
      report = { check, error: String(error?.message ?? error) };
    }
    console.log(JSON.stringify(report));
  }
  process.exit(0);
}

async function ask(method, path) {
  const answer = await fetch(BASE + path, { method, headers: { Authorization: `Bearer ${process.env.CLIENT_OWNER}` } });
  if (!answer.ok) throw new Error(`${method} ${path}: ${answer.status} ${await answer.text()}`);
  return answer.json();
}
