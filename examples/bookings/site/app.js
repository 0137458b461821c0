import { ask, button, choose, onSubmit, run, say, show, signIn } from "./api.js";

// A policy shows each guest their own bookings. Nobody sees who has the others.
async function showBookings() {
  const bookings = await ask("GET", "/data/bookings?select=id,day,hour,note,rooms(title)&order=day,hour");
  show(
    "#bookings",
    bookings,
    (booking) => {
      const when = `${booking.day}, ${booking.hour} o'clock`;
      return [`${booking.rooms.title}, ${when} ${booking.note}`, button(`Ask to cancel ${when}`, () => cancel(booking))];
    },
    "None yet.",
  );
}

async function cancel(booking) {
  const input = { booking: booking.id, reason: "The guest does not need it." };
  const state = await run("cancel", input, () => say("The house was asked. You can close this page."));
  say(state.status === "completed" ? "It is cancelled." : "The house did not cancel it.");
  await showBookings();
}

onSubmit("#booking", async (fields, event) => {
  try {
    await ask("POST", "/data/bookings", { ...fields, hour: Number(fields.hour) });
  } catch (error) {
    // The index of room, day and hour is unique: of two guests at once, one gets the hour.
    throw error.status === 409 ? new Error("Somebody else has the room at this hour.") : error;
  }
  event.target.reset();
  say("It is booked.");
  await showBookings();
});

onSubmit("#search", async ({ query }) => {
  const { chunks } = await ask("POST", "/rag/collections/house-rules/query", { query, topK: 3 });
  show("#passages", chunks, (chunk) => [chunk.text], "Nothing about this.");
});

signIn(async () => {
  choose("#rooms", await ask("GET", "/data/rooms?order=title"), "slug");
  await showBookings();
});
