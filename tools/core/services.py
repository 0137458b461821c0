"""The services that tools use, built once at start and injected into every call."""

from collections.abc import Awaitable, Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal, Protocol, TypeVar

from baobab.storage.clock import Clock, Ids
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database
from baobab.storage.sql.notices import Notices
from baobab.tools.core.app_events import Subscriptions
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.signing import Signers
from baobab.tools.core.errors import Unavailable
from baobab.tools.core.failures import Failures
from baobab.tools.core.guard.approvals import Approvals
from baobab.tools.core.jobs import Jobs
from baobab.tools.core.lifecycle import Lifecycle
from baobab.tools.core.limits.credits import Credits
from baobab.tools.core.limits.rate_limits import Limiter
from baobab.tools.core.liveness import Liveness
from baobab.tools.core.mail import Mailer
from baobab.tools.core.stores import Cell, Stores

T = TypeVar("T")


class HttpClient(Protocol):
    """The guarded client for all outgoing requests."""

    async def request(self, method: str, url: str, **options: Any) -> Any: ...


@dataclass(frozen=True, slots=True)
class Options:
    """The settings that tools need."""

    base_url: str
    base_domain: str
    default_plan: str
    default_region: str
    cells: Mapping[str, Cell]
    """Every region of the settings by name, the installation's own first."""
    signup_open: bool
    data: Path
    """The folder of the installation."""
    version: str
    ai_markup: int = 0
    """The percentage added to the prices of providers."""
    ai_drop_params: bool = False
    ai_web_search: Literal["drop", "refuse", "allow"] = "drop"
    simulators: bool = False
    """Whether simulators answer where no real provider is set (tools/core/simulators.py)."""
    run_retention_days: int = 90
    """How many days ended runs of agents are kept; 0 keeps them for ever."""
    undo_days: int = 7
    """How many days the former contents of changed rows of apps' tables are kept, for undo."""
    undo_bytes: int = 64 * 2**20
    """The most bytes of that in each app."""
    slow_seconds: float = 0.2
    """A statement on an app's tables that takes longer is listed as slow."""
    realtime_connections: int = 1000
    """The most connections that may follow one app's changes, in each worker."""
    allowed_hosts: tuple[str, ...] = ()
    """Further host names by which clients may reach the server."""
    files_domain: str = ""
    """The domain below which each app's files have a host of their own, if there is one."""
    sites_domain: str = ""
    """The domain below which each app's site has its host; empty: below `base_domain`, where its API has one too."""

    npm_registry: str = ""
    """The address of the registry from which functions get packages; empty: they get none."""

    def build_address(self, host: str) -> str:
        """Returns the address of another host name of this server, with the scheme and the port of its own."""
        scheme, _, authority = self.base_url.partition("://")
        port = authority.rpartition(":")[2] if ":" in authority.rpartition("]")[2] else ""
        return f"{scheme}://{host}" + (f":{port}" if port else "")

    def build_site_address(self, label: str) -> str:
        """Returns the address of the site of the app with a subdomain, or of the preview with a label."""
        return self.build_address(f"{label}.{self.sites_domain or self.base_domain}".lower())

    def build_files_address(self, app_id: str) -> str:
        """Returns the address at which the files of an app are served."""
        if not self.files_domain:
            return self.base_url
        # A host name has no underscores.
        return self.build_address(f"{app_id.replace('_', '-')}.{self.files_domain}")


@dataclass(frozen=True, slots=True)
class Services:
    options: Options
    clock: Clock
    ids: Ids
    vault: Vault
    database: Database
    regions: Mapping[str, Stores]
    """The stores of every region that has been opened. Those that do not answer at the start come later."""
    notices: Notices
    limits: Limiter
    directory: Directory
    signers: Signers
    credentials: Credentials
    audit_log: AuditLog
    failures: Failures
    approvals: Approvals
    jobs: Jobs
    credits: Credits
    http_client: HttpClient
    mailer: Mailer
    subscriptions: Subscriptions
    parts: Mapping[type, object] = field(default_factory=dict)
    """Further services of engines and domains, by class."""
    lifecycle: Lifecycle = field(default_factory=Lifecycle)
    liveness: Liveness = field(default_factory=Liveness)
    silent_regions: set[str] = field(default_factory=set)
    """Further regions that did not answer when they were last asked."""
    flushes: list[Callable[[], Awaitable[None]]] = field(default_factory=list)
    """Functions that write what was answered a moment ago. They are called every second, and when the application
    closes.
    """
    _own: dict[Any, Any] = field(default_factory=dict)

    def stores_of(self, region: str) -> Stores:
        """Returns the stores of a region. Raises Unavailable if they are not open, or the region is not served here."""
        stores = self.regions.get(region)
        if stores is None:
            is_served = region in self.options.cells
            raise Unavailable(
                f"The stores of the region `{region}` do not answer."
                if is_served
                else f"The app lives in the region `{region}`, which this installation does not serve."
            )
        return stores

    @property
    def closed_regions(self) -> list[str]:
        """The regions whose stores have not answered since the start."""
        return [name for name in self.options.cells if name not in self.regions]

    def part(self, kind: type[T]) -> T:
        """Returns the part of the application that has a type. Raises KeyError if it has none."""
        instance = self.parts[kind]
        assert isinstance(instance, kind)
        return instance

    def of(self, kind: "Callable[[Services], T]") -> T:
        """Returns a domain's own service, such as a cache of its rules; built at first use, once per application."""
        instance: T | None = self._own.get(kind)
        if instance is None:
            instance = self._own[kind] = kind(self)
        return instance
