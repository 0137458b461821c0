// What the server's own pages for people share: signing in, asking the server, showing what went wrong.
// The credential lives in this module's memory only: no cookie, no storage, gone with the page.

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

/** The answer's body; throws an Error whose message a person can read. */
export async function ask(method, path, { body, organization } = {}) {
	const headers = credential ? { Authorization: `Bearer ${credential}` } : {};
	if (body) headers["Content-Type"] = "application/json";
	if (organization) headers["X-Organization-Id"] = organization;
	const options = { method, headers, credentials: "omit", cache: "no-store", body: body && JSON.stringify(body) };
	const response = await fetch(new URL(path, root), options);
	const answer = await response.json();
	if (response.ok) return answer;
	throw new Error(`${answer.error?.message ?? "The server refused."} ${answer.error?.remediation ?? ""}`);
}

/** Runs what a button asks for once at a time, and shows what went wrong. */
export async function attempt(form, work) {
	const buttons = [...form.querySelectorAll("button")];
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

/** Signs in with what the form holds, a password or a pasted API key; the account and its organisations. */
export async function signIn() {
	const pasted = byId("api-key")?.value.trim() ?? "";
	try {
		credential = "";
		credential = pasted || (await ask("POST", "platform/login", {
			body: { email: byId("email").value, password: byId("password").value },
		})).token;
		return await ask("GET", "platform/me");
	} catch (error) {
		credential = "";
		throw error;
	} finally {
		byId("password").value = "";
		if (byId("api-key")) byId("api-key").value = "";
	}
}
