// What the pages of all examples do: ask the app, and sign people in. An app answers on the host of its site, at /auth,
// /data, /fn, /agents and so on, so no address and no id stands in these files, and a clone uses them as they are.

const KEPT_AS = "session";
// For this tab, until it is closed. The page's policy (`_headers`) runs no script but those of the site.
let session = JSON.parse(sessionStorage.getItem(KEPT_AS));

export async function ask(method, path, body) {
  const headers = { "content-type": "application/json" };
  if (session) headers.authorization = `Bearer ${session.access_token}`;
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  const text = await answer.text();
  const content = text ? JSON.parse(text) : null;
  if (answer.ok) return content;
  if (answer.status === 401 && session) signOut();
  const error = new Error(content?.error?.message ?? content?.message ?? answer.statusText);
  error.status = answer.status;
  throw error;
}

// Starts a run of an agent, and returns its state once it has ended. It may wait for a person meanwhile, also for days:
// nothing is lost when the page is closed.
export async function run(agent, input, tell) {
  const { run_id: id } = await ask("POST", `/agents/${agent}/runs`, { input });
  for (;;) {
    const { run: state } = await ask("GET", `/agents/${agent}/runs/${id}`);
    if (["completed", "failed", "cancelled", "timed_out"].includes(state.status)) return state;
    if (state.status === "paused") tell();
    await new Promise((resolve) => setTimeout(resolve, 2000));
  }
}

export const find = (selector) => document.querySelector(selector);

// Says something in the region that screen readers read aloud, once.
export function say(text) {
  const region = find("#message");
  if (region.textContent !== text) region.textContent = text;
}

export async function attempt(work) {
  try {
    await work();
  } catch (error) {
    say(error.message);
  }
}

export function onSubmit(selector, handle) {
  find(selector).addEventListener("submit", (event) => {
    event.preventDefault();
    say("");
    attempt(() => handle(Object.fromEntries(new FormData(event.target)), event));
  });
}

// Shows a list of rows. build: returns what the item of a row contains, texts and elements. Texts stay texts: nobody's
// row becomes markup.
export function show(selector, rows, build, nothing) {
  const items = rows.map((row) => {
    const item = document.createElement("li");
    item.append(...build(row));
    return item;
  });
  find(selector).replaceChildren(...(items.length ? items : [nothing]));
}

export function button(text, handle) {
  const element = document.createElement("button");
  element.type = "button";
  element.textContent = text;
  element.addEventListener("click", async () => {
    element.disabled = true;
    await attempt(handle);
    element.disabled = false;
  });
  return element;
}

// Fills a <select> with the rows of a table.
export function choose(selector, rows, key) {
  find(selector).replaceChildren(...rows.map((row) => new Option(row.title, row[key])));
}

export const user = () => session.user;

function signOut() {
  session = null;
  sessionStorage.removeItem(KEPT_AS);
  // Nothing of the person before stays in the page.
  location.reload();
}

// Shows the form, or what is behind it. open: fills the page once somebody has signed in.
export function signIn(open) {
  const enter = async () => {
    find("#sign-in").hidden = true;
    find("#inside").hidden = false;
    find("#who").textContent = user().email;
    await open();
  };
  onSubmit("#sign-in", async (fields, event) => {
    if (event.submitter?.value === "signup") await ask("POST", "/auth/signup", fields);
    session = await ask("POST", "/auth/login", fields);
    sessionStorage.setItem(KEPT_AS, JSON.stringify(session));
    await enter();
    find("h1").focus();
  });
  find("#sign-out").addEventListener("click", signOut);
  if (session) attempt(enter);
}
