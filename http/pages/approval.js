// The page of approvals: shows waiting calls, signs a person in, sends the decision and shows the result.
// Text of the proposer is escaped by the server and inserted as text only.

import { ask, attempt, byId, complain, resume, say, show, signIn, signOut } from "./signin.js";

const id = /\/approvals\/(appr_[A-Za-z0-9]+)$/.exec(location.pathname)?.[1] ?? "";
const POLL_MILLISECONDS = 1000;
const QUESTION = "interrupt";
const when = (moment) => new Date(moment).toLocaleString();
const after = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });
let asked = null;

function named({ approvers, agreed }) {
	const one = (of) => (typeof of === "string" ? of : `users with the role ${of.role}`);
	const words = approvers.persons ? `${approvers.persons} people of: ${one(approvers.of)}` : one(approvers);
	return `${words}, and admins${agreed.length ? `. ${agreed.length} approved so far.` : ""}`;
}

function describe(found) {
	const { approval, preview, arguments_text: text } = found;
	const question = approval.tool === QUESTION;
	const waits = approval.status === "pending";
	const texts = {
		headline: `${approval.title}${waits && !question ? "?" : ""}`,
		app: approval.app_name ?? "No app",
		asker: approval.asked_by,
		preview: preview ?? "",
		question: question && found.arguments ? String(found.arguments.reason ?? "") : "",
		summary: approval.summary,
		tool: approval.tool,
		effect: approval.effect,
		approvers: named(approval),
		proposer: approval.proposer,
		created: when(approval.created_at),
		expires: when(approval.expires_at),
		state: approval.status,
		why: approval.error ? approval.error.message : approval.reason ?? "",
		arguments: text ?? "",
		input: found.run_input ?? "",
	};
	for (const [name, value] of Object.entries(texts)) byId(name).textContent = value;
	document.title = texts.headline;
	show("preview", Boolean(preview));
	show("question", false);
	show("tainted", Boolean(approval.tainted));
	show("whole", text !== null);
	// If the preview above is cut, the whole text below is open.
	byId("whole").open = waits && !question && (!preview || /not shown here/.test(approval.summary));
	show("run", found.run_input !== null);
	show("asked");
	show("details");
	if (asked?.approval.status !== approval.status) {
		const editable = waits && approval.run_id !== null && !approval.approvers.persons && found.arguments !== null;
		show("edit", editable && !question);
		show("answer-field", editable && question);
		byId("answer-label").textContent = "Your answer, as JSON (the run gets it as data)";
		if (question && found.arguments) byId("answer").value = JSON.stringify(found.arguments.data ?? null, null, 2);
		byId("approve").textContent = question ? "Answer" : "Approve";
		byId("approve").className = approval.effect === "destructive" ? "danger" : "go";
	}
	show("decide", waits && found.may_decide);
	asked = found;
}

/** Shows the approval, and refreshes it each second while the call is executed. */
async function follow() {
	let found = await ask("GET", `v1/approvals/${id}`);
	describe(found);
	while (found.approval.status === "approved") {
		say("Approved. It is being executed …");
		await after(POLL_MILLISECONDS);
		found = await ask("GET", `v1/approvals/${id}`);
		describe(found);
	}
	say({
		pending: found.may_decide ? "Nothing has been done yet. If you approve, it is executed at once." : "Other people decide about this.",
		executed: "It has been executed.",
		failed: "It was approved, but it failed.",
		rejected: "Rejected. It will not be executed.",
		expired: "Nobody decided in time. It will not be executed.",
	}[found.approval.status]);
}

function row(approval, organization) {
	const item = document.createElement("li");
	const link = document.createElement("a");
	link.href = new URL(`../approvals/${approval.id}`, document.baseURI).href;
	link.textContent = approval.title;
	const about = document.createElement("p");
	about.textContent = `${approval.app_name ?? organization} · ${when(approval.created_at)}`
		+ `${approval.tainted ? " · has read strangers' text" : ""}`;
	item.append(link, about);
	return item;
}

/** Builds one group for each proposer, so that all calls of one can be rejected at once. */
function group(asker, waiting) {
	const heading = document.createElement("h2");
	heading.textContent = asker;
	const items = document.createElement("ul");
	for (const { approval, organization } of waiting) items.append(row(approval, organization));
	const form = document.createElement("form");
	const button = document.createElement("button");
	button.type = "submit";
	button.textContent = `Reject all ${waiting.length}`;
	form.append(button);
	form.addEventListener("submit", (event) => {
		event.preventDefault();
		if (button.dataset.sure !== "yes") {
			button.dataset.sure = "yes";
			button.textContent = `Really reject all ${waiting.length}?`;
			return;
		}
		attempt(form, async () => {
			for (const { approval } of waiting) {
				try {
					await ask("POST", `v1/approvals/${approval.id}/reject`, { body: {} });
				} catch (error) {
					complain(error.message);
				}
			}
			await list();
		});
	});
	const part = document.createElement("section");
	part.append(heading, items, ...(waiting.length > 1 ? [form] : []));
	return part;
}

async function list() {
	const groups = new Map();
	for (const { id: organization, name } of (await ask("GET", "platform/me")).organizations) {
		const { approvals } = await ask("GET", "v1/approvals?status=pending&limit=100", { organization });
		for (const approval of approvals) {
			const key = `${approval.proposer.startsWith("run:") ? "" : approval.proposer}\n${approval.asked_by}`;
			groups.set(key, [...(groups.get(key) ?? []), { approval, organization: name }]);
		}
	}
	byId("list").replaceChildren(...[...groups.values()].map((waiting) => group(waiting[0].approval.asked_by, waiting)));
	say(groups.size ? "" : "Nothing is waiting.");
	show("waiting");
}

async function decide(word, body) {
	try {
		await ask("POST", `v1/approvals/${id}/${word}`, { body });
	} finally {
		// If somebody else has decided meanwhile, their decision is shown.
		await follow();
	}
}

/** Returns the part of a call that can be edited: for a tool server's tool, that tool's own arguments. */
function editable({ approval, arguments: whole }) {
	if (approval.tool === "mcp_servers_call") return whole.arguments;
	const { app_id: _app, ...rest } = whole;
	return rest;
}

/** Returns what the person has changed; nothing if the field is unchanged. */
function changed() {
	if (byId("answer-field").hidden) return {};
	let given;
	try {
		given = JSON.parse(byId("answer").value);
	} catch {
		throw new Error("Your answer is not JSON. Text needs quotes: \"yes\".");
	}
	const whole = editable(asked);
	const wanted = asked.approval.tool === QUESTION ? { ...whole, data: given } : given;
	return JSON.stringify(wanted) === JSON.stringify(whole) ? {} : { arguments: wanted };
}

async function enter(me) {
	byId("me").textContent = me.user.name;
	show("signed-in");
	show("inbox", id !== "");
	show("sign-in", false);
	await (id ? follow() : list());
}

byId("sign-in").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, async () => enter(await signIn()));
});
byId("sign-out").addEventListener("click", () => signOut());
byId("decide").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, () => decide("approve", changed()));
});
byId("reject").addEventListener("click", () => {
	const reason = byId("reason").value.trim();
	attempt(byId("decide"), () => decide("reject", reason ? { reason } : {}));
});
byId("edit").addEventListener("click", () => {
	byId("answer").value = JSON.stringify(editable(asked), null, 2);
	byId("answer-label").textContent = "New arguments, as JSON";
	show("answer-field");
	show("edit", false);
});
// Return in the field of the reason must not approve the call.
byId("reason").addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });

const me = await resume();
if (me === null) show("sign-in");
else attempt(byId("decide"), () => enter(me));
