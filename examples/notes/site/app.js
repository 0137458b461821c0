import { ask, button, onSubmit, run, say, show, signIn, user } from "./api.js";

const DOCUMENTS = "/rag/collections/notes";

// A policy shows each user their own notes, and those that are shared.
async function showNotes() {
  const notes = await ask("GET", "/data/notes?order=created_at.desc");
  const own = notes.filter((note) => note.owner === user().id);
  show(
    "#notes",
    own,
    (note) => [
      `${note.title}: ${note.text}`,
      note.shared ? " (shared)" : button(`Ask to share ${note.title}`, () => share(note)),
      button(`Delete ${note.title}`, () => remove(note)),
    ],
    "None yet.",
  );
  show("#shared", notes.filter((note) => !own.includes(note)), (note) => [`${note.title}: ${note.text}`], "None yet.");
}

async function share(note) {
  const state = await run("share", { note: note.id }, () => say("The team was asked. You can close this page."));
  say(state.status === "completed" ? "Everybody can read it now." : "The team did not share it.");
  await showNotes();
}

async function remove(note) {
  await ask("DELETE", `/data/notes?id=eq.${note.id}`);
  await ask("DELETE", `${DOCUMENTS}/documents/${note.id}`);
  say("It is deleted.");
  await showNotes();
}

onSubmit("#note", async ({ title, text }, event) => {
  // A note is a row, to list it, and a document, to find it by what it means. Both have the document's id.
  const document = { text: `# ${title}\n\n${text}`, filename: title };
  const { documentId: id } = await ask("POST", `${DOCUMENTS}/ingest`, document);
  try {
    await ask("POST", "/data/notes", { id, title, text });
  } catch (error) {
    throw error.status === 409 ? new Error("You have this note already.") : error;
  }
  event.target.reset();
  say("It is saved, and can be found in a moment.");
  await showNotes();
});

onSubmit("#search", async ({ query }) => {
  const { chunks } = await ask("POST", `${DOCUMENTS}/query`, { query, topK: 5 });
  show("#passages", chunks, (chunk) => [chunk.text], "Nothing about this.");
});

signIn(showNotes);
