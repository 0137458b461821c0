// Shared by the server's pages: signing in and out, calling the server, and showing errors.
// The access token is only in this module's memory. What outlives the page is a cookie that no script can read,
// and that only /session uses.

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

/** Returns the answer of /session; throws an Error with a message for people. */
async function session(method, path, body) {
	const { response, answer } = await request(method, path, { "X-Baobab-Page": "1" }, body);
	if (response.ok) return answer;
	throw readable(answer);
}

/** Returns the body of the answer; throws an Error with a message for people. */
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

/** Runs a button's action, one at a time, and shows errors. */
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

/** Continues this browser's session; returns the account and its organisations, or null if there is no session. */
export async function resume() {
	try {
		credential = (await session("POST", "session/token")).token;
		return await ask("GET", "platform/me");
	} catch {
		credential = "";
		return null;
	}
}

/** Signs in with the form's password or API key; returns the account and its organisations. */
export async function signIn() {
	const key = byId("api-key")?.value.trim() ?? "";
	try {
		const credentials = key ? { key } : { email: byId("email").value, password: byId("password").value };
		credential = "";
		credential = (await session("POST", "session", credentials)).token;
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
