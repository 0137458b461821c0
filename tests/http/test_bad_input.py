"""Bad input to every operation, in every field: refused in the family's words, and nothing has happened."""

import itertools
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

import pytest

from baobab import tools
from baobab.storage.sql.tables import metadata
from baobab.tools.core.auth.callers import Account, EndUser
from baobab.tools.core.call import Tool
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import BaobabError
from baobab.tools.core.registry import Registry
from tests.http.installation import Answer, App, Installation
from tests.installation import reset_rate_limits
from tests.tools.access import find_domain

pytestmark = pytest.mark.asyncio(loop_scope="module")

REGISTRY = Registry(tools.toolsets())
# A page's path below `/v1` takes nothing: whatever is asked for, it sends the browser to the host of the site.
TOOLS = [tool.name for tool in REGISTRY.tools.values() if tool.rest and not (tool.rest.site or tool.rest.off_platform)]
# Postgres refuses more than SQLite does, so a tool that passes on what it should refuse is found with rows in SQLite.
# The statements of these domains differ between the two, and depend on what the caller sends.
OWN_STATEMENTS = {"data", "kv", "rag"}
ON_EACH_BACKEND = [
    name if find_domain(REGISTRY.tools[name]) in OWN_STATEMENTS else pytest.param(name, marks=pytest.mark.on_files)
    for name in TOOLS
]
_ADDRESSES = (f"10.{a}.{b}.{c}" for a, b, c in itertools.product(range(256), repeat=3))

UUID = "0b8f1d6e-5c8e-4f0e-9a54-3f0d8a7c2e11"
# What a value of each JSON type looks like.
SAMPLES: dict[str, list[Any]] = {
    "null": [None],
    "boolean": [True],
    "integer": [1, -(2**70)],
    "number": [1.5],
    "string": ["", "text"],
    "array": [[], [[]], ["text"], [None], [1, {}]],
    "object": [{}, {"": {}}, {"text": ["text"]}],
}
# Numbers that JSON does not have or that no computer can hold, alone and within what a field takes.
NO_NUMBERS = [
    text.replace("0", number)
    for number in ("NaN", "Infinity", "-Infinity", "1e999", "-1e999")
    for text in ("0", "[0]", '{"a":0}', '[{"a":[0]}]', '{"a":{"a":0}}')
]
MILLION = "x" * 10**6
# Texts of JSON values that no field takes, whatever its type.
NEVER = [
    r'"\ud800"', r'"a\udc00b"', '"\x00"', '"\n"', "NaN", "-Infinity", "Infinity", "1e400", "-1e400", "'text'", "01",
    "[" * 10_000 + "]" * 10_000, '{"a":' * 10_000 + "1" + "}" * 10_000, "undefined", "", "1,", '"\xff"',
    '"\xed\xa0\x80"',
]  # fmt: skip
# And those that only a field for any JSON value might take.
SELDOM = [r'"\u0000"', r'"a\u0000b"', r'{"\u0000":1}', f'"{MILLION}"', f"[{'1,' * 200_000}1]"]
MODELS = {"gateway", "messages", "ai", "app_messages"}
BODIES = [
    b"[]", b'[{"a":1}]', b'"text"', b"1", b"1.5", b"true", b"null", b" ", b"{", b"}", b"{}{}", b"{}x", b'{"a"}',
    b"{'a':1}", b'{"a":1,}',
    b"\x00", b"{}\x00", b"\xff\xfe{\x00}\x00", b"\xef\xbb\xbf{}", b"a=1&b=2", b"--x\r\n\r\n", b"<a/>", b"[" * 10_000,
    b'{"a":' * 10_000,
    b'{"no_such_field":1}', b'{"":1}', b'{"__proto__":{}}', b'{"\\u0000":1}', b'{"no_such_field":' + b"1" * 5000 + b"}",
    b'{"\xff":1}', b'{"a\\ud800":1}',
]  # fmt: skip
SEGMENTS = [
    "..", ".", "%2e%2e", "..%2F..%2Fetc%2Fpasswd", "%2F", "%5C", "%00", "a%00", "%", "%2", "%zz", "a%", "%FF", "%C3",
    "%ED%A0%80", "\xff",
    "%3F", "%23", "%3Fa=b", "a%23b", "%0D%0A", "%20", "'%20OR%201=1", "%F0%9F%98%80", "*", "%25", "%252e%252e",
    "null", "undefined", "-1",
    "x" * 5000, "%F0%80%80%80", "app_%00", "app_x%2F..", "{app_id}", "0" * 400, "1e400",
]  # fmt: skip
# Where nearly every text is a key or a pattern, these are none.
NO_FILE_NAMES = ["a%00b", "a%0Ab", "a%5Cb", "a%2F%2E%2E%2Fb", "a%2F%2Fb", "%20", "a" * 256, "%FF"]
NO_KEYS = ["..", ".", "%2e%2e", "%2F", "a%2F..%2Fb", "%00", "a%00", "%", "%2", "%zz", "%FF", "%C3", "%ED%A0%80",
"\xff", "%0D%0A",
           "%F0%9F%98%80", "x" * 5000, "_a", "%5Fa", "a%2F%2Fb", ""]  # fmt: skip
NO_PATTERNS = ["%00", "a%00", "%", "%2", "%zz", "%FF", "%C3", "%ED%A0%80", "\xff", "%0D%0A", "%F0%9F%98%80",
"x" * 5000, "_a", "%7B", "",
               "a***", "{user.name}"]  # fmt: skip
QUERY_TEXTS = ["%00", "a%00", "%FF", "%C3", "%ED%A0%80", "\xff", MILLION]
QUERY_NUMBERS = [
    "",
    "a",
    "1.5",
    "1e400",
    "-",
    "+1",
    "%201",
    "0x1",
    "1_0",
    "9" * 400,
    "-" + "9" * 30,
    "NaN",
    "Infinity",
    "null",
    "true",
    "%EF%BC%91",
    "[1]",
]
QUERY_BOOLEANS = ["", "yes", "TRUE", "True", "null", "on", "[]"]


@dataclass
class BadRequest:
    what: str
    target: str
    content: bytes | None = None


def json_types(schema: Mapping[str, Any]) -> set[str]:
    """The JSON types that a schema takes."""
    if "anyOf" in schema:
        return set().union(*(json_types(choice) for choice in schema["anyOf"]))
    if "enum" in schema or "const" in schema:
        return {_json_type(value) for value in schema.get("enum", [schema.get("const")])}
    type_name = schema.get("type")
    return set(SAMPLES) if type_name is None else {type_name, "integer"} if type_name == "number" else {type_name}


def _json_type(value: object) -> str:
    return {str: "string", bool: "boolean", int: "integer", type(None): "null"}[type(value)]


@dataclass
class Scene:
    """The objects that a well-formed request names."""

    app: App
    organization: str
    account: str
    token: dict[str, str]

    def fill_path(self, tool: Tool, **instead: str) -> str:
        assert tool.rest is not None
        known_parts = {
            "app_id": self.app.id,
            "organization_id": self.organization,
            "account_id": self.account,
            "key": "k",
            "pattern": "p",
            "token": "inv_nothing",
            "table": "things",
        }
        path = tool.rest.path
        for name in tool.rest.path_parameters:
            text = instead.get(name, known_parts.get(name, UUID))
            path = path.replace(f"{{{name}:path}}", text).replace(f"{{{name}}}", text)
        return path


def build_body(tool: Tool) -> dict[str, Any]:
    assert tool.rest is not None
    if tool.rest.whole_body is not None:
        whole: dict[str, Any] = tool.examples[tool.rest.whole_body]
        return whole
    fields = {name: tool.examples[name] for name in tool.rest.body_parameters if name in tool.examples}
    return {"role": "member"} | fields if "role" in tool.rest.body_parameters else fields


def bad_paths(tool: Tool, scene: Scene) -> Iterator[BadRequest]:
    assert tool.rest is not None
    body = json.dumps(build_body(tool)).encode() if takes_body(tool) else None
    for name in tool.rest.path_parameters:
        keys = NO_FILE_NAMES if tool.toolset.name == "files" else NO_KEYS
        texts = {"key": keys, "pattern": NO_PATTERNS}.get(name, SEGMENTS)
        if tool.name in ("agents_validate", "triggers_set") and name == "name":
            # Nothing of this name need exist, so what could be a name is one.
            texts = [text for text in texts if not text.isalnum()]
        if tool.name == "agents_users_erase" and name == "user_id":
            # Apps name their users as they like.
            texts = [text for text in texts if text not in ("null", "undefined", "-1", "1e400")]
        for text in texts:
            yield BadRequest(f"path {name} {text[:30]}", scene.fill_path(tool, **{name: text}), body)


def bad_queries(tool: Tool, scene: Scene) -> Iterator[BadRequest]:
    assert tool.rest is not None
    path, body = scene.fill_path(tool), json.dumps(build_body(tool)).encode() if takes_body(tool) else None
    queries = [
        "no_such_parameter=1",
        "=1",
        "%00=1",
        "%FF=1",
        "a" * 10**5,
        *(["app_id=app_other000000"] if "app_id" not in tool.rest.query_parameters else []),
        "&".join(["x=1"] * 201),
    ]
    for name in tool.rest.query_parameters:
        types = json_types(tool.input_schema["properties"][name])
        texts = [*QUERY_TEXTS]
        if not types & {"string", "array"}:
            texts += QUERY_NUMBERS if types & {"integer", "number"} else QUERY_BOOLEANS
        queries += [f"{name}={text}" for text in texts]
        queries += [
            f"{name}=1&{name}=1",
            f"{name}=true&%{ord(name[0]):x}{name[1:]}=true",
            f"{name.upper()}=1",
            f"{name}[]=1",
        ]
    for query in queries:
        yield BadRequest(f"query {query[:40]}", f"{path}?{query}", body)


def bad_bodies(tool: Tool, scene: Scene) -> Iterator[BadRequest]:  # noqa: PLR0912
    assert tool.rest is not None
    if not takes_body(tool):
        return
    path, good = scene.fill_path(tool), build_body(tool)
    for content in BODIES:
        if (tool.name, content) not in GOOD_BODIES:
            yield BadRequest(f"body {content[:30]!r}", path, content)
    for name in (*tool.rest.path_parameters, *tool.rest.query_parameters):
        yield BadRequest(f"path parameter {name} in the body", path, json.dumps({**good, name: scene.app.id}).encode())
    if tool.rest.whole_body is not None:
        types = json_types(tool.input_schema["properties"][tool.rest.whole_body])
        wrong = [json.dumps(value) for kind, values in SAMPLES.items() if kind not in types for value in values]
        for text in filter(None, [*wrong, *NEVER, *SELDOM, *NO_NUMBERS]):
            yield BadRequest(f"body {text[:30]}", path, text.encode("latin-1"))
        if isinstance(good, dict):
            for name, text in itertools.product([*good, "no_such_field"], NO_NUMBERS):
                yield BadRequest(f"{name} = {text} in the body", path, _write_object(good, name, text))
        return
    required_names = tool.input_schema.get("required", ())
    for name in tool.rest.body_parameters:
        rest = {field: value for field, value in good.items() if field != name}
        if name in required_names:
            yield BadRequest(f"{name} missing", path, json.dumps(rest).encode())
        field = tool.input_schema["properties"][name]
        info = next(i for n, i in tool.arguments.model_fields.items() if name in {n, i.alias})
        types = json_types(field)
        nullable = "null" in types or not info.is_required()
        wrong = [json.dumps(value) for kind, values in SAMPLES.items() if kind not in types for value in values]
        if nullable:
            wrong = [text for text in wrong if text != "null"]
        # They are refused before anybody knows which field they are for.
        texts = [*wrong, *(NEVER if name == tool.rest.body_parameters[0] else [])]
        if types & {"number", "array", "object"}:
            texts += NO_NUMBERS
        if types != set(SAMPLES):
            texts += [*SELDOM, "1" + "0" * 400]
        elif name in {"value", "expected", "next"}:
            texts += [*SELDOM, "[1e400]"]
        if tool.toolset.name in MODELS and name in {"input", "system"}:
            # What is said to a model may hold NUL.
            texts = [text for text in texts if not text.startswith('"') or "u0000" not in text]
        if (tool.name, name) in LONG_TEXTS:
            # A file or a document may be as long as that.
            texts = [text for text in texts if MILLION not in text]
        for text in texts:
            yield BadRequest(f"{name} = {text[:30]}", path, _write_object(rest, name, text))


def _write_object(members: Mapping[str, Any], name: str, text: str) -> bytes:
    """A JSON object in which one member has a text for its value, whether or not that is JSON."""
    other_members = (f"{json.dumps(key)}:{json.dumps(value)}" for key, value in members.items() if key != name)
    return ("{" + ",".join([*other_members, f"{json.dumps(name)}:{text}"]) + "}").encode("latin-1")


# A list without rows inserts none, as in PostgREST. What a provider sends may have fields that are not known.
GOOD_BODIES = {
    ("data_insert", b"[]"),
    *(("people_email_callback", body) for body in (b'{"no_such_field":1}', b'{"":1}', b'{"__proto__":{}}')),
}
LONG_TEXTS = {
    ("files_put", "content"),
    ("files_write_named", "content_base64"),
    ("rag_ingest", "text"),
    ("rag_documents_replace", "text"),
}
SAID_AS_ERROR = {"KvError", "MoveError", "AgentsError", "PeopleError"}
"""Families whose `error` is the code."""
FLAT = {"MediaError", "AuthError"}
"""Families whose `error` is the message."""


def takes_body(tool: Tool) -> bool:
    return tool.rest is not None and tool.rest.method in {"POST", "PUT", "PATCH"} and tool.rest.raw_body is None


def find_fault(tool: Tool, answer: Answer, in_path: bool) -> str | None:  # noqa: PLR0911 - one for each fault
    """Returns what is wrong with a refusal; None for a good one."""
    if tool.rest is not None and tool.rest.form and answer.status == 302 and b"status=error" in answer.content:
        # A browser that comes back with nonsense is sent on, and its app is told.
        return None
    if not 400 <= answer.status < 500:
        return f"status {answer.status}"
    # 426: a WebSocket is looked at when it is one. Some have a status of their own for it.
    own = {kind.status for kind in tool.raises if kind.code == "validation_error"}
    # What is wrong with a signed address is that it is not the one that was signed.
    own |= {kind.status for kind in tool.access.raises if kind.code == "FILE_URL_INVALID"}
    # The query and the body of a call are the function's business: what is said of it is that there is none.
    is_passed_on = tool.rest is not None and (tool.rest.verbatim or tool.name == "functions_invoke")
    if answer.status not in {400, 413, 426, *own} and not in_path and not is_passed_on:
        return f"was not looked at: {answer.status}"
    if answer.headers.get("content-type") != "application/json":
        return "is no JSON"
    family, body = tool.toolset.envelope.name, answer.json
    error = body["error"] if isinstance(body["error"], dict) else body
    code = error.get("error" if family in SAID_AS_ERROR else "code")
    fields = (code, error.get("message" if family not in FLAT else "error"), error.get("remediation"))
    if not all(isinstance(text, str) and text for text in fields):
        return f"lacks a code, a message or a remedy: {body}"
    if len(answer.content) > 3000:
        return "repeats what it was sent"
    return None


# As one text: to build a hundred statements takes longer than to send the bad requests.
COUNT_ROWS = " UNION ALL ".join(
    f"SELECT '{name}', count(*) FROM {name}"  # noqa: S608
    for name in metadata.tables
    if name not in {"audit_logs", "failures", "notices"}
)


async def count_rows(world: Installation) -> dict[str, int]:
    """How many rows each table has, and what the key-value store holds."""
    await world.application.services.audit_log.flush()
    async with world.application.services.database.reading() as connection:
        result = await connection.exec_driver_sql(COUNT_ROWS)
        counts: dict[str, int] = {row[0]: row[1] for row in result}
        rows = (await connection.exec_driver_sql("SELECT id, updated_at FROM apps")).all()
    for row in rows:
        app_id, updated_at = row.id, row.updated_at
        counts[f"{app_id} {updated_at}"] = 1
        usage = await world.application.services.regions["local"].kv.usage(app_id)
        counts[f"kv {app_id}"] = usage.keys * 10**9 + usage.bytes
    return counts


@pytest.fixture(scope="module")
def scenes() -> dict[str, Scene]:
    return {}


async def build_scene(world: Installation, app: App, scenes: dict[str, Scene]) -> Scene:
    if not scenes:
        me = (await world.ask("GET", "/platform/me", world.owner)).json
        account, home = me["user"]["id"], me["organizations"][0]["id"]
        team = (
            await world.ask(
                "POST", "/v1/organizations", token := await world.create_token(account, home), {"name": "T"}
            )
        ).json
        await world.put(app, "k", 1)
        await world.expose(app, ("p", "public", "deny"))
        columns = {"id": {"type": "uuid", "primaryKey": True}, "title": "text", "status": "text"}
        schema = {"tables": {"things": {"columns": columns}}}
        await world.ask("POST", f"/v1/{app.id}/schema/apply", world.owner, {"schema": schema})
        scenes["one"] = Scene(app, team["id"], account, token)
    return scenes["one"]


@pytest.mark.parametrize("name", ON_EACH_BACKEND)
async def test_bad_input_is_refused_and_changes_nothing(
    world: Installation, app: App, scenes: dict[str, Scene], name: str
) -> None:
    tool, scene = world.application.registry.tools[name], await build_scene(world, app, scenes)
    assert tool.rest is not None
    wants_token = not getattr(tool.access, "keys", True)
    home = (await world.ask("GET", "/platform/me", world.owner)).json["organizations"][0]["id"]
    organization_id = scene.organization if "organization_id" in tool.rest.path_parameters else home
    of_user = tool.access.admits(EndUser(app.id, UUID)) and not tool.access.admits(Account(UUID, UUID))
    caller = (
        await world.user_headers(app, UUID)
        if of_user
        else scene.token
        if wants_token
        else await world.create_key(scene.token, organization_id=organization_id)
    )
    before = await count_rows(world)
    faults = []
    for sending in itertools.chain(bad_paths(tool, scene), bad_queries(tool, scene), bad_bodies(tool, scene)):
        # How often it may be asked is not what this is about.
        reset_rate_limits(world.application.services)
        answer = await world.ask(
            tool.rest.method, sending.target, caller, content=sending.content, address=next(_ADDRESSES)
        )
        fault = find_fault(tool, answer, sending.what.startswith("path "))
        if fault:
            faults.append(f"{sending.what}: {fault} {answer.content[:150]!r}")
    assert not faults, "\n".join(faults)
    assert await count_rows(world) == before


def nest_list(depth: int) -> list[Any]:
    value: list[Any] = []
    for _ in range(depth):
        value = [value]
    return value


CYCLE: list[Any] = []
CYCLE.append(CYCLE)


@pytest.mark.parametrize(
    "value",
    [
        float("nan"), [float("inf")], {"a": -float("inf")}, "\ud800", {"\udfff": 1}, "\x00", {"a\x00": 1},
        nest_list(100_000), CYCLE,
        object(), b"\xff", {b"\xff": 1}, lambda: None,
    ],
    ids=lambda value: type(value).__name__,
)  # fmt: skip
async def test_what_json_cannot_say_is_refused_behind_the_routes_too(world: Installation, app: App, value: Any) -> None:
    registry = world.application.registry
    caller = await world.application.services.credentials.caller(world.owner["authorization"].encode())
    before = await count_rows(world)
    for name, arguments in [
        ("kv_put", {"key": "a", "value": value}),
        ("kv_setnx", {"key": "a", "value": value}),
        ("kv_cas", {"key": "a", "expected": None, "next": value}),
        ("kv_cas", {"key": "a", "expected": value, "next": None}),
        ("kv_put", {"key": value, "value": 1}),
        ("kv_get", {"key": value}),
        ("kv_scan", {"prefix": value}),
        ("kv_expose", {"pattern": value, "read": "public", "write": "public"}),
        ("kv_expose", {"pattern": "a", "read": value, "write": "public"}),
    ]:
        with pytest.raises(BaobabError) as refusal:
            await registry.call(name, {"app_id": app.id, **arguments}, caller, RequestContext("test", "req_1"))
        assert refusal.value.status in {400, 413}, name
    batch = await registry.call(
        "kv_batch",
        {"app_id": app.id, "ops": [value, {"op": "set", "key": "a", "value": value}, {"op": value}]},
        caller,
        RequestContext("test", "req_1"),
    )
    assert all("error" in result for result in batch["results"])
    assert await count_rows(world) == before
