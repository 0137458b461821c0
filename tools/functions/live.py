"""The functions of apps as calls need them, cached in each process until a notice says that they have changed."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

from sqlalchemy import select

from baobab.storage.cache import Cache
from baobab.tools.core import Call, Services
from baobab.tools.core.auth.directory import App
from baobab.tools.core.auth.tables import apps, members
from baobab.tools.functions.tables import app_env, functions_table, versions
from baobab.tools.functions.trigger_configs import find_trigger

NOTICE = "functions"
"""The notice that the functions of an app have changed. Its subject is the app."""
_functions, _versions = functions_table.c, versions.c


@dataclass(frozen=True, slots=True)
class LiveVersion:
    """The code of one version of a function."""

    number: int
    language: str
    code: str = field(repr=False)
    sha256: str
    input_schema: Mapping[str, Any] | None


@dataclass(frozen=True, slots=True)
class LiveFunctions:
    """The functions of an app that are not deleted, by name, and what all of them know of the app."""

    rows: Mapping[str, Any]
    app_env: str | None = field(repr=False)
    app_row: Any = field(repr=False)
    owner_id: str | None

    def find_with(self, kind: str) -> list[Any]:
        """Returns the functions with an enabled trigger of a type, in the order of their names."""
        return [row for _, row in sorted(self.rows.items()) if find_trigger(row.triggers, kind) is not None]


class FunctionCache:
    """A service of the domain: `services.of(FunctionCache)`."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._apps: Cache[str, LiveFunctions] = Cache(self._load, services.clock, size=2000)
        # A version never changes.
        self._versions: Cache[tuple[str, str, int], LiveVersion] = Cache(
            self._load_version, services.clock, keep=600.0, size=300
        )
        services.notices.subscribe(NOTICE, self._apps.forget)
        services.notices.subscribe("app", self._apps.forget)

    async def get(self, app_id: str) -> LiveFunctions:
        """Returns the functions of an app. Raises AppNotFound."""
        live = await self._apps.get(app_id)
        assert live is not None
        return live

    async def get_version(self, app_id: str, function_id: str, number: int) -> LiveVersion | None:
        """Returns a version of a function; None if there is none."""
        return await self._versions.get((app_id, function_id, number))

    async def _load(self, app_id: str) -> LiveFunctions:
        services = self._services
        app = await services.directory.app(app_id)
        async with services.stores_of(app.region).database.reading() as connection:
            query = select(functions_table).where(_functions.app_id == app_id, _functions.deleted_at.is_(None))
            rows: Any = (await connection.execute(query)).all()
            env_query = select(app_env.c.env).where(app_env.c.app_id == app_id)
            sealed_env: Any = (await connection.execute(env_query)).scalar()
        async with services.database.reading() as connection:
            columns = (apps.c.auth_hook_function, apps.c.substrate_organization_id, apps.c.jwt_config)
            app_row: Any = (await connection.execute(select(*columns).where(apps.c.id == app_id))).first()
            owners = (members.c.organisation_id == app.organisation_id, members.c.role == "owner")
            owner_query = select(members.c.account_id).where(*owners).order_by(members.c.account_id).limit(1)
            owner_id: Any = (await connection.execute(owner_query)).scalar()
        return LiveFunctions({row.name: row for row in rows}, sealed_env, app_row, owner_id)

    async def _load_version(self, key: tuple[str, str, int]) -> LiveVersion | None:
        app_id, function_id, number = key
        app = await self._services.directory.app(app_id)
        of_version = (_versions.app_id == app_id, _versions.function_id == function_id, _versions.number == number)
        columns = (_versions.number, _versions.language, _versions.code, _versions.sha256, _versions.input_schema)
        async with self._services.stores_of(app.region).database.reading() as connection:
            row: Any = (await connection.execute(select(*columns).where(*of_version))).first()
        return None if row is None else LiveVersion(row.number, row.language, row.code, row.sha256, row.input_schema)


async def publish_change(call: Call, *, of_tools: bool = False) -> None:
    """Tells every process that the functions of the call's app have changed. of_tools: tells MCP clients as well."""
    app, notices = call.require_app(), call.services.notices
    await notices.publish(call.unit, NOTICE, app.id)
    if of_tools:
        for subject in (f"app:{app.id}", f"organisation:{app.organisation_id}"):
            await notices.publish(call.unit, "tools", subject)


def build_urls(services: Services, app: App, row: Any) -> tuple[str | None, str | None]:
    """Returns where a function is called and where it gets webhooks; None for what it has no trigger for."""
    base = f"{services.options.base_url}/v1/{app.id}"
    url = f"{base}/fn/{row.name}" if find_trigger(row.triggers, "http") is not None else None
    webhook_url = f"{base}/webhook/{row.name}" if find_trigger(row.triggers, "webhook") is not None else None
    return url, webhook_url
