"""The declarations of `ctx` have exactly the members that a function gets, as deno's own checker of types sees them."""

import json
import subprocess
from pathlib import Path

import pytest

from baobab.cli.client.function_types import read_declarations, render_tables
from baobab.runtime.functions.launching import find_deno
from baobab.tools.data.values.column_types import NAMES
from baobab.tools.functions.members import MEMBERS
from tests.runtime.functions.sandboxes import Sandbox

_TABLES = {
    "tables": {
        "orders": {
            "columns": {
                "id": {"type": "uuid", "primaryKey": True, "nullable": True},
                "total": {"type": "numeric(10,2)", "nullable": False},
                "pieces": {"type": "integer", "nullable": True},
                "tags": {"type": "text[]", "nullable": False},
                "state": {"type": "text", "nullable": False, "enum": ["open", "paid"]},
                "a-b": "jsonb",
            }
        }
    }
}
_USE = """
export default async (req: Request, ctx: Ctx): Promise<Response> => {
  const { rows } = await ctx.db.query<Tables["orders"]>("select * from orders where state = $1", ["open"]);
  const states: ("open" | "paid")[] = rows.map((row) => row.state);
  const total: string | undefined = rows[0]?.total;
  const pieces: number | null | undefined = rows[0]?.pieces;
  const count = await ctx.step("count", () => ctx.kv.incr("orders", { by: 2 }));
  await ctx.storage.put("a.txt", new TextEncoder().encode("a"), { contentType: "text/plain" });
  const first: { name: string } | null = await ctx.kv.get<{ name: string }>("first");
  ctx.waitUntil(ctx.ai.chat({ messages: [] }));
  const answer = await ctx.invoke("other", { count });
  await ctx.db.asUser("u", (db) => db.query("select 1"));
  return Response.json({ states, total, pieces, count, first, user: ctx.user?.id, answer: await answer.json() });
};
"""


def check_types(folder: Path, source: str) -> str:
    """What deno says of the types of a source beside the declarations, without a network; nothing if all is well."""
    (folder / "baobab.d.ts").write_text(read_declarations() + render_tables(_TABLES))
    (folder / "function.ts").write_text(f'/// <reference path="./baobab.d.ts" />\n{source}')
    process = subprocess.run(
        [find_deno(), "check", "--no-remote", "--no-npm", "--no-config", "--no-lock", "function.ts"],
        cwd=folder,
        env={"DENO_DIR": str(folder / "deno"), "DENO_NO_UPDATE_CHECK": "1", "NO_COLOR": "1"},
        capture_output=True,
        text=True,
        check=False,
    )
    return "" if process.returncode == 0 else process.stderr


async def list_members(sandbox: Sandbox) -> dict[str, list[str]]:
    """The names of what `ctx` has in a sandbox, by the group that they are in."""
    groups = "['', 'db', 'kv', 'storage', 'ai', 'integrations', 'idempotency', 'substrate']"
    expression = f"Object.fromEntries({groups}.map((name) => [name, Object.keys(name ? ctx[name] : ctx)]))"
    app = {"id": "app1", "name": "shop", "substrateOrganizationId": "org1"}
    members: dict[str, list[str]] = (await sandbox.evaluate(expression, context={"app": app}))["value"]
    return members


async def test_the_declarations_have_each_member_of_ctx_and_no_other(sandbox: Sandbox, tmp_path: Path) -> None:
    members = await list_members(sandbox)
    # A proxy, whose verbs the server knows.
    members["ai"].remove("meetings")
    ai_type = 'Omit<Ctx["ai"], "meetings">'
    types = {"": "Ctx", "ai": ai_type, "substrate": "CtxSubstrate"}
    lines = []
    for number, (group, names) in enumerate(members.items()):
        kind = types.get(group, f'Ctx["{group}"]')
        # What is missing here, and what is too much, are both errors.
        lines.append(f"const c{number}: Record<keyof {kind}, true> = {json.dumps(dict.fromkeys(names, True))};")
    assert check_types(tmp_path, "\n".join([*lines, "export {};"])) == ""


async def test_each_member_that_the_runner_calls_is_one_that_the_server_has(sandbox: Sandbox) -> None:
    members = await list_members(sandbox)
    grouped_names = {f"{group}.{name}" for group in ("kv", "storage", "substrate") for name in members[group]}
    assert grouped_names <= set(MEMBERS)


def test_the_verbs_of_meetings_are_those_that_the_server_knows(tmp_path: Path) -> None:
    from baobab.tools.functions.members import _MEETINGS

    verbs = json.dumps(dict.fromkeys(_MEETINGS, True))
    assert check_types(tmp_path, f"const v: Record<keyof CtxMeetings, true> = {verbs}; export {{}};") == ""


def test_a_function_that_uses_much_of_it_has_the_types_that_it_believes_in(tmp_path: Path) -> None:
    assert check_types(tmp_path, _USE) == ""


@pytest.mark.parametrize(
    "mistake",
    ["ctx.kv.gett('a')", "ctx.kv.incr(1)", "ctx.user.id", "ctx.idempotency.claim('a', {ttl: 1})", "ctx.invoke()"],
)
def test_a_mistake_is_found_before_it_is_deployed(tmp_path: Path, mistake: str) -> None:
    assert "TS" in check_types(tmp_path, f"export default (req: Request, ctx: Ctx) => {mistake};")


def test_every_type_of_a_column_has_one_here() -> None:
    sizes = {"vector": "vector(3)"}
    columns = {name: {"type": sizes.get(name, name), "nullable": False} for name in NAMES}
    text = render_tables({"tables": {"all": {"columns": columns}}})
    unknown_columns = [line.split(":")[0].strip() for line in text.splitlines() if "unknown" in line]
    assert unknown_columns == ["json", "jsonb"]
