"""The directory: what every call needs to know of apps, keys and members, cached in memory."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, cast

from sqlalchemy import Select, func, select

from baobab.storage.cache import Cache
from baobab.storage.clock import Clock
from baobab.storage.sql.database import Database
from baobab.storage.sql.notices import Notices
from baobab.tools.core.auth.callers import FunctionKey, Limits
from baobab.tools.core.auth.names import find_name
from baobab.tools.core.auth.roles import Role
from baobab.tools.core.auth.tables import api_keys, apps, custom_domains, members, organisations
from baobab.tools.core.errors import AppNotFound
from baobab.tools.core.limits.credits import Credits
from baobab.tools.core.limits.plans import PLANS, Plan
from baobab.tools.core.types import APP_ID

APP_ID_PATTERN = re.compile(APP_ID)
_DOMAINS = (
    select(func.aggregate_strings(custom_domains.c.held_name, ","))
    .where(custom_domains.c.app_id == apps.c.id)
    .scalar_subquery()
    .label("domains")
)
_TOKEN_SECONDS = {"15m": 900, "30m": 1800, "1h": 3600, "2h": 7200, "1d": 86400}


@dataclass(frozen=True, slots=True)
class App:
    """The part of an app's row that calls need. The other columns are read from the row."""

    id: str
    organisation_id: str
    name: str
    title: str
    """What people read: its display name, else its name."""
    subdomain: str
    region: str
    access_mode: str
    visibility: str
    allowed_origins: frozenset[str]
    is_paused: bool
    paused_reason: str | None
    anon_key: str
    plan: Plan
    access_token_seconds: int
    """How long the access tokens of the app's users live."""
    session_days: int
    """How long a session of a user lives after its last refresh."""
    storage_config: Mapping[str, Any]
    """How its files are stored (PATCH config/storage)."""
    user_tools: frozenset[str] = frozenset()
    """The tools that its users may call over MCP. While there are none, users cannot sign in over MCP."""
    domains: frozenset[str] = frozenset()
    """The custom domains at which it is served beside its subdomain (tools/domains)."""


@dataclass(frozen=True, slots=True)
class Key:
    """A live API key, by its digest."""

    id: str
    organisation_id: str
    account_id: str
    app_id: str | None
    scopes: frozenset[str]
    limits: Limits | None = None
    expires_at: float | None = None
    """When the key's text expires, in seconds since 1970; None: never."""


class Directory:
    """Read-through: entries live 30 s, absences 2 s, and a change anywhere clears them within half a second."""

    def __init__(self, database: Database, clock: Clock, notices: Notices, credits_: Credits) -> None:
        self._database = database
        self._credits = credits_
        self._apps: Cache[str, App] = Cache(self._load_app, clock)
        self._subdomains: Cache[str, str] = Cache(self._load_subdomain, clock)
        self._domains: Cache[str, str] = Cache(self._load_domain, clock)
        self._keys: Cache[str, Key | FunctionKey] = Cache(self._load_key, clock)
        self._anon_keys: Cache[str, str] = Cache(self._load_anon_key, clock)
        self._roles: Cache[tuple[str, str], Role] = Cache(self._load_role, clock)
        self._plans: Cache[str, Plan] = Cache(self._load_plan, clock)
        self._names: Cache[str, str] = Cache(self._load_name, clock)
        self._notices = notices
        notices.subscribe("app", self._app_changed)
        notices.subscribe("key", self._keys.forget)
        notices.subscribe("members", lambda _: self._roles.clear())
        notices.subscribe("organisation", self._organisation_changed)

    async def app(self, app_id: object) -> App:
        """Returns an app. Raises AppNotFound, also for what is not the text of an id."""
        app = self.cached_app(app_id)
        if app is None and isinstance(app_id, str) and APP_ID_PATTERN.fullmatch(app_id):
            app = await self._apps.get(app_id)
        if app is None:
            raise AppNotFound
        return app

    def cached_app(self, app_id: object) -> App | None:
        """Returns an app if it is in memory, else None."""
        return self._apps.find_cached(app_id) if isinstance(app_id, str) else None

    async def is_gone(self, app_id: str) -> bool:
        """Returns whether the app no longer exists, asking the database and not the cache."""
        return await self._first(select(apps.c.id).where(apps.c.id == app_id)) is None

    async def app_id_at(self, subdomain: str) -> str | None:
        """Returns the id of the app with a subdomain; None if no app has it."""
        return await self._subdomains.get(subdomain)

    async def app_id_at_domain(self, hostname: str) -> str | None:
        """Returns the id of the app that holds a custom domain; None if no app does."""
        return await self._domains.get(hostname)

    async def app_id_of_anon_key(self, anon_key: str) -> str | None:
        """Returns the id of the app with an anon key; None if no app has it."""
        return await self._anon_keys.get(anon_key)

    async def key(self, digest: str) -> Key | FunctionKey | None:
        """Returns the live key with a digest; None if there is none."""
        return await self._keys.get(digest)

    async def name(self, credential: str) -> str | None:
        """Returns the name behind a credential, as `find_name` does, at most half a minute old."""
        return await self._names.get(credential)

    async def role(self, organisation_id: str, account_id: str) -> Role | None:
        """Returns the role of an account in an organisation; None if it is not a member."""
        return await self._roles.get((organisation_id, account_id))

    def cached_role(self, organisation_id: str, account_id: str) -> Role | None:
        """Returns a role if it is in memory, else None."""
        return self._roles.find_cached((organisation_id, account_id))

    def cached_plan(self, organisation_id: str) -> Plan | None:
        """Returns the plan of an organisation if it is in memory, else None."""
        return self._plans.find_cached(organisation_id)

    async def plan(self, organisation_id: str) -> Plan:
        """Returns the plan of an organisation; the one with the narrowest limits if there is no such organisation."""
        return await self._plans.get(organisation_id) or PLANS["playground"]

    def _organisation_changed(self, _: str) -> None:
        self._apps.clear()
        self._plans.clear()

    def _app_changed(self, app_id: str) -> None:
        self._apps.forget(app_id)
        # Anybody can create an app: that must not clear what is known of all the others.
        self._subdomains.forget_value(app_id)
        self._domains.forget_value(app_id)
        self._anon_keys.forget_value(app_id)

    async def _first(self, statement: Select[Any]) -> Any:
        return (await self._database.execute(statement)).first()

    async def _load_app(self, app_id: str) -> App | None:
        row = await self._first(
            select(apps, organisations.c.plan, _DOMAINS)
            .join(organisations, organisations.c.id == apps.c.organisation_id)
            .where(apps.c.id == app_id)
        )
        return row and App(
            id=row.id,
            organisation_id=row.organisation_id,
            name=row.name,
            title=row.display_name or row.name,
            subdomain=row.subdomain,
            region=row.region,
            access_mode=row.access_mode,
            visibility=row.visibility,
            allowed_origins=frozenset(row.allowed_origins),
            is_paused=row.paused_at is not None,
            paused_reason=row.paused_reason,
            anon_key=row.anon_key,
            plan=PLANS[row.plan],
            access_token_seconds=_TOKEN_SECONDS[row.jwt_config.get("accessTokenTtl", "1h")],
            session_days=row.jwt_config.get("refreshTokenTtlDays", 7),
            storage_config=row.storage_config,
            user_tools=frozenset(row.user_tools),
            domains=frozenset(row.domains.split(",") if row.domains else ()),
        )

    async def _load_subdomain(self, subdomain: str) -> str | None:
        row = await self._first(select(apps.c.id).where(apps.c.subdomain == subdomain))
        return row and cast(str, row.id)

    async def _load_domain(self, hostname: str) -> str | None:
        row = await self._first(select(custom_domains.c.app_id).where(custom_domains.c.held_name == hostname))
        return row and cast(str, row.app_id)

    async def _load_anon_key(self, anon_key: str) -> str | None:
        row = await self._first(select(apps.c.id).where(apps.c.anon_key == anon_key))
        return row and cast(str, row.id)

    async def _load_key(self, digest: str) -> Key | FunctionKey | None:
        columns = (
            api_keys.c.id,
            api_keys.c.organisation_id,
            api_keys.c.account_id,
            api_keys.c.app_id,
            api_keys.c.scopes,
            api_keys.c.toolsets,
            api_keys.c.read_only,
            api_keys.c.approval,
            api_keys.c.asks,
            api_keys.c.only_app_id,
            api_keys.c.ends_at,
            api_keys.c.expires_at,
            self._credits.has_budget_column,
        )
        row = await self._first(select(*columns).where(api_keys.c.digest == digest, api_keys.c.revoked_at.is_(None)))
        if row:
            until = None if row.expires_at is None else row.expires_at.timestamp()
            scopes, limits = frozenset(row.scopes), Limits.of(row)
            return Key(row.id, row.organisation_id, row.account_id, row.app_id, scopes, limits, until)
        row = await self._first(select(apps.c.id).where(apps.c.function_key_digest == digest))
        return row and FunctionKey(row.id)

    async def _load_plan(self, organisation_id: str) -> Plan | None:
        row = await self._first(select(organisations.c.plan).where(organisations.c.id == organisation_id))
        return row and PLANS[row.plan]

    async def _load_name(self, credential: str) -> str | None:
        return await find_name(self._database.execute, credential)

    async def _load_role(self, member: tuple[str, str]) -> Role | None:
        row = await self._first(
            select(members.c.role).where(members.c.organisation_id == member[0], members.c.account_id == member[1])
        )
        return row and cast(Role, row.role)
