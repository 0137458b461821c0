"""The composition root: builds the running application from the settings. The only module that knows every part."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from baobab import __version__, tools
from baobab.region_stores import RegionStores, RegionUnavailable, RegionWatch
from baobab.runtime.agents.job_kinds import ADVANCE
from baobab.runtime.functions.engine import FunctionEngine
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.providers import list_providers, parse_servers
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts
from baobab.runtime.gateway.startup import open_gateway
from baobab.runtime.integrations.opening import Integrations, open_integrations
from baobab.runtime.jobs.jobs import DurableJobs
from baobab.runtime.meetings.opening import Meetings, open_meetings
from baobab.runtime.net.egress import Egress
from baobab.runtime.net.record_resolver import RecordResolver
from baobab.runtime.net.smtp import SmtpServer
from baobab.runtime.tracing import Tracing, open_tracing
from baobab.settings import Settings
from baobab.storage import secrets
from baobab.storage.clock import Clock, Ids, SystemClock
from baobab.storage.kv.errors import KvError
from baobab.storage.objects.errors import ObjectError
from baobab.storage.secrets import Vault
from baobab.storage.sql.database import Database, DatabaseUnavailable
from baobab.storage.sql.notices import Notices
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.windows import SlidingWindows
from baobab.tools.ai.model_calls import wait_for_endings
from baobab.tools.approvals.errors import CallOutdated
from baobab.tools.approvals.service import ApprovalService
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.signing import PLATFORM, Signers
from baobab.tools.core.failures import Failures
from baobab.tools.core.guard.proposals import Decisions, Proposals
from baobab.tools.core.limits.rate_limits import Limiter, RateLimits, SharedRateLimits
from baobab.tools.core.liveness import Liveness
from baobab.tools.core.own_door import OwnDoor
from baobab.tools.core.registry import Registry
from baobab.tools.core.services import HttpClient, Options, Services
from baobab.tools.core.setting import InstallationSettings
from baobab.tools.core.stores import Cell
from baobab.tools.core.toolset import Toolset
from baobab.tools.mail.mailer import OutboxMailer, Postbox
from baobab.tools.people.providers.enrich_layer import EnrichLayer
from baobab.tools.people.providers.exa import Exa
from baobab.tools.people.providers.port import PeopleProvider
from baobab.tools.people.providers.simulator import Simulator
from baobab.tools.people.slots import Slot, SlotName, Slots, parse_routes
from baobab.tools.triggers.subscriptions import TriggerSubscriptions
from baobab.tools.users.session_check import SessionCheck
from baobab.waiting import Waiting, survey_calls, survey_runs

_FLUSH_SECONDS = 1.0
_SWEEP_SECONDS = 30.0
_LIMITS_TIMEOUT_SECONDS = 0.5

MaintenanceTasks = Sequence[Callable[[], Awaitable[object]]]

_log = logging.getLogger(__name__)


@dataclass(frozen=True)
class Application:
    """A running installation."""

    settings: Settings
    services: Services
    registry: Registry
    waiting: Waiting
    """What waited for a person at the start."""


def load_vault(settings: Settings) -> Vault:
    if settings.secret_key:
        return Vault(secrets.decode_keys(settings.secret_key))
    return Vault(secrets.load_or_create(settings.secret_file))


@contextlib.asynccontextmanager
async def open_application(
    settings: Settings,
    *,
    clock: Clock | None = None,
    ids: Ids | None = None,
    further: Sequence[Toolset] = (),
    environment: Mapping[str, str] | None = None,
    every_region: bool = False,
) -> AsyncIterator[Application]:
    """Opens every store, migrates the databases and starts the background tasks; closes all of it on exit.

    further: toolsets beside our own. environment: the variables that hold the keys of model providers. Without it there
    is only the built-in model, and no model servers are looked for on this machine.
    every_region: raise RegionUnavailable if the stores of a further region do not answer, instead of opening them when
    they do.
    """
    clock, ids = clock or SystemClock(), ids or Ids()
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret_vault = load_vault(settings)
    registry = Registry((*tools.toolsets(), *further))
    async with contextlib.AsyncExitStack() as stack:
        region_stores = RegionStores(settings, clock)
        stack.push_async_callback(region_stores.close)
        database = await region_stores.open_own()
        options = build_options(settings)
        further_regions = [name for name in options.cells if name != settings.region]
        await _open_further_regions(region_stores, further_regions, every_region=every_region)
        regions = region_stores.opened_stores
        own_notices = Notices(database, clock, ids)
        credits_ = Credits(database, clock, ids)
        directory = Directory(database, clock, own_notices, credits_)
        signers = Signers(database, clock, ids, secret_vault, own_notices)
        # The first start creates the platform's key pair. Later starts fail here if they do not have the secret key
        # that encrypted it, instead of at the first secret that a call needs.
        await signers.public_keys(PLATFORM)
        liveness = Liveness()
        await liveness.load(database, settings.data, own_notices, clock)
        http_client = Egress(allow=settings.egress_allow, require_open=liveness.require_live)
        stack.push_async_callback(http_client.close)
        audit_log = AuditLog(database, clock, ids)
        subscriptions = TriggerSubscriptions(registry.app_events)
        jobs = DurableJobs(registry.jobs.values(), clock, ids, subscriptions)
        stack.push_async_callback(credits_.close)
        own_port = settings.port if environment is not None and settings.ai_probe else None
        gateway = await stack.enter_async_context(
            open_gateway(
                environment or {},
                parse_servers(settings.ai_servers),
                http_client,
                clock,
                ids,
                own_port=own_port,
                retry_timeouts=RetryTimeouts(
                    settings.ai_first_seconds, settings.ai_between_seconds, settings.ai_total_seconds
                ),
                wait_until_open=liveness.wait_until_live if liveness.is_copy else None,
            )
        )
        tracing = await stack.enter_async_context(open_tracing(settings.otel_url, content=settings.trace_content))
        media = Media(gateway.catalogue, list_providers(environment or {}), http_client)
        stack.push_async_callback(media.close)
        # The usage of streams that are still open at the stop is recorded before the ledger closes.
        stack.push_async_callback(wait_for_endings)
        engine = FunctionEngine()
        stack.push_async_callback(engine.close)
        approvals = ApprovalService(database, clock, ids, secret_vault, audit_log, jobs, own_notices, settings.address)
        services = Services(
            options=options,
            clock=clock,
            ids=ids,
            vault=secret_vault,
            database=database,
            regions=regions,
            notices=own_notices,
            limits=await stack.enter_async_context(_open_limiter(settings, clock)),
            directory=directory,
            signers=signers,
            credentials=Credentials(directory, signers, SessionCheck(directory, regions, clock), clock, own_notices),
            audit_log=audit_log,
            failures=Failures(regions, options.cells, clock),
            approvals=approvals,
            jobs=jobs,
            credits=credits_,
            http_client=http_client,
            mailer=OutboxMailer(build_postbox(settings), directory, secret_vault, jobs, clock, ids, liveness),
            subscriptions=subscriptions,
            liveness=liveness,
            parts={
                Proposals: approvals.proposals,
                Decisions: approvals.decisions,
                Credits: credits_,
                Gateway: gateway,
                Media: media,
                FunctionEngine: engine,
                OwnDoor: OwnDoor(),
                Meetings: open_meetings(
                    settings.meetings_provider,
                    settings.meetings_key,
                    settings.meetings_url,
                    settings.meetings_webhook_secret,
                    http_client,
                    clock,
                    simulated=options.simulators,
                ),
                Integrations: open_integrations(
                    settings.integrations,
                    settings.integrations_key,
                    settings.integrations_url,
                    settings.integrations_webhook_secret,
                    settings.integrations_clients,
                    http_client,
                    clock,
                    options.base_url,
                    simulated=options.simulators,
                ),
                Slots: build_slots(settings, http_client),
                RecordResolver: RecordResolver(settings.dns_resolvers, liveness.require_live),
                InstallationSettings: InstallationSettings(settings.list_for_operator()),
                **({} if tracing is None else {Tracing: tracing}),
            },
        )
        registry.bind(services)
        subscriptions.bind(services)
        work = _RegionWork(services, jobs, registry, settings.jobs, {database: own_notices})
        stack.push_async_callback(work.stop_notices)
        await stack.enter_async_context(_run_housekeeping(services))
        stack.push_async_callback(jobs.stop)
        await work.start(settings.region)
        for name in further_regions:
            # One that has just stopped to answer is begun by the watch.
            with contextlib.suppress(DatabaseUnavailable):
                await work.start(name)
        if further_regions:
            watch = RegionWatch(region_stores, further_regions, services.silent_regions, work.start)
            watch.start()
            stack.push_async_callback(watch.stop)
        yield Application(settings, services, registry, await _survey_waiting(services, registry, approvals))


async def _survey_waiting(services: Services, registry: Registry, approvals: ApprovalService) -> Waiting:
    """Looks at what waits for a person. What no server can go on with any more, since it was upgraded, is refused now
    and not after somebody has approved it.
    """
    waiting = await survey_calls(services.database, services.vault, registry, services.clock.now())
    for call in waiting.outdated_calls:
        if call.is_lost:
            await approvals.refuse_outdated(call.id, CallOutdated(call.reason))
    for database in {stores.database for stores in services.regions.values()}:
        with contextlib.suppress(DatabaseUnavailable):
            of_region = await survey_runs(database)
            waiting += of_region
            for run in of_region.outdated_runs:
                if run.is_lost:
                    async with database.writing_unit(lock=None) as unit:
                        arguments, job_id = {"run_id": run.id}, f"run:{run.id}:outdated"
                        await services.jobs.enqueue(unit, ADVANCE, arguments, job_id=job_id)
    return waiting


class _RegionWork:
    """The background work for each database: notices, and durable jobs."""

    def __init__(
        self,
        services: Services,
        jobs: DurableJobs,
        registry: Registry,
        at_once: int,
        notices: dict[Database, Notices],
    ) -> None:
        """notices: those that are not started yet."""
        self._services = services
        self._jobs = jobs
        self._registry = registry
        self._at_once = at_once
        self._notices = notices
        self._started_databases: set[Database] = set()

    async def start(self, region: str) -> None:
        """Starts it for the database of a region that is open, once. Raises DatabaseUnavailable."""
        services, stores = self._services, self._services.regions.get(region)
        if stores is None or stores.database in self._started_databases:
            return
        database = stores.database
        # Before the first wait: regions that share a database may come at the same time.
        self._started_databases.add(database)
        notices = self._notices.setdefault(database, Notices(database, services.clock, services.ids))
        try:
            await notices.start()
        except DatabaseUnavailable:
            self._started_databases.discard(database)
            raise
        if self._at_once:
            await self._jobs.start(self._registry, {database: notices}, services.database, self._at_once)

    async def stop_notices(self) -> None:
        for database in self._started_databases:
            await self._notices[database].stop()


async def _open_further_regions(regions: RegionStores, names: Iterable[str], *, every_region: bool) -> None:
    """Opens the regions beside the installation's own. Those that do not answer stay closed, unless every one is
    needed.
    """
    for name in names:
        try:
            await regions.open_further(name)
        except RegionUnavailable as exc:
            if every_region:
                raise
            _log.error("%s; its apps are answered with 503 until it does", exc)


@contextlib.asynccontextmanager
async def _open_limiter(settings: Settings, clock: Clock) -> AsyncIterator[Limiter]:
    """Opens the rate limiter: shared by all workers if there is a Valkey, else one for each worker."""
    if not settings.valkey_url:
        yield RateLimits(clock)
        return
    pipeline = Pipeline(settings.valkey_url, timeout=_LIMITS_TIMEOUT_SECONDS)
    with contextlib.suppress(ValkeyUnavailable):
        # It keeps trying to connect; until then each worker counts by itself.
        await pipeline.open()
    try:
        yield SharedRateLimits(SlidingWindows(pipeline), clock)
    finally:
        await pipeline.close()


def build_options(settings: Settings) -> Options:
    host = urlsplit(settings.address).hostname or "localhost"
    # An IP address cannot have subdomains; every `*.localhost` resolves to this machine.
    nameless = host == "localhost" or host.replace(".", "").isdigit() or ":" in host
    return Options(
        base_url=settings.address,
        allowed_hosts=tuple(settings.allowed_hosts),
        files_domain=settings.files_domain,
        sites_domain=settings.sites_domain,
        base_domain="localhost" if nameless else host,
        default_plan=settings.plan,
        default_region=settings.region,
        cells={
            name: Cell(name, place.geography or name, place.max_apps or None)
            for name, place in settings.all_regions.items()
        },
        signup_open=settings.signup == "open",
        data=settings.data,
        version=__version__,
        ai_markup=settings.ai_markup,
        ai_drop_params=settings.ai_drop_params,
        ai_web_search=settings.ai_web_search,
        simulators=settings.simulators_on,
        run_retention_days=settings.run_retention_days,
        realtime_connections=settings.realtime_connections,
        undo_days=settings.undo_days,
        undo_bytes=settings.undo_megabytes * 2**20,
        slow_seconds=settings.slow_statement_ms / 1000,
    )


def build_slots(settings: Settings, client: HttpClient) -> Slots:
    """Builds the slots of people: those of real providers, else the simulator in each, if simulators are on."""
    wires: dict[str, Callable[[HttpClient, str, str], PeopleProvider]] = {"enrich_layer": EnrichLayer, "exa": Exa}
    slot_settings: dict[SlotName, tuple[str, str, str]] = {
        "primary": (settings.people_primary, settings.people_primary_key, settings.people_primary_url),
        "secondary": (settings.people_secondary, settings.people_secondary_key, settings.people_secondary_url),
        "tertiary": (settings.people_tertiary, settings.people_tertiary_key, settings.people_tertiary_url),
    }
    slots = {
        name: Slot(name, wires[provider](client, key, url), settings.people_price_percent)
        for name, (provider, key, url) in slot_settings.items()
        if provider
    }
    if not slots and settings.simulators_on:
        slots = {name: Slot(name, Simulator(), settings.people_price_percent) for name in slot_settings}
    return Slots(slots, parse_routes(settings.people_routes), settings.people_live, bool(settings.base_url))


def build_postbox(settings: Settings) -> Postbox:
    """Says where mails go. Without a sender's address of its own, the installation sends as its host."""
    host = urlsplit(settings.address).hostname or "localhost"
    server = SmtpServer.parse(settings.smtp_url) if settings.smtp_url else None
    return Postbox(server, settings.mail_from or f"no-reply@{host}")


@contextlib.asynccontextmanager
async def _run_housekeeping(services: Services) -> AsyncIterator[None]:
    """Runs the periodic maintenance tasks while the application is open, and a last flush when it closes."""

    def list_flushes() -> MaintenanceTasks:
        audit, failures = services.audit_log.flush, services.failures.flush
        return (audit, failures, partial(services.credentials.flush, services.database), *services.flushes)

    def list_sweeps() -> MaintenanceTasks:
        stores = list(services.regions.values())
        look_again = partial(services.liveness.look_again, services.database)
        sweeps = (*(each.kv.sweep for each in stores), *(each.objects.sweep for each in stores))
        return (services.notices.prune, look_again, *sweeps)

    rounds = (("flush", _FLUSH_SECONDS, list_flushes), ("sweep", _SWEEP_SECONDS, list_sweeps))
    tasks = [asyncio.create_task(_run_periodically(seconds, works), name=name) for name, seconds, works in rounds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _run_each(list_flushes())


async def _run_periodically(seconds: float, list_works: Callable[[], MaintenanceTasks]) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _run_each(list_works())


async def _run_each(works: MaintenanceTasks) -> None:
    """Runs every task, even if another one fails because its store does not answer."""
    for work in works:
        try:
            await work()
        except (DatabaseUnavailable, KvError, ObjectError) as exc:
            _log.warning("housekeeping: a store does not answer (%s)", type(exc).__name__)
        except Exception:  # noqa: BLE001 - the next task and the next round must still run
            _log.exception("housekeeping: a round failed")
