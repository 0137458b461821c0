"""Model servers that an organisation declares: vLLM, llama.cpp, Ollama and others that speak OpenAI's wire format.

Their addresses come from users, so the rules for outgoing requests apply to every call.
"""

from collections.abc import Mapping
from functools import partial
from typing import Annotated, Any

from pydantic import Field
from sqlalchemy import delete, func, insert, select, update
from sqlalchemy.exc import IntegrityError

from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.probe import ModelListFailed, fetch_models
from baobab.runtime.gateway.providers import SERVER_NAME, Provider
from baobab.runtime.net.addresses import AddressRefused, EgressError, Target, UrlRefused
from baobab.tools.ai import organisation_providers
from baobab.tools.ai.errors import KeyNeededAgain, ServerChanged, ServerNameTaken, ServerNotFound
from baobab.tools.ai.schemas import ModelServer, ModelServers, ServerRemoved, Timeouts
from baobab.tools.ai.tables import model_servers as rows
from baobab.tools.ai.toolset import model_servers
from baobab.tools.core import OMITTED, AnyAccount, Audit, Call, Guard, Rest, Secret, Text
from baobab.tools.core.errors import MissingField
from baobab.tools.core.guard.escaping import escape_text
from baobab.tools.core.limits.plan_room import PlanLimitReached, hold_plan, require_room

_MOST_MODELS = 200
_PATIENCE_SECONDS = 10.0

ServerName = Annotated[
    str,
    Text(32, pattern=f"^{SERVER_NAME}$"),
    Field(description="The server's name, with which its models' ids begin: `<name>/<model>`.", examples=["lab"]),
]
Url = Annotated[str, Text(500, min_length=8)]
ServerKey = Annotated[str, Secret(500, min_length=1, pattern="^[!-~]+$")]


@model_servers.tool(
    "GET /servers",
    access=AnyAccount(),
    effect="read",
)
async def model_servers_list(call: Call) -> ModelServers:
    """List the model servers that your organisation has declared."""
    query = select(rows).where(rows.c.organisation_id == call.account.organisation_id).order_by(rows.c.name)
    server_rows: Any = (await call.execute(query)).mappings()
    return {"servers": [_render_server(row) for row in server_rows]}


@model_servers.tool(
    "POST /servers",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNameTaken, PlanLimitReached, AddressRefused, UrlRefused),
    audit=Audit("ai.server.create", action="create", resource="model_server"),
    rest=Rest(status=201, examples={"name": "lab", "url": "https://models.example.com/v1"}),
)
async def model_servers_create(
    call: Call, name: ServerName, url: Url, key: ServerKey | None = None, timeouts: Timeouts | None = None
) -> ModelServer:
    """Declare a model server that speaks OpenAI's wire format; your organisation and its apps can then call its models.

    The server is asked for its models at once. If it does not answer, it is declared anyway, and you can call its
    models by name. Calls to it are not charged.

    name: lower case letters, digits and dashes; not the name of a vendor.
    url: the address before /models and /chat/completions, which often ends in `v1`. Private addresses are refused
      unless the operator allows them.
    key: sent to the server as `Authorization: Bearer`. It is stored encrypted and never shown.
    timeouts: how long the server may take to answer, if that is less than the installation allows.
    """
    if call.services.part(Gateway).is_reserved_name(name):
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
        **_seal_key(call, id_, key),
    }
    row |= await _probe_models(call, name, row["url"], key)
    plan = await hold_plan(call.unit, organisation)
    count = select(func.count()).where(rows.c.organisation_id == organisation)
    require_room("model servers", plan, plan.model_servers, (await call.execute(count)).scalar_one())
    try:
        await call.execute(insert(rows), row)
    except IntegrityError as exc:
        raise ServerNameTaken(f"Your organisation has a server `{name}`.") from exc
    await _publish_change(call, name)
    return _render_server(row)


@model_servers.tool(
    "GET /servers/{name}",
    access=AnyAccount(),
    effect="read",
    raises=(ServerNotFound,),
)
async def model_servers_get(call: Call, name: ServerName) -> ModelServer:
    """Read one of your organisation's model servers."""
    return _render_server(await _row(call, name))


async def _preview_update(
    call: Call,
    name: ServerName,
    url: Url | None = None,
    key: ServerKey | None = OMITTED,
    timeouts: Timeouts | None = OMITTED,
) -> str:
    row, address = await _get_changeable(call, name, url, key, timeouts)
    place = f"at {escape_text(row['url'])}" if address == row["url"] else f"to be at {escape_text(address)}"
    return f"It would change the model server {name} {place}, and ask it for its models."


@model_servers.tool(
    "PATCH /servers/{name}",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNotFound, ServerChanged, KeyNeededAgain, MissingField, AddressRefused, UrlRefused),
    audit=Audit("ai.server.update", resource="model_server"),
    guard=Guard(preview=_preview_update, destructive_when="if it replaces a key"),
)
async def model_servers_update(
    call: Call,
    name: ServerName,
    url: Url | None = None,
    key: ServerKey | None = OMITTED,
    timeouts: Timeouts | None = OMITTED,
) -> ModelServer:
    """Change a model server's URL, key or timeouts; fields left out stay. It is asked for its models again.

    url: the new address. If its host is another one, send the key again.
    key: the new key; null for none.
    timeouts: how long the server may take to answer; null for as long as the installation allows.
    """
    current_row, address = await _get_changeable(call, name, url, key, timeouts)
    if key is not OMITTED and current_row["key"] is not None:
        call.declare_destructive()
    values: dict[str, Any] = {"url": address}
    if key is not OMITTED:
        values |= _seal_key(call, current_row["id"], key)
    if timeouts is not OMITTED:
        values["timeouts"] = timeouts
    current_key = _open_key(call, current_row) if key is OMITTED else key
    return await _write(call, current_row, values | await _probe_models(call, name, address, current_key))


async def _preview_probe(call: Call, name: ServerName) -> str:
    row = await _row(call, name)
    return f"It would ask the model server {name} at {escape_text(row['url'])} for its models."


@model_servers.tool(
    "POST /servers/{name}/probe",
    access=AnyAccount("admin"),
    effect="external",
    raises=(ServerNotFound, ServerChanged, AddressRefused, UrlRefused),
    audit=Audit("ai.server.probe", resource="model_server"),
    guard=Guard(preview=_preview_probe),
)
async def model_servers_probe(call: Call, name: ServerName) -> ModelServer:
    """Check that a model server works, and ask it for its models.

    The new list of models replaces the old one. If the server does not list its models, `problem` says why.
    """
    current_row = await _row(call, name)
    return await _write(
        call, current_row, await _probe_models(call, name, current_row["url"], _open_key(call, current_row))
    )


async def _preview_delete(call: Call, name: ServerName) -> str:
    row = await _row(call, name)
    return f"It would remove the model server {name} at {escape_text(row['url'])}, with its key."


@model_servers.tool(
    "DELETE /servers/{name}",
    access=AnyAccount("admin"),
    effect="destructive",
    raises=(ServerNotFound,),
    audit=Audit("ai.server.delete", action="delete", resource="model_server"),
    guard=Guard(preview=_preview_delete),
)
async def model_servers_delete(call: Call, name: ServerName) -> ServerRemoved:
    """Remove a model server, with its key: its models cannot be called any more."""
    result = await call.execute(delete(rows).where(*_name_conditions(call, name)))
    if result.rowcount == 0:
        raise ServerNotFound
    await _publish_change(call, name)
    return {"removed": True, "name": name}


async def _probe_models(call: Call, name: str, url: str, key: str | None) -> dict[str, Any]:
    """Asks a server for its models and returns the values for its row. Raises AddressRefused or UrlRefused."""
    if not call.is_nested:
        # No transaction stays open while another server works.
        await call.unit.commit()
    provider = Provider(name, url, key or "", "openai", lists_models=True, is_own=True, is_guarded=True)
    try:
        models = await fetch_models(provider, partial(call.services.http_client.request, timeout=_PATIENCE_SECONDS))
    except (AddressRefused, UrlRefused):
        raise
    except ModelListFailed as exc:
        return {"problem": f"It answered {exc.details['status']}, and no list of models.", "probed_at": call.now}
    except EgressError as exc:
        return {"problem": exc.message, "probed_at": call.now}
    windows_by_name = {model.id.removeprefix(f"{name}/"): model.context_window for model in models[:_MOST_MODELS]}
    return {"models": windows_by_name, "problem": None, "probed_at": call.now}


async def _get_changeable(
    call: Call, name: str, url: str | None, key: str | None, timeouts: Timeouts | None
) -> tuple[Mapping[str, Any], str]:
    """Returns the row of a server and its new address. Raises an error if the change is not allowed."""
    if url is None and key is OMITTED and timeouts is OMITTED:
        raise MissingField("None of `url`, `key` and `timeouts` is given.", remediation="Send at least one of them.")
    row = await _row(call, name)
    address = row["url"] if url is None else _address(url)
    if key is OMITTED and row["key"] is not None and _origin(address) != _origin(row["url"]):
        raise KeyNeededAgain
    return row, address


async def _write(call: Call, before: Mapping[str, Any], values: dict[str, Any]) -> ModelServer:
    # Only one of two simultaneous changes succeeds, so a key is never sent to an address for which it was not given.
    is_unchanged = (
        rows.c.id == before["id"],
        rows.c.url == before["url"],
        rows.c.key.is_not_distinct_from(before["key"]),
    )
    if (await call.execute(update(rows).where(*is_unchanged).values(values))).rowcount == 0:
        raise ServerChanged
    await _publish_change(call, before["name"])
    return _render_server({**before, **values})


async def _row(call: Call, name: str) -> Mapping[str, Any]:
    row = (await call.execute(select(rows).where(*_name_conditions(call, name)))).mappings().first()
    if row is None:
        raise ServerNotFound
    return dict(row)


async def _publish_change(call: Call, name: str) -> None:
    organisation = call.account.organisation_id
    await organisation_providers.publish_change(call, organisation)
    call.audit.resource_id, call.audit.organisation_id = name, organisation


def _name_conditions(call: Call, name: str) -> tuple[Any, ...]:
    return rows.c.organisation_id == call.account.organisation_id, rows.c.name == name


def _address(url: str) -> str:
    if "?" in url or "#" in url:
        raise UrlRefused("The address of a model server must not have a query or a fragment.")
    return Target.parse(url, https_only=False).url.rstrip("/")


def _origin(url: str) -> tuple[str, str, int]:
    return Target.parse(url, https_only=False).origin


def _seal_key(call: Call, id_: str, key: str | None) -> dict[str, Any]:
    if key is None:
        return {"key": None, "last4": None}
    sealed_key = call.services.vault.seal(key.encode(), organisation_providers.key_context(rows, id_))
    return {"key": sealed_key, "last4": organisation_providers.last4(key)}


def _open_key(call: Call, row: Mapping[str, Any]) -> str | None:
    if row["key"] is None:
        return None
    return organisation_providers.bind_secret(
        call.services.vault, row["key"], organisation_providers.key_context(rows, row["id"])
    )()


def _render_server(row: Mapping[str, Any]) -> ModelServer:
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
