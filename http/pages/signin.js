// What the server's own pages for people share: signing in and out, asking the server, showing what went wrong.
// The access token lives in this module's memory only. What outlasts the page is a cookie that no script can read,
// and that only /session looks at.

export const root = new URL("../", document.baseURI);
export const byId = (id) => document.getElementById(id);
let credential = "";

export function show(id, shown = true) {
	byId(id).hidden = !shown;
}

export function say(text) {
	byId("status").textContent = text;
}

export function complain(text) {
	byId("problem").textContent = text;
	show("problem", text !== "");
}

async function request(method, path, headers, body) {
	if (body) headers["Content-Type"] = "application/json";
	const credentials = path.startsWith("session") ? "same-origin" : "omit";
	const options = { method, headers, credentials, cache: "no-store", body: body && JSON.stringify(body) };
	const response = await fetch(new URL(path, root), options);
	return { response, answer: await response.json() };
}

function readable(answer) {
	return new Error(`${answer.error?.message ?? "The server refused."} ${answer.error?.remediation ?? ""}`);
}

/** What /session answers; throws an Error whose message a person can read. */
async function session(method, path, body) {
	const { response, answer } = await request(method, path, { "X-Baobab-Page": "1" }, body);
	if (response.ok) return answer;
	throw readable(answer);
}

/** The answer's body; throws an Error whose message a person can read. */
export async function ask(method, path, { body, organization } = {}, again = true) {
	const headers = credential ? { Authorization: `Bearer ${credential}` } : {};
	if (organization) headers["X-Organization-Id"] = organization;
	const { response, answer } = await request(method, path, headers, body);
	if (response.ok) return answer;
	if (response.status === 401 && credential && again) {
		// The access token lasts an hour, the session longer.
		credential = (await session("POST", "session/token")).token;
		return ask(method, path, { body, organization }, false);
	}
	throw readable(answer);
}

/** Runs what a button asks for once at a time, and shows what went wrong. */
export async function attempt(form, work) {
	const buttons = [...form.elements].filter((element) => element.type === "submit" || element.type === "button");
	for (const button of buttons) button.disabled = true;
	complain("");
	try {
		await work();
	} catch (error) {
		complain(error instanceof TypeError ? "The server does not answer." : error.message);
	} finally {
		for (const button of buttons) button.disabled = false;
	}
}

/** Goes on with the session that this browser has; the account and its organisations, or null where there is none. */
export async function resume() {
	try {
		credential = (await session("POST", "session/token")).token;
		return await ask("GET", "platform/me");
	} catch {
		credential = "";
		return null;
	}
}

/** Signs in with what the form holds, a password or a pasted API key; the account and its organisations. */
export async function signIn() {
	const key = byId("api-key")?.value.trim() ?? "";
	try {
		const given = key ? { key } : { email: byId("email").value, password: byId("password").value };
		credential = "";
		credential = (await session("POST", "session", given)).token;
		return await ask("GET", "platform/me");
	} catch (error) {
		credential = "";
		throw error;
	} finally {
		byId("password").value = "";
		if (byId("api-key")) byId("api-key").value = "";
	}
}

export async function signOut() {
	try {
		await session("DELETE", "session");
	} finally {
		credential = "";
		location.reload();
	}
}
