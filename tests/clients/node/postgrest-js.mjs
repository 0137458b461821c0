// The client of Supabase for PostgREST, on the tables of an app.
import { PostgrestClient } from "@supabase/postgrest-js";
import { BASE, HEADERS, V1, run } from "./checks.mjs";

// Lines to paste
const rows = new PostgrestClient(`${V1}/data`, { headers: HEADERS });
// End of the lines

const TABLES = {
  authors: {
    columns: { id: { type: "serial", primaryKey: true }, name: { type: "text", nullable: false, unique: true } },
  },
  books: {
    columns: {
      id: { type: "serial", primaryKey: true },
      author_id: { type: "integer", references: "authors.id" },
      title: { type: "text", nullable: false },
      price: { type: "integer" },
      tags: { type: "text[]" },
    },
  },
};
const owner = { Authorization: `Bearer ${process.env.CLIENT_OWNER}`, "content-type": "application/json" };
const applied = await fetch(`${V1}/schema/apply`, {
  method: "POST",
  headers: owner,
  body: JSON.stringify({ schema: { tables: TABLES } }),
});
if (!applied.ok) throw new Error(await applied.text());
const admin = new PostgrestClient(`${BASE}/v1/${process.env.CLIENT_APP}/data`, { headers: owner });

const taken = (answer) => {
  if (answer.error) throw new Error(JSON.stringify(answer.error));
  return answer.data;
};
taken(await rows.from("authors").insert([{ name: "Ursula" }, { name: "Octavia" }]));
taken(
  await rows.from("books").insert(
    [
      { author_id: 1, title: "The Dispossessed", price: 12, tags: ["utopia", "moon"] },
      { author_id: 1, title: "A Wizard, of Earthsea", price: 9, tags: ["magic"] },
      { author_id: 2, title: "Kindred", price: 15, tags: [] },
      { title: 'Say "hello"', price: null },
    ],
    { defaultToNull: false },
  ),
);

await run({
  rows: async () => {
    const books = () => rows.from("books").select("title");
    const titles = async (query) => taken(await query.order("id")).map((book) => book.title);
    const page = await rows.from("books").select("id", { count: "exact" }).order("id").range(1, 2);
    const head = await rows.from("books").select("*", { count: "exact", head: true }).gt("price", 9);
    return [
      await titles(books().eq("title", 'Say "hello"')),
      await titles(books().in("title", ["A Wizard, of Earthsea", "Kindred"])),
      await titles(books().or("price.gt.14,title.ilike.the*")),
      await titles(books().not("price", "is", null).lte("price", 9)),
      await titles(books().contains("tags", ["moon"])),
      await titles(books().overlaps("tags", ["magic", "moon"])),
      await titles(books().textSearch("title", "wizards", { type: "plain", config: "english" })),
      await titles(books().match({ author_id: 1, price: 12 })),
      [page.count, ...taken(page).map((book) => book.id)],
      [head.count],
    ];
  },
  related: async () => [
    taken(await rows.from("books").select("title,authors(name)").eq("id", 3)),
    taken(await rows.from("authors").select("name,books!inner(title)").gte("books.price", 15)),
    taken(
      await rows
        .from("authors")
        .select("books(title)")
        .eq("name", "Ursula")
        .order("title", { referencedTable: "books" })
        .limit(1, { referencedTable: "books" }),
    ),
  ],
  writes: async () => {
    const upserted = await rows
      .from("authors")
      .upsert({ name: "Ursula", id: 1 }, { onConflict: "name" })
      .select("id,name");
    const ignored = await rows
      .from("authors")
      .upsert([{ name: "Ursula" }], { onConflict: "name", ignoreDuplicates: true })
      .select();
    const updated = await rows.from("books").update({ price: 20 }).eq("title", "Kindred").select("price").single();
    const removed = await admin.from("books").delete().eq("title", 'Say "hello"').select("id");
    return [taken(upserted), taken(ignored), taken(updated), taken(removed).length];
  },
  one: async () => {
    const none = await rows.from("authors").select().eq("id", 9).maybeSingle();
    const many = await rows.from("authors").select().single();
    return [taken(none), taken(await rows.from("authors").select("name").eq("id", 2).single()), many.error.code];
  },
  csv: async () => taken(await rows.from("books").select("id,title,tags").lt("id", 3).order("id").csv()),
  rejected: async () => {
    const twice = await rows.from("authors").insert({ name: "Ursula" });
    const unknown = await rows.from("nothing").select();
    return [twice.status, twice.error, unknown.error.code, unknown.error.message];
  },
});
