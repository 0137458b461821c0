// Improves the console's pages, which all work without it: keeps them fresh, and listens to keys.

const rules = { createHTML: (html) => html, createScriptURL: (url) => url };
const policy = window.trustedTypes?.createPolicy("baobab", rules) ?? rules;
const main = () => document.getElementById("main");
let busy = false;
let again = false;
/** The content as the server made it: scripts change the present one, such as the time that is left. */
let servedContent = main().innerHTML;

const parse = (html) => new DOMParser().parseFromString(policy.createHTML(html), "text/html");

/** Whether the person is writing something, which a fresh page would take away. */
function isWriting() {
	return [...main().querySelectorAll("input:not([type=hidden]), textarea, select")].some((field) => {
		if (field.matches("select")) return field.selectedIndex !== Math.max([...field.options].findIndex((option) => option.defaultSelected), 0);
		// A field of one line drops the line breaks of what it is given.
		const initialValue = field.matches("input") ? field.defaultValue.replace(/[\r\n]/g, "") : field.defaultValue;
		return field.value !== initialValue || field.checked !== field.defaultChecked;
	});
}

/** Asks for the page again and puts its content in place of the present one; the focus stays where it was. */
async function refresh() {
	if (busy) { again = true; return; }
	busy = true;
	try {
		const answer = await fetch(location.href, { headers: { accept: "text/html" } });
		if (answer.redirected) { location.assign(answer.url); return; }
		const page = parse(await answer.text());
		const fresh = page.getElementById("main");
		lostAt = null;
		warn("");
		document.title = page.title;
		if (fresh?.innerHTML === servedContent) return;
		if (!fresh || isWriting()) { warn("Something has changed. Reload the page to see it: what you have typed is lost then."); return; }
		servedContent = fresh.innerHTML;
		const focused = document.activeElement;
		const key = focused?.closest("li[id]")?.id ?? "";
		const id = focused?.id ?? "";
		const place = [...main().querySelectorAll("a.open")].indexOf(focused);
		const open = [...main().querySelectorAll("details")].map((part) => part.open);
		main().replaceWith(document.adoptNode(fresh));
		[...main().querySelectorAll("details")].forEach((part, n) => { part.open = open[n] ?? false; });
		const links = [...main().querySelectorAll("a.open")];
		const target = (key && document.getElementById(key)?.querySelector("a")) || (id && document.getElementById(id)) || (place >= 0 && links[Math.min(place, links.length - 1)]);
		if (target) target.focus({ preventScroll: true });
		dress();
		listen(page.body.dataset.live);
		say(`Updated. ${links.length ? `${links.length} waiting.` : ""}`);
	} catch {
		warnOffline();
	} finally {
		busy = false;
		if (again) { again = false; setTimeout(refresh, 50); }
	}
}

/** Says something to those who hear the page. */
function say(words) {
	const line = document.getElementById("live");
	if (line) line.textContent = words;
}

/** Shows everybody that the page is not what it should be; nothing once it is. */
function warn(words) {
	const line = document.getElementById("warning");
	if (!line || line.textContent === words) return;
	line.textContent = words;
	line.hidden = !words;
}

/** Since when the server does not answer; null while it does. */
let lostAt = null;

function warnOffline() {
	lostAt ??= new Date();
	const clock = lostAt.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
	warn(`No connection since ${clock}. What you see may be old.`);
}
window.addEventListener("offline", warnOffline);
window.addEventListener("online", () => refresh());

/** Does to fresh content what the script does to each page. */
function dress() {
	linkPassages();
	showText();
	showTimeLeft();
	showTimes();
	endToast();
	for (const block of main().querySelectorAll("pre[data-copy]")) addCopy(block);
	offerPush(document.getElementById("push"));
}

/** Shows the form that has this browser told, where it can be. */
function offerPush(form) {
	if (!form?.hidden || !("PushManager" in window) || !navigator.serviceWorker) return;
	form.hidden = false;
	form.querySelector("button").addEventListener("click", () => subscribe(form));
}

/** Counts down what is left of a deadline; when it has passed, the page says so itself. */
function showTimeLeft() {
	for (const part of main().querySelectorAll("[data-until]")) {
		const seconds = (Date.parse(part.dataset.until) - Date.now()) / 1000;
		const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([size]) => seconds >= size) ?? [];
		const count = Math.floor(seconds / size);
		part.textContent = size ? `${count} ${unit}${count === 1 ? "" : "s"} left` : "less than a minute left";
		if (seconds < 0 && !part.dataset.over) { part.dataset.over = "yes"; setTimeout(refresh, 1000); }
	}
}

/** Counts down how long a decision can be taken back; the server decides by its own clock. */
setInterval(() => {
	for (const ring of document.querySelectorAll("[data-seconds]")) {
		const left = ring.dataset.seconds - 1;
		ring.dataset.seconds = left;
		ring.textContent = Math.max(left, 0);
		if (left <= 0) ring.closest(".toast")?.remove();
	}
}, 1000);

/** Shows a call beside the list, without asking for the list again. */
async function openBeside(link) {
	const answer = await fetch(link.href, { headers: { accept: "text/html" } });
	if (answer.redirected) { location.assign(answer.url); return; }
	const page = parse(await answer.text());
	const fresh = page.getElementById("pane");
	const pane = document.getElementById("pane");
	if (!fresh || !pane || answer.url !== link.href) { location.assign(link.href); return; }
	pane.replaceWith(document.adoptNode(fresh));
	servedContent = page.getElementById("main").innerHTML;
	document.title = page.title;
	history.pushState(null, "", link.href);
	main().querySelector(".inbox")?.classList.add("opened");
	const id = new URL(link.href).searchParams.get("open");
	for (const row of main().querySelectorAll(".list .row[id]")) row.id === id ? row.setAttribute("aria-current", "true") : row.removeAttribute("aria-current");
	document.getElementById(id)?.scrollIntoView({ block: "nearest" });
	dress();
}

document.addEventListener("click", (event) => {
	const link = event.target.closest(".inbox .list a.open[href*='open='], .pane .place a");
	if (!link || event.button || event.ctrlKey || event.metaKey || event.shiftKey || !matchMedia("(min-width: 1024px)").matches) return;
	event.preventDefault();
	openBeside(link).catch(() => location.assign(link.href));
});
window.addEventListener("popstate", () => location.reload());

/** Says a time as people do, in the zone of this browser: `say_near` of the server does so in UTC. */
function sayNear(moment) {
	const now = new Date();
	const minutes = (moment - now) / 60_000;
	if (Math.abs(minutes) < 1) return minutes <= 0 ? "just now" : "in less than a minute";
	if (Math.abs(minutes) < 60) return minutes < 0 ? `${Math.round(-minutes)} min ago` : `in ${Math.round(minutes)} min`;
	const midnight = (day) => Date.UTC(day.getFullYear(), day.getMonth(), day.getDate());
	const days = (midnight(moment) - midnight(now)) / 86_400_000;
	const clock = moment.toLocaleTimeString("en-GB", { hour: "2-digit", minute: "2-digit" });
	if (Math.abs(days) <= 1) return ["yesterday ", "", "tomorrow "][days + 1] + clock;
	const year = moment.getFullYear() === now.getFullYear() ? undefined : "numeric";
	if (Math.abs(days) < 7) return `${moment.toLocaleDateString("en-GB", { weekday: "short" })} ${clock}`;
	return moment.toLocaleDateString("en-GB", { day: "numeric", month: "short", year });
}

/** Makes the times of the page local, and keeps near ones true. A time that says only its clock is local by its tooltip. */
function showTimes() {
	for (const part of document.querySelectorAll("time[datetime]")) {
		const moment = new Date(part.dateTime);
		const words = part.dataset.clock === undefined ? sayNear(moment) : moment.toLocaleTimeString("en-GB");
		if (part.textContent !== words) part.textContent = words;
	}
}

/** Takes away what was said about the last step after ten seconds, unless somebody is at it. */
function endToast() {
	const toast = main().querySelector(".toast:not(:has([data-seconds]))");
	if (!toast) return;
	const address = new URL(location.href);
	if (address.searchParams.has("saved")) {
		address.searchParams.delete("saved");
		history.replaceState(null, "", address);
	}
	setTimeout(() => { if (!toast.matches(":focus-within, :hover")) toast.remove(); }, 10_000);
}

/** Copies what a block says. Without a clipboard there is no button: browsers have one with https and on this machine. */
function addCopy(block) {
	if (!navigator.clipboard) return;
	const button = Object.assign(document.createElement("button"), { type: "button", className: "quiet copy", textContent: "Copy" });
	button.setAttribute("aria-label", `Copy: ${block.getAttribute("aria-label")}`);
	button.addEventListener("click", async () => {
		await navigator.clipboard.writeText(block.textContent.trim());
		button.textContent = "Copied";
		setTimeout(() => { button.textContent = "Copy"; }, 2000);
	});
	block.before(button);
}

function move(step) {
	const links = [...main().querySelectorAll("a.open")];
	if (!links.length) return;
	const now = links.indexOf(document.activeElement);
	const next = now < 0 ? (step > 0 ? 0 : links.length - 1) : Math.min(Math.max(now + step, 0), links.length - 1);
	links[next].focus();
	links[next].scrollIntoView({ block: "nearest" });
}

const press = (key) => main().querySelector(`[data-key=${key}]`);

/** Goes to the next or the previous call: of the list, or beside it where one is open. */
function step(key, places) {
	const beside = press(key);
	if (beside && !main().querySelector("a.open:focus")) beside.click(); else move(places);
}

const KEYS = {
	j: () => step("j", 1),
	k: () => step("k", -1),
	a: () => press("a")?.click(),
	e: () => press("e")?.click(),
	d: () => document.getElementById("reason")?.focus(),
	z: () => press("z")?.click(),
	x: () => (document.activeElement?.closest(".row") ?? main().querySelector(".row[aria-current]"))?.querySelector(".mark input")?.click(),
	A: () => press("A")?.click(),
	u: () => document.getElementById("back")?.click(),
	"?": () => document.getElementById("help")?.showModal(),
};

document.addEventListener("keydown", (event) => {
	const isField = event.target.matches("input, textarea, select") || document.querySelector("dialog[open]");
	if (event.key === "Escape" && event.target.matches("input, textarea")) { event.target.blur(); return; }
	if (isField || event.ctrlKey || event.metaKey || event.altKey || event.repeat && !"jk".includes(event.key)) return;
	const act = KEYS[event.key];
	if (act) { event.preventDefault(); act(); }
});

// Asked twice about what cannot be undone; nothing is sent twice.
document.addEventListener("submit", (event) => {
	const question = event.target.dataset.confirm;
	if (event.target.dataset.sent || question && !window.confirm(question)) { event.preventDefault(); return; }
	if (event.target.method !== "post") return;
	event.target.dataset.sent = "yes";
	event.submitter?.setAttribute("aria-busy", "true");
});
window.addEventListener("pageshow", () => {
	for (const form of document.forms) delete form.dataset.sent;
	for (const button of document.querySelectorAll("[aria-busy]")) button.removeAttribute("aria-busy");
});

/** What the model of a run is writing; the page shows it until the step is in the timeline. */
const writing = { step: 0, text: "" };

function showText() {
	const part = document.getElementById("live-text");
	if (!part) return;
	part.hidden = !writing.text;
	part.querySelector("pre").textContent = writing.text;
}

/** Puts the parts of a run's page that have changed in place of those with the same ids; new entries stand at the end. */
function place(html) {
	for (const part of [...parse(html).body.children]) {
		const old = document.getElementById(part.id);
		if (!old) { document.getElementById("entries")?.append(document.adoptNode(part)); continue; }
		const open = [...old.querySelectorAll("details")].map((one) => one.open);
		const reached = (inside) => [...inside.querySelectorAll("a, summary, pre")];
		const at = reached(old).indexOf(document.activeElement);
		old.replaceWith(document.adoptNode(part));
		[...part.querySelectorAll("details")].forEach((one, n) => { one.open = open[n] ?? false; });
		if (at >= 0) reached(part)[at]?.focus({ preventScroll: true });
	}
	servedContent = "";
}

let rests = false;
let missed = false;

/** Asks for the whole page again soon, and not more often than every five seconds: each page of a run is some calls. */
function follow() {
	if (rests) { missed = true; return; }
	[rests, missed] = [true, false];
	setTimeout(refresh, 100);
	setTimeout(() => { rests = false; if (missed) follow(); }, 5000);
}

let source;

/** Listens to what the server says about the page at an address. */
function listen(address) {
	if (!address || address === source?.address) return;
	source?.close();
	const mine = source = Object.assign(new EventSource(address), { address });
	const on = (types, act) => { for (const type of types.split(" ")) mine.addEventListener(type, act); };
	on("changed", refresh);
	on("open", () => { lostAt = null; warn(""); });
	on("error", () => {
		if (mine.readyState === EventSource.CLOSED) refresh();
		else setTimeout(() => { if (mine === source && mine.readyState === EventSource.CONNECTING) warnOffline(); }, 3000);
	});
	on("parts", ({ data }) => place(JSON.parse(data)));
	on("run_start run_paused run_resumed", follow);
	on("run_end run_failed run_cancelled", () => { mine.close(); writing.text = ""; refresh(); });
	on("llm_token_usage", () => { writing.text = ""; showText(); });
	on("llm_delta", ({ data }) => {
		const { step, offset, text } = JSON.parse(data);
		if (step !== writing.step) { writing.step = step; writing.text = ""; }
		writing.text = [...writing.text].slice(0, offset).join("") + text;
		showText();
	});
}
listen(document.body.dataset.live);

/** Marks the passage of a transcript that is heard. Events of a recording do not bubble, so they are caught on their way. */
document.addEventListener("timeupdate", ({ target }) => {
	const passages = [...main().querySelectorAll("[data-at]")];
	const heard = passages.findLast((part) => part.dataset.at <= target.currentTime);
	if (heard?.hasAttribute("aria-current")) return;
	for (const part of passages) part.removeAttribute("aria-current");
	heard?.setAttribute("aria-current", "true");
	if (!target.paused) heard?.scrollIntoView({ block: "nearest" });
}, true);

/** Makes the time of each passage a button that leads to its place in the recording, if there is one; for a pointer, the whole passage does. */
function linkPassages() {
	const player = main().querySelector("video");
	for (const place of player ? main().querySelectorAll("[data-at] span.at") : []) {
		const passage = place.closest("[data-at]");
		const button = document.createElement("button");
		Object.assign(button, { type: "button", className: "at", textContent: place.textContent });
		button.setAttribute("aria-label", `Play from ${place.textContent}`);
		passage.classList.add("heard-from");
		passage.addEventListener("click", () => {
			// Whoever marks words to copy them does not want to hear them.
			if (!getSelection().isCollapsed) return;
			player.currentTime = passage.dataset.at;
			player.play().catch(() => {});
		});
		place.replaceWith(button);
	}
}

/** A page that shows how far something is asks for itself again, until it says that it need not. */
async function watch() {
	const part = main().querySelector("[data-again]");
	if (!part) return;
	await new Promise((resolve) => setTimeout(resolve, part.dataset.again * 1000));
	if (!document.hidden && !isWriting()) await refresh();
	watch();
}
watch();

dress();
setInterval(() => { showTimeLeft(); showTimes(); }, 15_000);

/** Announces a file with the page's form, and sends its bytes to the address that the answer has. */
async function send(form, file) {
	const type = file.type || "application/octet-stream";
	const fields = new URLSearchParams({ csrf: form.elements.csrf.value, filename: file.name, type, size: file.size });
	if (form.elements.public.checked) fields.set("public", "yes");
	const answer = await fetch(form.action, { method: "POST", body: fields });
	const page = parse(await answer.text());
	const address = page.querySelector("[data-address]")?.dataset.address;
	if (!address) throw new Error(page.querySelector(".problem, .field-error, h1")?.textContent);
	const stored = await fetch(address, { method: "PUT", body: file, headers: { "content-type": type } });
	if (!stored.ok) throw new Error((await stored.json()).error?.message);
}

async function sendAll(form, files) {
	const status = form.querySelector("output");
	for (const [at, file] of [...files].entries()) {
		status.textContent = `Sending ${at + 1} of ${files.length}: ${file.name}`;
		try {
			await send(form, file);
		} catch (problem) {
			status.textContent = `${file.name} is not stored. ${problem.message}`;
			return;
		}
	}
	location.reload();
}

document.addEventListener("change", ({ target }) => {
	if (target.matches("[data-upload] input[type=file]")) sendAll(target.form, target.files);
});
document.addEventListener("dragover", (event) => { if (document.querySelector("[data-upload]")) event.preventDefault(); });
document.addEventListener("drop", (event) => {
	const form = document.querySelector("[data-upload]");
	if (!form || !event.dataTransfer.files.length) return;
	event.preventDefault();
	sendAll(form, event.dataTransfer.files);
});

/** Lets a person be told in this browser, if it can. */
async function subscribe(form) {
	const button = form.querySelector("button");
	button.disabled = true;
	try {
		const worker = await navigator.serviceWorker.register(policy.createScriptURL(form.dataset.worker));
		while (!worker.active) await new Promise((resolve) => setTimeout(resolve, 50));
		const subscription = await worker.pushManager.subscribe({ userVisibleOnly: true, applicationServerKey: form.dataset.key });
		const { endpoint, keys } = subscription.toJSON();
		form.elements.url.value = endpoint;
		form.elements.p256dh.value = keys.p256dh;
		form.elements.auth.value = keys.auth;
		form.elements.name.value = navigator.userAgentData?.brands.at(-1)?.brand ?? "";
		form.submit();
	} catch {
		button.disabled = false;
		button.textContent = "This browser does not allow it: look at its settings for notifications";
	}
}

const zone = document.getElementById("zone");
if (zone && !zone.value) zone.value = zone.defaultValue = Intl.DateTimeFormat().resolvedOptions().timeZone;

let previewTimer;

// The preview shows what is typed, before it is saved.
document.addEventListener("input", ({ target }) => {
	const form = target.closest("form[data-preview]");
	if (form === null) return;
	clearTimeout(previewTimer);
	const query = new URLSearchParams([...new FormData(form)].filter(([name]) => name !== "csrf"));
	previewTimer = setTimeout(() => { document.getElementById("preview").src = `${form.dataset.preview}?${query}`; }, 250);
});

/** Says what is wrong with a text as it is typed: the page of its check has the same part. */
for (const field of document.querySelectorAll("[data-check]")) {
	let waits = 0;
	let lastRequest = 0;
	field.addEventListener("input", () => {
		clearTimeout(waits);
		waits = setTimeout(async () => {
			const request = ++lastRequest;
			const body = new URLSearchParams({ csrf: field.form.elements.csrf.value, [field.name]: field.value });
			const answer = await fetch(field.dataset.check, { method: "POST", body }).catch(() => null);
			if (!answer?.ok || request !== lastRequest) return;
			const page = parse(await answer.text());
			const fresh = page.getElementById("checked");
			if (fresh) document.getElementById("checked").replaceChildren(...document.adoptNode(fresh).childNodes);
		}, 600);
	});
}

/** Has the browser make or show a passkey, and sends what it answers. */
async function usePasskey(form) {
	const button = form.querySelector("button");
	const options = JSON.parse(form.dataset.options);
	try {
		const credential = form.dataset.passkey === "create"
			? await navigator.credentials.create({ publicKey: PublicKeyCredential.parseCreationOptionsFromJSON(options) })
			: await navigator.credentials.get({ publicKey: PublicKeyCredential.parseRequestOptionsFromJSON(options) });
		form.elements.credential.value = JSON.stringify(credential.toJSON());
		form.submit();
	} catch {
		button.textContent = "It did not work. Reload the page to try again";
	}
}

for (const form of document.querySelectorAll("[data-passkey]")) {
	if (!window.PublicKeyCredential?.parseCreationOptionsFromJSON) continue;
	form.hidden = false;
	form.querySelector("button").addEventListener("click", () => usePasskey(form));
}
