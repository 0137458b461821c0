"""The registry: what it refuses to register, and the one way in, step by step."""

import dataclasses
import json
import re
from pathlib import Path
from typing import Annotated, Any, Unpack

import pytest
from pydantic import AnyUrl, Field, ValidationError
from sqlalchemy import insert, select
from typing_extensions import TypedDict

from baobab.storage.sql.databases import database_at
from baobab.tools import toolsets
from baobab.tools.core.audit import audit_logs
from baobab.tools.core.auth.access import EVERYBODY
from baobab.tools.core.auth.callers import Account, AppKey, EndUser
from baobab.tools.core.auth.credentials import ANONYMOUS
from baobab.tools.core.binding import Audit, RegistrationError
from baobab.tools.core.call import Call
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import (
    AppNotFound,
    BadRequest,
    Conflict,
    Forbidden,
    InvalidType,
    MissingField,
    RateLimited,
    ToolNotFound,
    Unauthenticated,
    UnknownField,
)
from baobab.tools.core.guard.wording import render_fields
from baobab.tools.core.limits.limits import PerAddress
from baobab.tools.core.registry import Registry
from baobab.tools.core.secret import NotSecret, Secret
from baobab.tools.core.toolset import Guard, Rest, Toolset
from baobab.tools.core.types import OMITTED, Text
from baobab.tools.suggestions.tables import table as suggestions
from tests.backends import database_url
from tests.conftest import Baobab

pytestmark = pytest.mark.own_installation

ROOT = Path(__file__).parents[3]
Word = Annotated[str, Text(20)]
CONTEXT = RequestContext("test", "req-1", ip="192.0.2.1")


class Done(TypedDict):
    word: str


def build_toolset(name: str = "shelf", **settings: Any) -> Toolset:
    return Toolset(name, "A shelf.", base="/v1/shelf", **settings)


def register_handler(shelf: Any, handler: Any) -> Any:
    shelf.tool("GET /", **READ)(handler)
    return Registry([shelf])


# -- Registration ------------------------------------------------------------------------------------------------------


async def shelf_read(call: Call, word: Word) -> Done:
    """Read a word."""
    return {"word": word}


async def shelf_undocumented(call: Call, word: Word) -> Done:
    return {"word": word}


async def shelf_unbounded(call: Call, word: str) -> Done:
    """Read a word of any length."""
    return {"word": word}


async def shelf_unbounded_list(call: Call, words: list[Word]) -> Done:
    """Read as many words as anybody likes."""
    return {"word": words[0]}


async def shelf_unbounded_address(call: Call, words: AnyUrl) -> Done:
    """Read an address of any length."""
    return {"word": str(words)}


async def shelf_unbounded_inside(call: Call, words: Annotated[list[dict[str, str]], Field(max_length=2)]) -> Done:
    """Read words that are hidden in a list."""
    return {"word": words[0]["a"]}


async def shelf_untyped(call: Call, word: str) -> Done:
    """Read a word without a type."""
    return {"word": word}


del shelf_untyped.__annotations__["word"]


async def shelf_returns_something(call: Call, word: Word) -> None:
    """Read a word and answer who knows what."""


del shelf_returns_something.__annotations__["return"]


async def shelf_without_call(word: Word) -> Done:
    """Read a word."""
    return {"word": word}


def shelf_blocking(call: Call, word: Word) -> Done:
    """Read a word and let everybody wait."""
    return {"word": word}


async def shelf_describes_another(call: Call, word: Word) -> Done:
    """Read a word.

    words: the words to read.
    """
    return {"word": word}


async def Shelf_Read(call: Call, word: Word) -> Done:  # noqa: N802 - a name that no tool may have
    """Read a word."""
    return {"word": word}


class Shelving(TypedDict):
    """Parameters that several tools of the shelf share."""

    row: Annotated[int, Field(default=1, ge=1, description="The row of the shelf.")]
    word: Annotated[Word, Field(description="The word.")]


async def shelf_put(call: Call, book: Word, **shelving: Unpack[Shelving]) -> dict[Word, Any]:
    """Put a book where it belongs.

    word: what stands on its back.
    """
    return {"book": book, **shelving}


async def shelf_drop(call: Call, word: Word, **shelving: Any) -> Done:
    """Drop a word."""
    return {"word": word}


shelf_drop.__annotations__["shelving"] = Unpack[Shelving]


async def shelf_lend(call: Call, word: Word, **shelving: str) -> Done:
    """Lend a word."""
    return {"word": word}


class Lock(TypedDict):
    masterKey: Word


async def shelf_secret(call: Call, api_key: Word | None = None) -> Done:
    """Read a word."""
    return {"word": api_key or ""}


async def shelf_secret_inside(call: Call, locks: Annotated[list[Lock], Field(max_length=2)]) -> Done:
    """Read a word."""
    return {"word": locks[0]["masterKey"]}


READ: dict[str, Any] = {"access": EVERYBODY, "effect": "read"}


@pytest.mark.parametrize(
    ("handler", "route", "options", "complaint"),
    [
        (shelf_undocumented, "GET /", {}, "docstring"),
        (shelf_untyped, "GET /", {}, "word has no type"),
        (shelf_returns_something, "GET /", {}, "say what it returns"),
        (shelf_without_call, "GET /", {}, "takes `call` first"),
        (shelf_blocking, "GET /", {}, "async def"),
        (shelf_describes_another, "GET /", {}, "describes words"),
        (shelf_drop, "GET /", {}, "word is a parameter and a field of `\\*\\*shelving`"),
        (shelf_lend, "GET /", {}, "`\\*\\*shelving` is `Any`"),
        (shelf_secret, "GET /", {}, "api_key is called like a secret"),
        (shelf_secret_inside, "GET /", {}, "locks.masterKey is called like a secret"),
        (shelf_read, "GET /", {"guard": Guard(widens={"title": bool})}, "`widens` names title"),
        (Shelf_Read, "GET /", {}, "lower case"),
        (shelf_read, "FETCH /", {}, "is not `METHOD /path`"),
        (shelf_read, "GET shelf", {}, "is not `METHOD /path`"),
        (shelf_read, "GET /{title}", {}, "title is in the route but not in the signature"),
        (shelf_read, "POST /", {"rest": Rest(query=("title",))}, "title is in the route but not in the signature"),
        (shelf_read, "GET /", {"rest": Rest(status=lambda result: 200)}, "name the statuses"),
        (shelf_read, "GET /", {"audit": Audit("shelf.read")}, "reads are not audited"),
    ],
)
def test_a_tool_that_is_not_declared_as_it_must_be_is_refused_at_once(
    handler: Any, route: Any, options: Any, complaint: Any
) -> None:
    shelf = build_toolset()
    with pytest.raises(RegistrationError, match=complaint) as refusal:
        shelf.tool(route, **READ, **options)(handler)
    assert handler.__name__ in str(refusal.value)
    assert shelf.tools == {}


def test_the_fields_of_a_shared_group_are_parameters_like_the_others() -> None:
    shelf = build_toolset()
    shelf.tool("PUT /{row}", **READ)(shelf_put)
    tool = shelf.tools["shelf_put"]
    assert tool.input_schema["properties"] == {
        "book": {"type": "string", "maxLength": 20},
        "row": {"type": "integer", "minimum": 1, "default": 1, "description": "The row of the shelf."},
        "word": {"type": "string", "maxLength": 20, "description": "what stands on its back."},
    }
    assert tool.input_schema["required"] == ["book", "word"]
    assert tool.validate({"book": "Emma", "word": "Emma"}) == {"book": "Emma", "row": 1, "word": "Emma"}
    with pytest.raises(ValidationError):
        tool.validate({"book": "Emma", "word": "Emma", "column": 2})


@pytest.mark.parametrize(
    "handler", [shelf_unbounded, shelf_unbounded_list, shelf_unbounded_address, shelf_unbounded_inside]
)
def test_an_argument_without_a_bound_is_refused_before_anybody_can_call_the_tool(handler: Any) -> None:
    shelf = build_toolset()
    with pytest.raises(RegistrationError, match="has no bound"):
        register_handler(shelf, handler).prepare()


def test_two_tools_of_one_name_in_one_toolset_are_refused() -> None:
    shelf = build_toolset()
    shelf.tool("GET /", **READ)(shelf_read)
    with pytest.raises(RegistrationError, match="has a tool of this name already"):
        shelf.tool("GET /again", **READ)(shelf_read)


def test_two_tools_of_one_name_in_two_toolsets_are_refused() -> None:
    one, other = build_toolset(), Toolset("rack", "A rack.", base="/v1/rack")
    one.tool("GET /", **READ)(shelf_read)
    other.tool("GET /", **READ)(shelf_read)
    with pytest.raises(RegistrationError, match="two toolsets"):
        Registry([one, other])


@pytest.mark.parametrize(("first", "second"), [("GET /{word}", "GET /{word}"), ("GET /{word}", "GET /{name}")])
def test_two_tools_on_one_route_are_refused_whatever_their_parameters_are_called(first: Any, second: Any) -> None:
    async def shelf_other(call: Call, word: Word = "", name: Word = "") -> Done:
        """Read another word."""
        return {"word": word or name}

    shelf = build_toolset()
    shelf.tool(first, **READ)(shelf_read)
    shelf.tool(second, **READ)(shelf_other)
    with pytest.raises(RegistrationError, match="has the route"):
        Registry([shelf])


def test_every_tool_can_be_described(baobab: Baobab) -> None:
    baobab.application.registry.prepare()


@pytest.mark.parametrize(
    ("effect", "action"),
    [("read", None), ("write", "update"), ("destructive", "delete"), ("external", "invoke")],
)
def test_what_is_written_down_follows_from_the_effect(effect: Any, action: Any) -> None:
    shelf = build_toolset()
    shelf.tool("POST /", access=EVERYBODY, effect=effect)(shelf_read)
    audit = shelf.tools["shelf_read"].audit
    assert (audit and audit.action) == action
    assert audit is None or audit.event == "shelf.read"


@pytest.mark.parametrize("effect", ["read", "write", "destructive", "external"])
async def test_clients_of_mcp_are_told_the_effect_of_every_tool(baobab: Baobab, effect: Any) -> None:
    headers = {**baobab.owner, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/list"}
    answer = await baobab.client.post("/mcp?toolsets=all", json=body, headers=headers)
    text = answer.text.partition("data: ")[2] or answer.text
    hints = {"read": "readOnlyHint", "destructive": "destructiveHint", "external": "openWorldHint"}
    for listed_tool in json.loads(text)["result"]["tools"]:
        tool = baobab.application.registry.tools[listed_tool["name"]]
        annotations = listed_tool["annotations"]
        if tool.effect == effect:
            hint_values = {hint: annotations.get(hint, False) for hint in hints.values()}
            expected_values = {hint: kind == effect for kind, hint in hints.items()}
            # What strangers wrote comes from outside, too.
            expected_values["openWorldHint"] |= tool.taints
            expected_values["destructiveHint"] |= tool.overwrites
            assert hint_values == expected_values, listed_tool


def test_every_operation_that_an_error_names_is_there() -> None:
    tools = Registry(toolsets()).tools
    rooms = ("tools", "runtime", "http", "mcp_server", "src/baobab")
    for path in (path for room in rooms for path in (ROOT / room).rglob("*.py")):
        for name in re.findall(r"\bop:([a-z][a-z0-9_]*)", path.read_text()):
            assert name in tools, f"{path}: op:{name}"


async def test_an_error_names_operations_as_its_interface_does(baobab: Baobab) -> None:
    assert AppNotFound().remedy == "Check the app id; apps_list lists the apps that you may use."
    over_rest = await baobab.client.get("/v1/app_000000000000/config", headers=baobab.owner)
    assert "GET /apps lists" in over_rest.json()["error"]["remediation"]
    call = {"name": "config_get", "arguments": {"app_id": "app_000000000000"}}
    headers = {**baobab.owner, "accept": "application/json, text/event-stream", "mcp-protocol-version": "2025-06-18"}
    body = {"jsonrpc": "2.0", "id": 1, "method": "tools/call", "params": call}
    over_mcp = await baobab.client.post("/mcp", json=body, headers=headers)
    assert "apps_list lists" in over_mcp.json()["result"]["content"][0]["text"]
    unknown = await baobab.client.post("/mcp", json=body, headers={**headers, "authorization": "Bearer bb_sk_x"})
    assert "api_keys_create" in unknown.text
    # Models are not offered what takes a password.
    assert baobab.application.registry.name_by_tool("platform_login") == "POST /platform/login"


async def test_a_secret_is_shown_by_nothing_that_prints_it_for_people_to_look_at() -> None:
    async def shelf_locked(
        call: Call, api_key: Annotated[str, Secret(40)], index_key: Annotated[str, NotSecret("a name"), Text(9)]
    ) -> Done:
        """Read a word."""
        return {"word": api_key}

    tool = register_handler(build_toolset(), shelf_locked).find("shelf_locked")
    values = tool.validate({"api_key": "SUPERSECRET", "index_key": "open"})
    assert values["api_key"] == "SUPERSECRET"
    assert repr(values) == "{'api_key': '(hidden)', 'index_key': 'open'}"
    assert tool.input_schema["properties"]["api_key"]["writeOnly"] is True
    assert "SUPERSECRET" not in str(render_fields(tool, {"api_key": "SUPERSECRET", "index_key": "open"}))


# -- The steps of a call -----------------------------------------------------------------------------------------------


class FakeAccess:
    """Access and limit that write down when they were asked, and refuse when they are told to."""

    anonymous, credential, description, raises = True, True, "", ()

    def __init__(self) -> None:
        self.taken_steps: list[str] = []
        self.refusals: dict[str, Exception] = {}

    def admits(self, caller: Any) -> Any:
        return True

    async def authorise(self, call: Any, arguments: Any) -> None:
        self._ask("authorise")

    def spend(self, call: Any, arguments: Any) -> None:
        self._ask("limit")

    def _ask(self, step: Any) -> None:
        self.taken_steps.append(step)
        if step in self.refusals:
            raise self.refusals[step]


def build_suggestion(services: Any, word: str) -> Any:
    row = {"id": services.ids.uuid(), "category": "improvement", "description": word, "source": "agent"}
    return insert(suggestions), {**row, "status": "new", "user_id": "u", "created_at": services.clock.now()}


@pytest.fixture
def steps() -> Any:
    return FakeAccess()


@pytest.fixture
def registry(baobab: Baobab, steps: Any) -> Any:
    """A registry of a few tools of this test, on the services of a whole installation."""
    shelf = build_toolset()

    @shelf.tool("POST /keep", access=steps, effect="write", limit=steps, audit=Audit("shelf.keep", resource="word"))
    async def shelf_keep(call: Call, word: Word, then: Word = "") -> Done:
        """Keep a word."""
        steps.taken_steps.append("handle")
        await call.execute(*build_suggestion(call.services, word))
        call.audit.resource_id = word
        if then == "conflict":
            raise Conflict
        if then == "crash":
            raise ZeroDivisionError
        return {"word": word}

    @shelf.tool("POST /keep-two", access=EVERYBODY, effect="write", limit=None)
    async def shelf_keep_two(call: Call, first: Word, second: Word, then: Word = "") -> Done:
        """Keep two words, or none."""
        await call.invoke("shelf_keep", word=first)
        result: Done = await call.invoke("shelf_keep", word=second, then=then)
        return result

    @shelf.tool("GET /look", access=EVERYBODY, effect="read", limit=None)
    async def shelf_look(call: Call, word: Word) -> Done:
        """Look for a word, and try to keep it in passing."""
        result: Done = await call.invoke("shelf_keep", word=word)
        return result

    @shelf.tool("GET /rare", access=EVERYBODY, effect="read", limit=PerAddress(2, 60))
    async def shelf_rare(call: Call) -> Done:
        """Answer twice a minute."""
        return {"word": "rare"}

    @shelf.tool("POST /default", access=EVERYBODY, effect="write")
    async def shelf_default(call: Call, word: Word = OMITTED, size: Annotated[int, Field(ge=0)] = 3) -> Done:
        """Tell what was left out."""
        return {"word": f"{'nothing' if word is OMITTED else word} {size}"}

    return Registry([shelf]).bind(baobab.application.services)


async def list_kept(registry: Any) -> Any:
    async with registry.services.database.reading() as connection:
        return list((await connection.execute(select(suggestions.c.description))).scalars())


async def list_events(registry: Any) -> Any:
    query = select(audit_logs).where(audit_logs.c.event_type.like("shelf%")).order_by(audit_logs.c.created_at)
    async with registry.services.database.reading() as connection:
        return [(row.event_type, row.resource_id, row.success) for row in await connection.execute(query)]


async def test_a_call_is_authorised_then_limited_then_validated_then_handled(registry: Any, steps: Any) -> None:
    assert await registry.call("shelf_keep", {"word": "a"}, ANONYMOUS, CONTEXT) == {"word": "a"}
    assert steps.taken_steps == ["authorise", "limit", "handle"]
    assert await list_kept(registry) == ["a"]
    assert await list_events(registry) == [("shelf.keep", "a", True)]


async def test_a_caller_who_may_not_is_told_so_before_anything_about_limits_or_arguments(
    registry: Any, steps: Any
) -> None:
    steps.refusals["authorise"] = Forbidden()
    with pytest.raises(Forbidden):
        await registry.call("shelf_keep", {"nonsense": 1}, ANONYMOUS, CONTEXT)
    assert steps.taken_steps == ["authorise"]


async def test_the_limit_is_spent_before_the_arguments_are_looked_at(registry: Any, steps: Any) -> None:
    steps.refusals["limit"] = RateLimited(1, 1, 1)
    with pytest.raises(RateLimited):
        await registry.call("shelf_keep", {"nonsense": 1}, ANONYMOUS, CONTEXT)
    assert steps.taken_steps == ["authorise", "limit"]


@pytest.mark.parametrize(
    ("arguments", "error"),
    [
        ({}, MissingField),
        ({"word": 1}, InvalidType),
        ({"word": None}, InvalidType),
        ({"word": "x" * 21}, BadRequest),
        ({"word": "a", "colour": "red"}, UnknownField),
    ],
)
async def test_arguments_that_do_not_fit_never_reach_the_handler(
    registry: Any, steps: Any, arguments: Any, error: Any
) -> None:
    with pytest.raises(error):
        await registry.call("shelf_keep", arguments, ANONYMOUS, CONTEXT)
    assert "handle" not in steps.taken_steps
    assert await list_events(registry) == []


async def test_a_name_that_no_tool_has_is_an_error_of_its_own(registry: Any) -> None:
    with pytest.raises(ToolNotFound):
        await registry.call("shelf_kept", {}, ANONYMOUS, CONTEXT)


async def test_a_handler_that_refuses_after_a_write_leaves_nothing_but_the_row_of_its_refusal(registry: Any) -> None:
    with pytest.raises(Conflict):
        await registry.call("shelf_keep", {"word": "a", "then": "conflict"}, ANONYMOUS, CONTEXT)
    assert await list_kept(registry) == []
    assert await list_events(registry) == [("shelf.keep_failed", "a", False)]


async def test_a_handler_that_crashes_after_a_write_leaves_nothing_at_all(registry: Any) -> None:
    with pytest.raises(ZeroDivisionError):
        await registry.call("shelf_keep", {"word": "a", "then": "crash"}, ANONYMOUS, CONTEXT)
    assert await list_kept(registry) == []
    assert await list_events(registry) == []


async def test_the_audit_row_stands_in_the_transaction_of_the_call(registry: Any, tmp_path: Path) -> None:
    elsewhere = database_at(database_url(tmp_path / "data"))
    await elsewhere.open()
    unit = registry.services.database.build_unit(write=True)
    await registry.call("shelf_keep", {"word": "a"}, ANONYMOUS, CONTEXT, unit=unit)
    async with elsewhere.reading() as connection:
        assert (await connection.execute(select(audit_logs).where(audit_logs.c.event_type == "shelf.keep"))).all() == []
    await elsewhere.close()
    await unit.commit()
    assert await list_events(registry) == [("shelf.keep", "a", True)]


async def test_invoked_tools_share_the_unit_of_their_caller(registry: Any) -> None:
    await registry.call("shelf_keep_two", {"first": "a", "second": "b"}, ANONYMOUS, CONTEXT)
    assert sorted(await list_kept(registry)) == ["a", "b"]
    assert len(await list_events(registry)) == 3


@pytest.mark.parametrize("end", ["conflict", "crash"])
async def test_when_an_invoked_tool_fails_nothing_of_its_caller_stays(registry: Any, end: Any) -> None:
    with pytest.raises((Conflict, ZeroDivisionError)):
        await registry.call("shelf_keep_two", {"first": "a", "second": "b", "then": end}, ANONYMOUS, CONTEXT)
    assert await list_kept(registry) == []
    assert [success for *_, success in await list_events(registry)] in ([False], [])


async def test_an_invoked_tool_is_authorised_again_but_spends_no_limit(registry: Any, steps: Any) -> None:
    await registry.call("shelf_keep_two", {"first": "a", "second": "b"}, ANONYMOUS, CONTEXT)
    assert steps.taken_steps == ["authorise", "handle", "authorise", "handle"]
    steps.refusals["authorise"] = Forbidden()
    with pytest.raises(Forbidden):
        await registry.call("shelf_keep_two", {"first": "a", "second": "b"}, ANONYMOUS, CONTEXT)


async def test_a_read_cannot_invoke_a_tool_that_changes_something(registry: Any) -> None:
    with pytest.raises(RuntimeError, match="graver effect"):
        await registry.call("shelf_look", {"word": "a"}, ANONYMOUS, CONTEXT)
    assert await list_kept(registry) == []


async def test_a_limit_of_one_tool_counts_each_address_by_itself(registry: Any) -> None:
    elsewhere = dataclasses.replace(CONTEXT, ip="192.0.2.2")
    for _ in range(2):
        await registry.call("shelf_rare", {}, ANONYMOUS, CONTEXT)
    with pytest.raises(RateLimited) as refusal:
        await registry.call("shelf_rare", {}, ANONYMOUS, CONTEXT)
    assert (refusal.value.retry_after or 0) >= 1
    assert (await registry.call("shelf_rare", {}, ANONYMOUS, elsewhere))["word"] == "rare"


async def test_what_is_left_of_a_limit_is_told_to_the_interface(registry: Any) -> None:
    _, call = await registry.run(registry.find("shelf_rare"), {}, ANONYMOUS, CONTEXT)
    assert (call.allowance.limit, call.allowance.remaining, call.allowance.window) == (2, 1, 60)


async def test_an_argument_that_was_left_out_can_be_told_from_one_that_was_given(registry: Any) -> None:
    account = Account("a", "o")
    assert await registry.call("shelf_default", {}, account, CONTEXT) == {"word": "nothing 3"}
    assert await registry.call("shelf_default", {"word": "", "size": 0}, account, CONTEXT) == {"word": " 0"}


async def test_callers_are_counted_by_their_own_bucket_where_no_app_is_named(registry: Any) -> None:
    ada, bob = Account("ada", "o"), Account("bob", "o")
    for _ in range(600):
        await registry.call("shelf_default", {}, ada, CONTEXT)
    with pytest.raises(RateLimited):
        await registry.call("shelf_default", {}, ada, CONTEXT)
    await registry.call("shelf_default", {}, bob, CONTEXT)


@pytest.mark.parametrize(
    ("caller", "actor", "actor_id", "as_user"),
    [
        (ANONYMOUS, "anonymous", None, None),
        (Account("acc", "org"), "platform_user", "acc", None),
        (Account("acc", "org", "key"), "api_key", "key", None),
        (AppKey("app_1", "key"), "api_key", "key", None),
        (EndUser("app_1", "user"), "app_user", "user", None),
        (EndUser("app_1", "user", key_id="key"), "api_key", "key", "user"),
    ],
)
async def test_the_audit_row_names_the_actor_and_for_whom_it_acted(
    registry: Any, caller: Any, actor: Any, actor_id: Any, as_user: Any
) -> None:
    await registry.call("shelf_keep", {"word": "a"}, caller, CONTEXT)
    async with registry.services.database.reading() as connection:
        row = (await connection.execute(select(audit_logs).where(audit_logs.c.event_type == "shelf.keep"))).one()
    assert (row.actor_type, row.actor_id) == (actor, actor_id)
    assert row.event_data.get("as_user") == as_user
    assert (row.ip_address, row.correlation_id) == ("192.0.2.1", "req-1")


async def test_observers_are_told_of_every_call_and_how_it_ended(registry: Any, steps: Any) -> None:
    calls = []
    registry.observers.append(
        lambda tool, interface, outcome, seconds: calls.append((tool.name, outcome, seconds >= 0))
    )
    await registry.call("shelf_keep", {"word": "a"}, ANONYMOUS, CONTEXT)
    for arguments, error in (({}, MissingField), ({"word": "a", "then": "crash"}, ZeroDivisionError)):
        with pytest.raises(error):
            await registry.call("shelf_keep", arguments, ANONYMOUS, CONTEXT)
    steps.refusals["authorise"] = Unauthenticated()
    with pytest.raises(Unauthenticated):
        await registry.call("shelf_keep", {"word": "a"}, ANONYMOUS, CONTEXT)
    assert calls == [
        ("shelf_keep", "ok", True),
        ("shelf_keep", "VALIDATION_MISSING_FIELD", True),
        ("shelf_keep", "error", True),
        ("shelf_keep", "AUTH_REQUIRED", True),
    ]


def test_a_registry_without_services_can_be_listed_but_not_called() -> None:
    shelf = build_toolset()
    shelf.tool("GET /", **READ)(shelf_read)
    registry = Registry([shelf])
    assert [tool.name for tool in registry.visible_to(ANONYMOUS)] == ["shelf_read"]
    with pytest.raises(RuntimeError, match="no services"):
        _ = registry.services
