// Tells customers where to write when it cannot wait. Whoever clones the desk fills in DESK_EMAIL.
export default async (req, ctx) => Response.json({ email: ctx.env.DESK_EMAIL ?? null });
