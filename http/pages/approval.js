// The page of approvals: shows what waits, signs a person in, sends the decision, tells what came of it.
// What a proposer wrote reaches the page as text only.

import { ask, attempt, byId, say, show, signIn } from "./signin.js";

const id = /\/approvals\/(appr_[A-Za-z0-9]+)$/.exec(location.pathname)?.[1] ?? "";
const POLL_MILLISECONDS = 1000;
const when = (moment) => new Date(moment).toLocaleString();
const after = (milliseconds) => new Promise((resolve) => { setTimeout(resolve, milliseconds); });

function describe({ approval, proposer_name: called, preview, arguments: all }) {
	const texts = {
		summary: approval.summary,
		preview: preview ?? (approval.status === "pending" ? "The tool cannot tell more than is said above." : "It is decided."),
		tool: approval.tool,
		effect: approval.effect,
		app: approval.app_id ?? "none",
		called: called ?? "a key that is revoked",
		proposer: approval.proposer,
		account: approval.account_id,
		created: when(approval.created_at),
		expires: when(approval.expires_at),
		state: approval.status,
		why: approval.error ? approval.error.message : approval.reason ?? "",
		arguments: all === null ? "" : JSON.stringify(all, null, 2),
	};
	for (const [name, text] of Object.entries(texts)) byId(name).textContent = text;
	show("whole", all !== null);
	show("asked");
	show("decide", approval.status === "pending");
}

/** Shows the approval, and again each second while it is executed. */
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
		pending: "Nothing has been done yet.",
		executed: "It has been executed.",
		failed: "It was approved, and failed.",
		rejected: "Rejected: it will not be executed.",
		expired: "Nobody decided in time: it will not be executed.",
	}[found.approval.status]);
}

async function list(organizations) {
	byId("list").replaceChildren();
	for (const { id: organization, name } of organizations) {
		const { approvals } = await ask("GET", "v1/approvals?status=pending&limit=100", { organization });
		for (const approval of approvals) {
			const item = document.createElement("li");
			const link = document.createElement("a");
			link.href = new URL(`../approvals/${approval.id}`, document.baseURI).href;
			link.textContent = `${approval.tool}: ${approval.summary.split("\n", 1)[0]}`;
			item.append(link, ` ${name}, asked ${when(approval.created_at)}`);
			byId("list").append(item);
		}
	}
	say(byId("list").children.length ? "" : "Nothing waits.");
	show("waiting");
}

async function decide(word, body) {
	try {
		await ask("POST", `v1/approvals/${id}/${word}`, { body });
	} finally {
		// Where somebody else was faster, their word is shown.
		await follow();
	}
}

byId("sign-in").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, async () => {
		const me = await signIn();
		show("sign-in", false);
		await (id ? follow() : list(me.organizations));
	});
});
byId("decide").addEventListener("submit", (event) => {
	event.preventDefault();
	attempt(event.target, () => decide("approve", {}));
});
byId("reject").addEventListener("click", () => {
	const reason = byId("reason").value.trim();
	attempt(byId("decide"), () => decide("reject", reason ? { reason } : {}));
});
// Return in the reason's field must not be taken for an approval.
byId("reason").addEventListener("keydown", (event) => { if (event.key === "Enter") event.preventDefault(); });

show("sign-in");
