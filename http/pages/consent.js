// The consent page: shows what a client asks for, signs a person in, and sends the decision.
// Text from the client is inserted as text nodes only.

import { ask, attempt, byId, complain, resume, say, show, signIn } from "./signin.js";

const RIGHTS = {
	"mcp": ["use this server's tools as you: read and change your organisation's apps, data, settings, members and keys"],
	"ai:gateway": ["use AI models at your organisation's expense"],
};
const request = new URLSearchParams(location.search).get("request") ?? "";

function describe(authorization) {
	byId("server").textContent = authorization.server;
	byId("client").textContent = authorization.client_name;
	byId("host").textContent = authorization.redirect_host;
	byId("client-id").textContent = authorization.client_id;
	const local = authorization.redirect_host.endsWith(":")
		|| /^(localhost|127\.0\.0\.1|\[::1\])(:\d+)?$/.test(authorization.redirect_host);
	byId("host-note").textContent = local ? "(a program on the computer you are sitting at)" : "";
	for (const right of authorization.scopes.flatMap((scope) => RIGHTS[scope] ?? [scope])) {
		const item = document.createElement("li");
		item.textContent = right;
		byId("rights").append(item);
	}
	byId("warning").textContent = authorization.client_document
		? `It describes itself at ${new URL(authorization.client_id).host}, and this server knows nothing else about it. `
			+ "Allow it only if you trust that site and have just started this yourself."
		: "Any program can register here under any name. Allow it only if you have just started this yourself "
			+ "and access goes where you expect.";
	byId("families").append(...authorization.families.map(choice));
	show("asked");
	say("");
}

function choice({ name, description }) {
	const label = document.createElement("label");
	label.className = "choice";
	const box = document.createElement("input");
	box.type = "checkbox";
	box.name = "family";
	box.value = name;
	const words = document.createElement("span");
	words.textContent = `${name}: ${description}`;
	label.append(box, words);
	return label;
}

/** Lists the apps of the chosen organisation; access can be limited to one. */
async function listApps() {
	const organization = byId("organization").value;
	const { apps } = await ask("GET", "apps?limit=100", { organization });
	byId("app").replaceChildren(byId("app").options[0], ...apps.map((app) => new Option(app.name, app.id)));
}

async function welcome() {
	await enter(await signIn());
}

async function enter(me) {
	byId("account").textContent = `${me.user.name} (${me.user.email})`;
	for (const organization of me.organizations) {
		byId("organization").append(new Option(`${organization.name} (${organization.role})`, organization.id));
	}
	await listApps();
	show("sign-in", false);
	show("decide");
	show("actions");
}

async function decide(decision) {
	const toolsets = [...document.querySelectorAll("[name=family]:checked")].map((box) => box.value);
	const { redirect_to } = await ask("POST", "oauth/decision", {
		body: {
			request,
			decision,
			organization_id: byId("organization").value,
			read_only: byId("read-only").checked,
			approval: byId("decide").elements.approval.value,
			only_app_id: byId("app").value || null,
			last_day: byId("last-day").value || null,
			toolsets: toolsets.length ? toolsets : null,
		},
	});
	show("asked", false);
	show("decide", false);
	show("actions", false);
	say(decision === "approve" ? "Access granted. You may close this page." : "Refused. You may close this page.");
	location.assign(redirect_to);
}

byId("sign-in").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, welcome);
});
byId("decide").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, () => decide("approve"));
});
byId("deny").addEventListener("click", () => attempt(byId("decide"), () => decide("deny")));
byId("organization").addEventListener("change", () => attempt(byId("decide"), listApps));
byId("read-only").addEventListener("change", ({ target }) => { byId("approvals").disabled = target.checked; });

try {
	describe(await ask("GET", `oauth/request?request=${encodeURIComponent(request)}`));
	const me = await resume();
	if (me === null) show("sign-in");
	else await enter(me);
} catch (error) {
	say("");
	complain(error instanceof TypeError ? "The server does not answer." : error.message);
}
