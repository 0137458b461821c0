// The page of connected programs: what each may do, when it was last used, and a button that revokes its access.
// Text from a program is escaped by the server and inserted as text only.

import { ask, attempt, byId, resume, say, show, signIn, signOut } from "./signin.js";

const ASKS = {
	none: "without asking",
	destructive: "asking a person before it destroys something",
	external: "asking a person before anything leaves this server or is destroyed",
	write: "asking a person before every change",
};
const when = (moment) => new Date(moment).toLocaleString();

function facts(program) {
	const tools = program.toolsets ? `these tools: ${program.toolsets.join(", ")}` : "all tools";
	const where = program.only_app_id
		? `only the app ${program.only_app_name ?? "that is gone"}`
		: "all apps that you may use";
	return [
		["Access goes to", program.redirect_host],
		["Organisation", program.organization_name],
		["Apps", where],
		["It may", program.read_only ? `only read, with ${tools}` : `use ${tools}, ${ASKS[program.approval]}`],
		...(program.scope.split(" ").includes("ai:gateway") ? [["Models", "at the organisation's expense"]] : []),
		["Ends", program.ends_at ? when(program.ends_at) : "when you take it away"],
		["Connected", when(program.created_at)],
		["Last used", program.last_used_at ? when(program.last_used_at) : "not yet"],
	];
}

function card(program) {
	const part = document.createElement("section");
	const heading = document.createElement("h2");
	heading.textContent = program.client_name;
	const list = document.createElement("dl");
	for (const [name, text] of facts(program)) {
		const term = document.createElement("dt");
		const description = document.createElement("dd");
		term.textContent = name;
		description.textContent = text;
		list.append(term, description);
	}
	const form = document.createElement("form");
	const button = document.createElement("button");
	button.type = "submit";
	button.textContent = "Revoke access";
	form.append(button);
	form.addEventListener("submit", (event) => {
		event.preventDefault();
		if (button.dataset.sure !== "yes") {
			button.dataset.sure = "yes";
			button.className = "danger";
			button.textContent = "Really? Keys that it created are revoked too.";
			return;
		}
		attempt(form, async () => {
			await ask("DELETE", `oauth/programs/${program.id}`);
			await listPrograms();
		});
	});
	part.append(heading, list, form);
	return part;
}

async function listPrograms() {
	const { programs } = await ask("GET", "oauth/programs");
	byId("list").replaceChildren(...programs.map(card));
	say(programs.length ? "" : "No program has access.");
}

async function enter(me) {
	byId("me").textContent = me.user.name;
	show("signed-in");
	show("sign-in", false);
	await listPrograms();
}

byId("sign-in").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, async () => enter(await signIn()));
});
byId("sign-out").addEventListener("click", () => signOut());

const me = await resume();
if (me === null) show("sign-in");
else attempt(byId("sign-in"), () => enter(me));
