import { ask, attempt, button, choose, find, onSubmit, run, say, show, signIn } from "./api.js";

// A policy shows each customer their own tickets, so the page asks for all of them.
async function showTickets() {
  const tickets = await ask("GET", "/data/tickets?order=id");
  show(
    "#tickets",
    tickets,
    (ticket) =>
      ticket.refunded
        ? [`${ticket.text} (refunded: ${ticket.refunded})`]
        : [`${ticket.text} (${ticket.status})`, button(`Ask for a refund of ticket ${ticket.id}`, () => refund(ticket))],
    "None yet.",
  );
}

async function refund(ticket) {
  const state = await run("desk", { ticket: String(ticket.id) }, () => say("The desk was asked. You can close this page."));
  say(state.status === "completed" ? `Refunded: ${state.output.refunded}` : "The desk did not refund it.");
  await showTickets();
}

onSubmit("#ticket", async (fields, event) => {
  await ask("POST", "/data/tickets", fields);
  event.target.reset();
  say("We have your question.");
  await showTickets();
});

onSubmit("#search", async ({ query }) => {
  const { chunks } = await ask("POST", "/rag/collections/handbook/query", { query, topK: 3 });
  show("#passages", chunks, (chunk) => [chunk.text], "Nothing about this.");
});

signIn(async () => {
  choose("#topics", await ask("GET", "/data/topics?order=title"), "slug");
  await showTickets();
  // The desk works without the function, too.
  await attempt(async () => {
    const { email } = await ask("GET", "/fn/contact");
    if (email) find("#contact").textContent = `If it cannot wait, write to ${email}.`;
  });
});
