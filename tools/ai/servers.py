"""Model servers that an organisation declares: vLLM, llama.cpp, Ollama and whatever else speaks OpenAI's wire.

Who declares one names an address that this server will call, so each call of it goes by the rules of outgoing requests.
"""

from collections.abc import Mapping
from datetime import datetime
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError
from typing_extensions import TypedDict

from baobab.runtime.addresses import AddressRefused, EgressError, Target, UrlRefused
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.probe import ModelsUnlisted, models_of
from baobab.runtime.gateway.providers import SERVER_NAME, Provider
from baobab.tools.ai import reach
from baobab.tools.ai.tables import model_servers as rows
from baobab.tools.ai.timeouts import Timeouts
from baobab.tools.ai.toolset import model_servers
from baobab.tools.core.auth.access import AnyAccount
from baobab.tools.core.binding import Audit
from baobab.tools.core.call import Call
from baobab.tools.core.errors import BadRequest, Conflict, MissingField, NotFound
from baobab.tools.core.escaping import escape_text
from baobab.tools.core.plan_room import PlanLimitReached, hold_plan, require_room
from baobab.tools.core.secret import Secret
from baobab.tools.core.toolset import Guard, Mcp, Rest
from baobab.tools.core.types import OMITTED, Text

_MOST_MODELS = 200
_PATIENCE_SECONDS = 10.0

ServerName = Annotated[
    str,
    Text(32, pattern=f"^{SERVER_NAME}$"),
    Field(description="What its models' names begin with: `<name>/<model>`.", examples=["lab"]),
]
Url = Annotated[str, Text(500, min_length=8)]
ServerKey = Annotated[str, Secret(500, min_length=1, pattern="^[!-~]+$")]


class ModelServer(TypedDict):
    """A model server. Of its key only the end is shown."""

    name: str
    url: str
    key: str | None
    models: Annotated[list[str], Field(description="As it last listed them; others of its models work, too.")]
    healthy: Annotated[bool, Field(description="Whether it listed its models when it was last asked.")]
    problem: Annotated[str | None, Field(description="Why it did not.")]
    timeouts: Annotated[Timeouts | None, Field(description="How long its answers may take, in seconds.")]
    probed_at: datetime
    created_at: datetime


class ModelServers(TypedDict):
    """An organisation's model servers, by name."""

    servers: list[ModelServer]


class ServerRemoved(TypedDict):
    """What a removal answers."""

    removed: bool
    name: str


class ServerNotFound(NotFound):
    summary = "Your organisation has no such model server."
    remediation = "op:model_servers_list lists those that it has."


class ServerNameTaken(Conflict):
    summary = "This name is taken: models of this server would be taken for somebody else's."
    remediation = "Give the server another name."


class ServerChanged(Conflict):
    summary = "Somebody else has changed the server meanwhile."
    remediation = "Read it with op:model_servers_get and try again."


class KeyNeededAgain(BadRequest):
    summary = "The key was given for another host: it is not shown to this one."
    remediation = "Send `key` with the new `url`: the key of the new host, or null for none."


@model_servers.tool(
    "GET /servers",
    access=AnyAccount(),
    effect="read",
    mcp=Mcp(
        keywords="my own model servers, self-hosted, local LLMs, endpoints; "
        "eigene Modellserver; "
        "mis servidores de modelos",
    ),
)
async def model_servers_list(call: Call) -> ModelServers:
    """List the model servers that your organisation has declared."""
    query = select(rows).where(rows.c.organisation_id == call.account.organisation_id).order_by(rows.c.name)
    found: Any = (await call.execute(query)).mappings()
    return {"servers": [_shown(row) for row in found]}


@model_servers.tool(
    "POST /servers",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNameTaken, PlanLimitReached, AddressRefused, UrlRefused),
    audit=Audit("ai.server.create", action="create", resource="model_server"),
    rest=Rest(status=201, examples={"name": "lab", "url": "https://models.example.com/v1"}),
    mcp=Mcp(
        keywords=(
            "connect, add, register, plug in own LLM, self-hosted, local model, vLLM, Ollama, llama.cpp, LM "
            "Studio, custom endpoint, base URL; "
            "eigenen Modellserver anbinden, lokales Modell; "
            "conectar servidor de modelos propio, modelo local"
        )
    ),
)
async def model_servers_create(
    call: Call, name: ServerName, url: Url, key: ServerKey | None = None, timeouts: Timeouts | None = None
) -> ModelServer:
    """Declare a model server that speaks OpenAI's wire; your organisation and its apps can then call its models.

    It is asked for its models at once. One that does not answer is declared all the same: its models can be called by
    name. Nothing is charged for them.

    name: lower case letters, digits and dashes; no vendor's name.
    url: where /models and /chat/completions begin, mostly ending in /v1. Private addresses are refused unless the
      operator allows them.
    key: sent to it as `Authorization: Bearer`. Sealed, and never shown.
    timeouts: how long it may take to answer, where that is less than the installation allows.
    """
    if call.services.part(Gateway).takes(name):
        raise ServerNameTaken(f"`{name}` is the name of a vendor, or of a server of this installation.")
    organisation, id_ = call.account.organisation_id, call.services.ids.uuid()
    row = {
        "id": id_,
        "organisation_id": organisation,
        "name": name,
        "url": _address(url),
        "models": {},
        "timeouts": timeouts,
        "created_at": call.now,
        **_sealed(call, id_, key),
    }
    row |= await _asked(call, name, row["url"], key)
    plan = await hold_plan(call.execute, organisation)
    count = select(func.count()).where(rows.c.organisation_id == organisation)
    require_room("model servers", plan, plan.model_servers, (await call.execute(count)).scalar_one())
    try:
        await call.execute(insert(rows), row)
    except IntegrityError as exc:
        raise ServerNameTaken(f"Your organisation has a server `{name}`.") from exc
    await _changed(call, name)
    return _shown(row)


@model_servers.tool(
    "GET /servers/{name}",
    access=AnyAccount(),
    effect="read",
    raises=(ServerNotFound,),
    mcp=Mcp(keywords="details of a self-hosted LLM, model endpoint; Modellserver ansehen; ver servidor de modelos"),
)
async def model_servers_get(call: Call, name: ServerName) -> ModelServer:
    """Read one of your organisation's model servers."""
    return _shown(await _row(call, name))


async def _updating(
    call: Call,
    name: ServerName,
    url: Url | None = None,
    key: ServerKey | None = OMITTED,
    timeouts: Timeouts | None = OMITTED,
) -> str:
    row, address = await _changeable(call, name, url, key, timeouts)
    where = f"at {escape_text(row['url'])}" if address == row["url"] else f"to be at {escape_text(address)}"
    return f"It would change the model server {name} {where}, and ask it for its models."


@model_servers.tool(
    "PATCH /servers/{name}",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNotFound, ServerChanged, KeyNeededAgain, MissingField, AddressRefused, UrlRefused),
    audit=Audit("ai.server.update", resource="model_server"),
    mcp=Mcp(
        keywords=(
            "change URL or key of a self-hosted LLM, vLLM, Ollama endpoint; "
            "Modellserver ändern; "
            "cambiar servidor de modelos"
        )
    ),
    guard=Guard(preview=_updating, destructive_when="where it replaces a key"),
)
async def model_servers_update(
    call: Call,
    name: ServerName,
    url: Url | None = None,
    key: ServerKey | None = OMITTED,
    timeouts: Timeouts | None = OMITTED,
) -> ModelServer:
    """Change where a model server is, its key or its time; what is left out stays. It is asked for its models again.

    url: the new address. A key that was given for another host is not taken along: send it again.
    key: the new key; null for none.
    timeouts: how long it may take to answer; null for as long as the installation allows.
    """
    before, address = await _changeable(call, name, url, key, timeouts)
    if key is not OMITTED and before["key"] is not None:
        call.destroys()
    values: dict[str, Any] = {"url": address}
    if key is not OMITTED:
        values |= _sealed(call, before["id"], key)
    if timeouts is not OMITTED:
        values["timeouts"] = timeouts
    opened = _opened(call, before) if key is OMITTED else key
    return await _write(call, before, values | await _asked(call, name, address, opened))


async def _probing(call: Call, name: ServerName) -> str:
    row = await _row(call, name)
    return f"It would ask the model server {name} at {escape_text(row['url'])} for its models."


@model_servers.tool(
    "POST /servers/{name}/probe",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNotFound, ServerChanged, AddressRefused, UrlRefused),
    audit=Audit("ai.server.probe", resource="model_server"),
    mcp=Mcp(
        keywords=(
            "test, refresh, check the connection of a self-hosted LLM, vLLM, Ollama; "
            "Modellserver prüfen; "
            "probar conexión con el servidor de modelos"
        )
    ),
    guard=Guard(preview=_probing),
)
async def model_servers_probe(call: Call, name: ServerName) -> ModelServer:
    """Ask a model server for its models, and whether it is well.

    What it lists takes the place of what it listed before; where it lists nothing, `problem` says why.
    """
    before = await _row(call, name)
    return await _write(call, before, await _asked(call, name, before["url"], _opened(call, before)))


async def _removing(call: Call, name: ServerName) -> str:
    row = await _row(call, name)
    return f"It would remove the model server {name} at {escape_text(row['url'])}, with its key."


@model_servers.tool(
    "DELETE /servers/{name}",
    access=AnyAccount("admin"),
    effect="destructive",
    raises=(ServerNotFound,),
    audit=Audit("ai.server.delete", action="delete", resource="model_server"),
    mcp=Mcp(
        keywords="disconnect, remove a self-hosted LLM, vLLM, Ollama; "
        "Modellserver entfernen; "
        "quitar servidor de modelos",
    ),
    guard=Guard(preview=_removing),
)
async def model_servers_delete(call: Call, name: ServerName) -> ServerRemoved:
    """Remove a model server, with its key: its models cannot be called any more."""
    gone = await call.execute(delete(rows).where(*_named(call, name)))
    if gone.rowcount == 0:
        raise ServerNotFound
    await _changed(call, name)
    return {"removed": True, "name": name}


async def _asked(call: Call, name: str, url: str, key: str | None) -> dict[str, Any]:
    """What a row says of a server that was asked for its models. Raises AddressRefused where it may not be asked."""
    if not call.nested:
        # No transaction stays open while somebody else's server thinks.
        await call.unit.commit()
    provider = Provider(name, url, key or "", "openai", lists=True, own=True, guarded=True)
    try:
        models = await models_of(provider, partial(call.services.outgoing.request, timeout=_PATIENCE_SECONDS))
    except (AddressRefused, UrlRefused):
        raise
    except ModelsUnlisted as exc:
        return {"problem": f"It answered {exc.details['status']}, and no list of models.", "probed_at": call.now}
    except EgressError as exc:
        return {"problem": exc.message, "probed_at": call.now}
    listed = {model.id.removeprefix(f"{name}/"): model.context_window for model in models[:_MOST_MODELS]}
    return {"models": listed, "problem": None, "probed_at": call.now}


async def _changeable(
    call: Call, name: str, url: str | None, key: str | None, timeouts: Timeouts | None
) -> tuple[Mapping[str, Any], str]:
    """The row of a server that may be changed so, and the address that it has then."""
    if url is None and key is OMITTED and timeouts is OMITTED:
        raise MissingField("None of `url`, `key` and `timeouts` is given.", remediation="Say what is to be changed.")
    before = await _row(call, name)
    address = before["url"] if url is None else _address(url)
    if key is OMITTED and before["key"] is not None and _origin(address) != _origin(before["url"]):
        raise KeyNeededAgain
    return before, address


async def _write(call: Call, before: Mapping[str, Any], values: dict[str, Any]) -> ModelServer:
    # Of two who change it at once only one may: a key must not meet an address that it was not given for.
    same = (rows.c.id == before["id"], rows.c.url == before["url"], rows.c.key.is_not_distinct_from(before["key"]))
    if (await call.execute(update(rows).where(*same).values(values))).rowcount == 0:
        raise ServerChanged
    await _changed(call, before["name"])
    return _shown({**before, **values})


async def _row(call: Call, name: str) -> Mapping[str, Any]:
    row = (await call.execute(select(rows).where(*_named(call, name)))).mappings().first()
    if row is None:
        raise ServerNotFound
    return dict(row)


async def _changed(call: Call, name: str) -> None:
    organisation = call.account.organisation_id
    await reach.changed(call, organisation)
    call.audit.resource_id, call.audit.organisation_id = name, organisation


def _named(call: Call, name: str) -> tuple[Any, ...]:
    return rows.c.organisation_id == call.account.organisation_id, rows.c.name == name


def _address(url: str) -> str:
    if "?" in url or "#" in url:
        raise UrlRefused("The address of a model server has no query and no fragment.")
    return Target.of(url, https_only=False).url.rstrip("/")


def _origin(url: str) -> tuple[str, str, int]:
    return Target.of(url, https_only=False).origin


def _sealed(call: Call, id_: str, key: str | None) -> dict[str, Any]:
    if key is None:
        return {"key": None, "last4": None}
    sealed = call.services.vault.seal(key.encode(), reach.context(rows, id_))
    return {"key": sealed, "last4": reach.last4(key)}


def _opened(call: Call, row: Mapping[str, Any]) -> str | None:
    if row["key"] is None:
        return None
    return reach.secret(call.services.vault, row["key"], reach.context(rows, row["id"]))()


def _shown(row: Mapping[str, Any]) -> ModelServer:
    return {
        "name": row["name"],
        "url": row["url"],
        "key": None if row["last4"] is None else f"***{row['last4']}",
        "models": sorted(f"{row['name']}/{model}" for model in row["models"]),
        "healthy": row["problem"] is None,
        "problem": row["problem"],
        "timeouts": row["timeouts"],
        "probed_at": row["probed_at"],
        "created_at": row["created_at"],
    }
