"""Settings: environment variables with the prefix BAOBAB_. A wrong or unknown variable is an error of one line."""

import difflib
import os
import re
from collections.abc import Mapping
from ipaddress import ip_network
from pathlib import Path
from typing import Annotated, Any, Literal
from urllib.parse import urlsplit

from pydantic import Field, ValidationError, ValidationInfo, field_validator
from pydantic_settings import BaseSettings, NoDecode, PydanticBaseSettingsSource, SettingsConfigDict

from baobab.addresses import DatabaseUrl, KvPlace, NoticesUrl, ObjectsUrl, RegionName, ValkeyUrl
from baobab.regions import Region, read_regions
from baobab.runtime.gateway.providers import parse_servers
from baobab.runtime.integrations.provider import parse_client
from baobab.runtime.meetings.provider import ProviderName
from baobab.runtime.net.nameservers import parse_nameserver
from baobab.runtime.net.smtp import SmtpServer
from baobab.storage.secrets import decode_keys
from baobab.tools.core.limits.plans import PLANS
from baobab.tools.core.setting import Setting
from baobab.tools.core.simulators import Simulators, are_simulators_on

PREFIX = "BAOBAB_"
CLIENT_URL, CLIENT_KEY, CLIENT_APP = "BAOBAB_URL", "BAOBAB_KEY", "BAOBAB_APP"
"""Variables of the commands that call a server (cli/client); the server itself has no use for them."""
_EVERYWHERE = ("0.0.0.0", "::")  # noqa: S104 - compared with, not bound to
PeopleProvider = Literal["", "enrich_layer", "exa"]
_PEOPLE_ROUTE = re.compile(r"(search_person|search_company|profile|profile_email)=(primary|secondary|tertiary)")
WordList = Annotated[tuple[str, ...], NoDecode]
_INTEGRATION_PROVIDERS = ("oauth", "composio")
_LIVE_PROVIDERS = ("integrations", "meetings_provider", "people_primary", "people_secondary", "people_tertiary")
"""The settings that name a real provider of integrations, meetings or people."""


class SettingsError(Exception):
    """A setting is wrong. The message is one line that names the variable and says what it takes."""


class Settings(BaseSettings):
    """The settings of an installation. Create them with `load_settings`, which refuses unknown variables."""

    model_config = SettingsConfigDict(env_prefix=PREFIX, extra="forbid", frozen=True)

    data: Path = Field(
        Path("data"),
        description="The data folder: database, keys and values, files. It is created if it does not exist.",
    )
    host: str = Field("127.0.0.1", description="Address to listen on.")
    port: int = Field(8000, ge=1, le=65535, description="Port to listen on.")
    workers: int = Field(1, ge=1, le=64, description="Number of server processes.")
    drain_seconds: int = Field(
        0,
        ge=0,
        le=600,
        description="Seconds after SIGTERM in which the server still takes requests; `/health/ready` says `draining`.",
    )
    base_url: str = Field(
        "", description="Address at which clients reach the server; if empty, `BAOBAB_HOST` and `BAOBAB_PORT`."
    )
    database_url: DatabaseUrl = Field(
        "", description="Database: `sqlite:///FILE` or `postgresql://...`; if empty, a file in the data folder."
    )
    notices_url: NoticesUrl = Field(
        "",
        description="Address of Postgres itself, for `LISTEN`, if `BAOBAB_DATABASE_URL` is that of a pooler; if empty, "
        "the same address.",
    )
    valkey_url: ValkeyUrl = Field(
        "",
        description="Valkey or Redis for rate limits and, with `BAOBAB_KV=valkey`, keys and values: `redis://...`; if "
        "empty, none.",
    )
    kv: KvPlace = Field(
        "database",
        description="Where the key-value store is: in the database, or in Valkey (needs `BAOBAB_VALKEY_URL`).",
    )
    objects_url: ObjectsUrl = Field(
        "",
        description="Where files are stored: `s3://BUCKET/PREFIX` or `file:///FOLDER`; if empty, `objects` in the data "
        "folder.",
    )
    jobs: int = Field(
        8,
        ge=0,
        le=1000,
        description="Durable jobs that a process runs at the same time; 0 leaves them to other processes.",
    )
    secret_key: str = Field(
        "",
        repr=False,
        description="Keys that encrypt secrets: base64url of 32 bytes, comma separated, newest first; if empty, "
        "`secret.key` in the data folder.",
    )
    bootstrap_key: str = Field(
        "",
        repr=False,
        pattern=r"^(bb_sk_[A-Za-z0-9]{40})?$",
        description="API key of the first account, if you want to choose it: `bb_sk_` and 40 letters or digits.",
    )
    log_level: Literal["debug", "info", "warning", "error"] = Field(
        "info", description="Lowest severity that is logged."
    )
    access_log: float = Field(
        0.01, ge=0, le=1, description="Share of requests that are logged, 0 to 1; answers with 5xx are always logged."
    )
    region: RegionName = Field("local", description="Name of this installation's own region.")
    geography: RegionName | Literal[""] = Field(
        "", description="Geography of this installation's own region, which others may share; its own name if empty."
    )
    max_apps: int = Field(
        0, ge=0, description="Largest number of apps in this installation's own region; 0 for any number."
    )
    regions: str = Field(
        "", description="TOML file of further regions: one table per region, with the addresses of its stores."
    )
    ai_servers: str = Field(
        "",
        description="Your own model servers that speak OpenAI's wire format: `name=https://HOST/v1`, comma separated.",
    )
    ai_markup: int = Field(0, ge=0, le=200, description="Percent added to what providers charge for models.")
    ai_drop_params: bool = Field(
        default=False,
        description="Whether parameters that a model does not support are left out instead of being refused.",
    )
    ai_web_search: Literal["drop", "refuse", "allow"] = Field(
        "drop",
        description="What happens to a provider's `web_search` tool: left out, refused, or passed on at your expense.",
    )
    ai_first_seconds: float = Field(
        600, ge=1, le=7200, description="Longest wait for the first byte of a model's stream, in seconds."
    )
    ai_between_seconds: float = Field(
        600, ge=1, le=7200, description="Longest silence within a model's stream, in seconds."
    )
    ai_total_seconds: float = Field(
        1200, ge=1, le=7200, description="Longest time of a call to a model, with all its retries, in seconds."
    )
    ai_probe: bool = Field(
        default=True, description="Whether the server looks for model servers on this machine, such as Ollama."
    )
    simulators: Simulators = Field(
        "auto",
        description="Whether simulators stand in for integrations, meetings and people; `auto`: on loopback, if no "
        "provider is set.",
    )
    integrations: WordList = Field(
        (),
        description="Providers of integrations, first choice first: `oauth` (the services themselves), `composio`; if "
        "empty, none.",
    )
    integrations_clients: WordList = Field(
        (),
        repr=False,
        description="The operator's OAuth clients for `oauth`, such as `gmail=ID:SECRET,slack=ID:SECRET`; apps may "
        "bring their own.",
    )
    integrations_key: str = Field("", repr=False, description="API key of Composio.")
    integrations_url: str = Field(
        "", description="Address of Composio, if not its own public one: `https://backend.composio.dev`."
    )
    integrations_webhook_secret: str = Field(
        "",
        repr=False,
        description="Secret with which Composio signs webhooks; without it, they are refused, and expired accounts are "
        "noticed at their next call.",
    )
    npm_registry: str = Field(
        "",
        description="Address of the npm registry from which functions get what they import as `npm:NAME`; if empty, "
        "they cannot.",
    )
    meetings_provider: ProviderName = Field(
        "", description="Provider of meeting bots: `recall` (Recall.ai), `attendee` or `vexa`; if empty, none."
    )
    meetings_key: str = Field("", repr=False, description="API key for the provider of meeting bots.")
    meetings_url: str = Field(
        "",
        description="Address of the provider of meeting bots, if not its own public one: "
        "`https://eu-central-1.recall.ai`.",
    )
    meetings_webhook_secret: str = Field(
        "",
        repr=False,
        description="Secret with which the provider of meeting bots signs webhooks; without it, they are refused and "
        "bots are polled every 20 seconds.",
    )
    people_primary: PeopleProvider = Field(
        "", description="Provider of people in the slot `primary`: `enrich_layer` or `exa`; if empty, none."
    )
    people_primary_key: str = Field("", repr=False, description="API key of the provider of people in `primary`.")
    people_primary_url: str = Field(
        "", description="Address of the API of the provider in `primary`; if empty, the provider's own."
    )
    people_secondary: PeopleProvider = Field(
        "", description="Provider of people in the slot `secondary`: `enrich_layer` or `exa`; if empty, none."
    )
    people_secondary_key: str = Field("", repr=False, description="API key of the provider of people in `secondary`.")
    people_secondary_url: str = Field(
        "", description="Address of the API of the provider in `secondary`; if empty, the provider's own."
    )
    people_tertiary: PeopleProvider = Field(
        "", description="Provider of people in the slot `tertiary`: `enrich_layer` or `exa`; if empty, none."
    )
    people_tertiary_key: str = Field("", repr=False, description="API key of the provider of people in `tertiary`.")
    people_tertiary_url: str = Field(
        "", description="Address of the API of the provider in `tertiary`; if empty, the provider's own."
    )
    people_routes: WordList = Field(
        (),
        description="Slots of single actions, such as `search_person=secondary`; else the first slot with a provider.",
    )
    people_live: bool = Field(
        default=False,
        description="Whether real people may be looked up; read the guide `people` about lawful use first.",
    )
    people_price_percent: int = Field(
        100, ge=0, le=1000, description="Percent of the usual prices that is charged for people; 0 for no price."
    )
    run_retention_days: int = Field(
        90, ge=0, le=3650, description="Days that ended runs are kept, unless their agent says otherwise; 0 for ever."
    )
    realtime_connections: int = Field(
        1000,
        ge=1,
        le=100_000,
        description="Largest number of connections that follow one app's changes, in each worker.",
    )
    undo_days: int = Field(7, ge=1, le=365, description="Days in which changes of rows in apps' tables can be undone.")
    undo_megabytes: int = Field(
        64, ge=1, le=100_000, description="Largest size of each app's log of changed rows, in megabytes."
    )
    row_security: bool = Field(
        default=True,
        description="Whether Postgres itself also checks the policies of apps' tables, by its row-level security.",
    )
    slow_statement_ms: int = Field(
        200,
        ge=0,
        le=60_000,
        description="Milliseconds from which on a statement on an app's tables is listed as slow.",
    )
    plan: str = Field(
        "playground", description=f"Plan of new organisations: {', '.join(f'`{name}`' for name in PLANS)}."
    )
    signup: Literal["open", "closed"] = Field(
        "open", description="Whether strangers can create accounts with `POST /platform/signup`."
    )
    smtp_url: str = Field(
        "",
        repr=False,
        description="Mail server: `smtp://USER:PASSWORD@HOST:587` (must offer STARTTLS) or `smtps://...`; if empty, "
        "mails stay in the outbox.",
    )
    mail_from: str = Field(
        "",
        pattern=r"^([!-?A-~]+@[!-?A-~]+)?$",
        description="Address that mails come from; if empty, `no-reply@` and the host of `BAOBAB_BASE_URL`.",
    )
    allowed_hosts: WordList = Field((), description="Further host names that clients may use, comma separated.")
    files_domain: str = Field(
        "",
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
        max_length=200,
        description="Domain below which each app's files have a host of their own, such as `files.example.com`; "
        "if empty, the API's host.",
    )
    sites_domain: str = Field(
        "",
        pattern=r"^([a-z0-9]([a-z0-9-]*[a-z0-9])?(\.[a-z0-9]([a-z0-9-]*[a-z0-9])?)*)?$",
        max_length=200,
        description="Domain below which each app's site has a host, such as `pages.example`; if empty, that of "
        "`BAOBAB_BASE_URL`.",
    )
    dns_resolvers: WordList = Field(
        ("1.1.1.1", "9.9.9.9"),
        min_length=1,
        max_length=5,
        description="Resolvers that must all see the records of a custom domain: addresses, with a port if it is not "
        "53, comma separated.",
    )
    trusted_proxies: WordList = Field(
        (), description="Proxies whose `X-Forwarded-For` is trusted: addresses or networks, comma separated."
    )
    egress_allow: WordList = Field(
        (),
        description="Private addresses and networks that outgoing requests may reach, such as `127.0.0.1,10.1.0.0/16`.",
    )
    metrics_token: str = Field(
        "",
        repr=False,
        description="Bearer token for `/metrics`; if empty, the one in `metrics.token` in the data folder.",
    )
    otel_url: str = Field(
        "",
        description="OTLP/HTTP collector, such as `http://collector:4318`; if set, every call of a tool or a model is "
        "a span.",
    )
    trace_content: bool = Field(default=False, description="Whether spans of model calls contain prompts and answers.")

    @field_validator(
        "allowed_hosts",
        "dns_resolvers",
        "trusted_proxies",
        "egress_allow",
        "people_routes",
        "integrations",
        "integrations_clients",
        mode="before",
    )
    @classmethod
    def _words(cls, value: Any) -> Any:
        return tuple(word.strip() for word in value.split(",") if word.strip()) if isinstance(value, str) else value

    @field_validator("dns_resolvers")
    @classmethod
    def _resolvers(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            parse_nameserver(word)
        return tuple(dict.fromkeys(value))

    @field_validator("trusted_proxies", "egress_allow")
    @classmethod
    def _networks(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            ip_network(word, strict=False)
        return value

    @field_validator(
        "base_url",
        "otel_url",
        "integrations_url",
        "meetings_url",
        "npm_registry",
        "people_primary_url",
        "people_secondary_url",
        "people_tertiary_url",
    )
    @classmethod
    def _http_address(cls, value: str) -> str:
        if value and (urlsplit(value).scheme not in ("http", "https") or not urlsplit(value).hostname):
            raise ValueError("must be an http:// or https:// address")
        return value.rstrip("/")

    @field_validator("integrations")
    @classmethod
    def _integrations(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if word not in _INTEGRATION_PROVIDERS:
                raise ValueError(f"must be words of {', '.join(_INTEGRATION_PROVIDERS)}, and not {word[:60]}")
        return tuple(dict.fromkeys(value))

    @field_validator("integrations_clients")
    @classmethod
    def _integrations_clients(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            parse_client(word)
        return value

    @field_validator("integrations_key")
    @classmethod
    def _composio_key(cls, value: str, info: ValidationInfo) -> str:
        if bool(value) != ("composio" in info.data.get("integrations", ())):
            raise ValueError(f"must be set together with `composio` in {PREFIX}INTEGRATIONS")
        return value

    @field_validator("people_routes")
    @classmethod
    def _routes(cls, value: tuple[str, ...]) -> tuple[str, ...]:
        for word in value:
            if not _PEOPLE_ROUTE.fullmatch(word):
                raise ValueError(f"must be words such as search_person=secondary, and not {word[:60]}")
        return value

    @field_validator("people_primary_key", "people_secondary_key", "people_tertiary_key")
    @classmethod
    def _provider_key(cls, value: str, info: ValidationInfo) -> str:
        name = (info.field_name or "").removesuffix("_key")
        if bool(value) != bool(info.data.get(name)):
            raise ValueError(f"must be set together with {PREFIX}{name.upper()}")
        return value

    @field_validator("files_domain")
    @classmethod
    def _another_domain(cls, value: str, info: ValidationInfo) -> str:
        if value and value == urlsplit(info.data.get("base_url", "")).hostname:
            raise ValueError("must be another domain than that of BASE_URL, below which apps have their own hosts")
        return value

    @field_validator("sites_domain")
    @classmethod
    def _domain_of_its_own(cls, value: str, info: ValidationInfo) -> str:
        if value and value in (urlsplit(info.data.get("base_url", "")).hostname, info.data.get("files_domain")):
            raise ValueError("must be another domain than that of BASE_URL and of FILES_DOMAIN")
        return value

    @field_validator("regions")
    @classmethod
    def _regions(cls, value: str, info: ValidationInfo) -> str:
        if not value:
            return value
        further, own = read_regions(Path(value)), info.data.get("region", "")
        if own in further:
            raise ValueError(f"{value} names this installation's own region, whose addresses are settings")
        geographies = {name: place.geography or name for name, place in further.items()}
        geographies[own] = info.data.get("geography") or own
        for name, geography in geographies.items():
            if geographies.get(geography, geography) != geography:
                raise ValueError(
                    f"{value}: {name} has the geography {geography}, but the region of this name has another one"
                )
        return value

    @field_validator("secret_key")
    @classmethod
    def _secret(cls, value: str) -> str:
        try:
            if value:
                decode_keys(value)
        except ValueError as exc:
            raise ValueError("must be base64url texts of 32 bytes each, newest first, comma separated") from exc
        return value

    @field_validator("smtp_url")
    @classmethod
    def _smtp(cls, value: str) -> str:
        if value:
            SmtpServer.parse(value)
        return value

    @field_validator("ai_servers")
    @classmethod
    def _servers(cls, value: str) -> str:
        parse_servers(value)
        return value

    @field_validator("plan")
    @classmethod
    def _plan(cls, value: str) -> str:
        if value not in PLANS:
            raise ValueError(f"must be one of {', '.join(PLANS)}")
        return value

    def list_for_operator(self) -> list[Setting]:
        """Returns every setting as text: of a secret only that it is set, of an address neither its user nor its
        query.
        """
        listed_settings: list[Setting] = []
        for name, field in type(self).model_fields.items():
            value = getattr(self, name)
            text = ", ".join(value) if isinstance(value, tuple) else str(value)
            if not field.repr:
                text = "set" if text else ""
            listed_settings.append(
                {
                    "name": name,
                    "value": _hide_credentials(text),
                    "is_default": value == field.get_default(call_default_factory=True),
                    "description": field.description or "",
                }
            )
        return listed_settings

    @property
    def address(self) -> str:
        """The address at which clients reach the server, without a trailing slash."""
        # A wildcard address is not one that a client can connect to; this machine's own is.
        name = "127.0.0.1" if self.host in _EVERYWHERE else self.host
        host = f"[{name}]" if ":" in name else name
        return self.base_url or f"http://{host}:{self.port}"

    @property
    def simulators_on(self) -> bool:
        """Whether simulators answer where no real provider is set."""
        has_live_provider = any(getattr(self, name) for name in _LIVE_PROVIDERS)
        return are_simulators_on(self.simulators, self.host, self.address, has_live_provider=has_live_provider)

    @property
    def rows_url(self) -> str:
        return self.database_url or f"sqlite:///{self.data / 'baobab.db'}"

    @property
    def all_regions(self) -> dict[str, Region]:
        """Every region by name, this installation's own first. Each has the address of its database."""
        own = Region(
            database_url=self.rows_url,
            notices_url=self.notices_url,
            valkey_url=self.valkey_url,
            objects_url=self.objects_url,
            kv=self.kv,
            geography=self.geography,
            max_apps=self.max_apps,
        )
        further_regions = read_regions(Path(self.regions)) if self.regions else {}
        return {self.region: own, **{name: self._with_database(name, place) for name, place in further_regions.items()}}

    def kv_folder(self, region: str) -> Path:
        """Returns the folder of a region's key-value store, if its rows are in files."""
        return self.data / "kv" / region

    def tables_folder(self, region: str) -> Path:
        """Returns the folder of the tables of a region's apps, if its rows are in files."""
        return self.data / "tables" / region

    def _with_database(self, region: str, place: Region) -> Region:
        url = place.database_url or f"sqlite:///{self.data / 'regions' / region}.db"
        return place.model_copy(update={"database_url": url})

    @property
    def secret_file(self) -> Path:
        return self.data / "secret.key"

    @property
    def metrics_file(self) -> Path:
        return self.data / "metrics.token"


def _hide_credentials(text: str) -> str:
    """Returns a text without the users, passwords and queries of the addresses in it."""
    return re.sub(r"\?[^\s,]*", "", re.sub(r"//\S*@", "//", text)) if "://" in text else text


class _IsolatedSettings(Settings):
    """Settings that are read from the arguments alone, not from the process environment."""

    @classmethod
    def settings_customise_sources(
        cls,
        settings_cls: type[BaseSettings],  # noqa: ARG003 - the hook's own signature
        init_settings: PydanticBaseSettingsSource,
        *_: Any,
        **__: Any,
    ) -> tuple[PydanticBaseSettingsSource, ...]:
        return (init_settings,)


def load_settings(environment: Mapping[str, str] | None = None, **overrides: Any) -> Settings:
    """Loads the settings from the environment; overrides (of the command line) that are not None win. Raises
    SettingsError for the first fault.
    """
    known_variables = {PREFIX + name.upper(): name for name in Settings.model_fields}
    for variable in os.environ if environment is None else environment:
        if variable in (CLIENT_URL, CLIENT_KEY, CLIENT_APP):
            continue
        if variable.upper().startswith(PREFIX) and variable not in known_variables:
            # Without the prefix, which would make every name look similar.
            near = difflib.get_close_matches(variable[len(PREFIX) :].lower(), known_variables.values(), n=1)
            known_text = f"; known are {', '.join(sorted(known_variables))}"
            hint = f"; did you mean {PREFIX}{near[0].upper()}?" if near else known_text
            raise SettingsError(f"{variable} is not a setting{hint}")
    values: dict[str, Any] = {
        known_variables[variable]: value
        for variable, value in (environment or {}).items()
        if variable in known_variables
    }
    values |= {name: value for name, value in overrides.items() if value is not None}
    try:
        return Settings(**values) if environment is None else _IsolatedSettings(**values)
    except ValidationError as exc:
        fault = exc.errors(include_url=False)[0]
        name = str(fault["loc"][0]) if fault["loc"] else ""
        message = str(fault["msg"]).removeprefix("Value error, ")
        # The value is left out: it may be a key.
        raise SettingsError(f"{PREFIX}{name.upper()}: {message[0].lower()}{message[1:]}") from exc
