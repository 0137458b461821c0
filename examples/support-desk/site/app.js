// Everything is asked of the app's own host: /auth, /data and so on, without the app's id.
let token = "";
let customer = "";

async function ask(method, path, body) {
  const headers = { "content-type": "application/json" };
  if (token) headers.authorization = `Bearer ${token}`;
  const answer = await fetch(path, { method, headers, body: body && JSON.stringify(body) });
  if (!answer.ok) throw new Error((await answer.json()).error?.message ?? answer.statusText);
  return answer.json();
}

async function showTickets() {
  const list = document.querySelector("#tickets");
  list.replaceChildren(
    ...(await ask("GET", "/data/tickets?order=id")).map((ticket) => {
      const line = document.createElement("li");
      line.textContent = `${ticket.text} (${ticket.status}, refunded: ${ticket.refunded})`;
      return line;
    }),
  );
}

document.querySelector("#sign-in").addEventListener("submit", async (event) => {
  event.preventDefault();
  const fields = Object.fromEntries(new FormData(event.target));
  const session = await ask("POST", "/auth/login", fields);
  token = session.access_token;
  customer = session.user.id;
  event.target.hidden = true;
  document.querySelector("#ticket").hidden = false;
  await showTickets();
});

document.querySelector("#ticket").addEventListener("submit", async (event) => {
  event.preventDefault();
  await ask("POST", "/data/tickets", { customer, topic: "returns", text: new FormData(event.target).get("text") });
  event.target.reset();
  await showTickets();
});
