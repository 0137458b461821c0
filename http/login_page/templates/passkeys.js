// Passkeys on the sign-in page: asks the browser for one and sends its answer with the form.
"use strict";
const REFUSED = "The passkey was not used. Try again, or choose another way.";

/** Fills the form in with a new passkey's answer; the page has the options for it. */
async function create(form, { options, state }) {
	const publicKey = PublicKeyCredential.parseCreationOptionsFromJSON(options);
	fill(form, state, await navigator.credentials.create({ publicKey }));
}

/** Begins a new passkey for whoever has shown a first factor and has no second one yet. */
async function enrol(form) {
	await create(form, await ask("passkeys/options", form));
}

async function get(form) {
	const { options, state } = await ask("passkeys/sign-in/options", form);
	const publicKey = PublicKeyCredential.parseRequestOptionsFromJSON(options);
	fill(form, state, await navigator.credentials.get({ publicKey }));
}

async function ask(path, form) {
	const body = JSON.stringify(form.elements.challenge ? { challenge: form.elements.challenge.value } : {});
	const headers = { "Content-Type": "application/json" };
	const response = await fetch(path, { method: "POST", headers, body, credentials: "omit" });
	const { options, state, error } = await response.json();
	if (!response.ok) throw new Error(typeof error === "string" ? error : REFUSED);
	return { options, state };
}

function fill(form, state, credential) {
	form.elements.state.value = state;
	form.elements.credential.value = JSON.stringify(credential.toJSON());
}

for (const box of document.querySelectorAll("[data-passkey]")) {
	const [form, problem] = [box.querySelector("form"), box.querySelector("[role=alert]")];
	const known = window.PublicKeyCredential && PublicKeyCredential.parseRequestOptionsFromJSON;
	box.hidden = !known || /^[\d.]+$|:/.test(location.hostname);
	form.addEventListener("submit", async (event) => {
		event.preventDefault();
		const button = form.querySelector("button");
		button.disabled = true;
		problem.hidden = true;
		try {
			if (box.dataset.options) await create(form, JSON.parse(box.dataset.options));
			else await (box.dataset.passkey === "enrol-passkey" ? enrol : get)(form);
			form.submit();
		} catch (error) {
			problem.textContent = error instanceof DOMException || error instanceof TypeError ? REFUSED : error.message;
			problem.hidden = false;
			button.disabled = false;
		}
	});
}
