"""The composition root: builds the running application from the settings. The only module that knows every part."""

import asyncio
import contextlib
import logging
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from urllib.parse import urlsplit

from baobab import __version__, tools
from baobab.runtime.egress import Egress
from baobab.runtime.gateway.gateway import Gateway
from baobab.runtime.gateway.media.media import Media
from baobab.runtime.gateway.providers import list_providers, parse_servers
from baobab.runtime.gateway.retry_timeouts import RetryTimeouts
from baobab.runtime.gateway.startup import open_gateway
from baobab.runtime.jobs import DurableJobs
from baobab.runtime.tracing import Tracing, open_tracing
from baobab.settings import Settings
from baobab.storage import secrets
from baobab.storage.clock import Clock, Ids, SystemClock
from baobab.storage.database import Database, DatabaseUnavailable
from baobab.storage.databases import database_at
from baobab.storage.identity import Identity, StoreLost
from baobab.storage.kv.engines import engine_at
from baobab.storage.kv.errors import KvError, StoreUnavailable
from baobab.storage.kv.old_tiers import holds_entries
from baobab.storage.kv.valkey.engine import ValkeyEngine
from baobab.storage.migrate import migrate
from baobab.storage.notices import Notices
from baobab.storage.objects.errors import ObjectError
from baobab.storage.objects.stores import store_at
from baobab.storage.secrets import Vault
from baobab.storage.valkey.errors import ValkeyUnavailable
from baobab.storage.valkey.pipeline import Pipeline
from baobab.storage.valkey.windows import SlidingWindows
from baobab.tools.ai.model_calls import wait_for_endings
from baobab.tools.approvals.service import ApprovalService
from baobab.tools.billing.ledger.credits import Credits
from baobab.tools.core.audit import AuditLog
from baobab.tools.core.auth.credentials import Credentials
from baobab.tools.core.auth.directory import Directory
from baobab.tools.core.auth.signing import PLATFORM, Signers
from baobab.tools.core.failures import Failures
from baobab.tools.core.rate_limits import Limiter, RateLimits, SharedRateLimits
from baobab.tools.core.registry import Registry
from baobab.tools.core.services import Options, Services
from baobab.tools.core.stores import Stores
from baobab.tools.core.toolset import Toolset

_FLUSH_SECONDS = 1.0
_SWEEP_SECONDS = 30.0
_LIMITS_TIMEOUT_SECONDS = 0.5

MaintenanceTasks = Sequence[Callable[[], Awaitable[object]]]

_log = logging.getLogger(__name__)


class RegionUnavailable(Exception):
    """A store of another region could not be opened. The message is one line, for operators."""


@dataclass(frozen=True)
class Application:
    """A running installation."""

    settings: Settings
    services: Services
    registry: Registry


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
) -> AsyncIterator[Application]:
    """Opens every store, migrates the databases and starts the background tasks; closes all of it on exit.

    further: toolsets beside our own. environment: the variables that hold the keys of model providers. Without it there
    is only the built-in model, and no model servers are looked for on this machine.
    """
    clock, ids = clock or SystemClock(), ids or Ids()
    settings.data.mkdir(parents=True, exist_ok=True, mode=0o700)
    secret_vault = load_vault(settings)
    registry = Registry((*tools.toolsets(), *further))
    async with contextlib.AsyncExitStack() as stack:
        regions = await _open_regions(settings, clock, stack)
        database = regions[settings.region].database
        await _require_own_stores(settings, regions, clock)
        notices = {stores.database: Notices(stores.database, clock, ids) for stores in regions.values()}
        own_notices = notices[database]
        credits_ = Credits(database, clock, ids)
        directory = Directory(database, clock, own_notices, credits_)
        signers = Signers(database, clock, ids, secret_vault, own_notices)
        # The first start creates the platform's key pair. Later starts fail here if they do not have the secret key
        # that sealed it, instead of at the first secret that somebody needs.
        await signers.public_keys(PLATFORM)
        http_client = Egress(allow=settings.egress_allow)
        stack.push_async_callback(http_client.close)
        audit_log = AuditLog(database, clock, ids)
        jobs = DurableJobs(registry.jobs.values(), clock, ids)
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
            )
        )
        tracing = await stack.enter_async_context(open_tracing(settings.otel_url, content=settings.trace_content))
        media = Media(gateway.catalogue, list_providers(environment or {}), http_client)
        stack.push_async_callback(media.close)
        # The usage of streams that are still open at the stop is recorded before the ledger closes.
        stack.push_async_callback(wait_for_endings)
        services = Services(
            options=build_options(settings),
            clock=clock,
            ids=ids,
            vault=secret_vault,
            database=database,
            regions=regions,
            notices=own_notices,
            limits=await stack.enter_async_context(_open_limiter(settings, clock)),
            directory=directory,
            signers=signers,
            credentials=Credentials(directory, signers, clock, own_notices),
            audit_log=audit_log,
            failures=Failures(regions, clock),
            approvals=ApprovalService(database, clock, ids, secret_vault, audit_log, jobs, settings.address),
            jobs=jobs,
            credits=credits_,
            http_client=http_client,
            parts={
                Credits: credits_,
                Gateway: gateway,
                Media: media,
                **({} if tracing is None else {Tracing: tracing}),
            },
        )
        registry.bind(services)
        for each in notices.values():
            await each.start()
            stack.push_async_callback(each.stop)
        await stack.enter_async_context(_run_housekeeping(services))
        if settings.jobs:
            await jobs.start(registry, notices, database, settings.jobs)
            stack.push_async_callback(jobs.stop)
        yield Application(settings, services, registry)


async def _open_regions(settings: Settings, clock: Clock, stack: contextlib.AsyncExitStack) -> dict[str, Stores]:
    """Opens the stores of every region. Regions with the same database address share one Database."""
    databases: dict[str, Database] = {}
    regions: dict[str, Stores] = {}
    for name, place in settings.all_regions.items():
        url = place.database_url
        kv = engine_at(settings.kv_folder(name), url, place.valkey_url, clock.time, place.kv)
        try:
            if url not in databases:
                databases[url] = database_at(url)
                await databases[url].open()
                stack.push_async_callback(databases[url].close)
                await migrate(databases[url])
            await kv.open()
            if isinstance(kv, ValkeyEngine):
                await kv.warn_of_loss()
        except (DatabaseUnavailable, StoreUnavailable) as exc:
            if name == settings.region:
                raise
            raise RegionUnavailable(f"the region {name} does not open: {exc.reason}") from exc
        stack.push_async_callback(kv.close)
        regions[name] = Stores(databases[url], kv, store_at(place.objects_url, settings.data / "objects" / name))
    return regions


async def _require_own_stores(settings: Settings, regions: Mapping[str, Stores], clock: Clock) -> None:
    """Raises StoreLost if a store is empty that was not before, belongs to another installation, or holds keys that
    nothing would read.
    """
    own = regions[settings.region].database
    identity = await Identity.load(own, settings.region, clock.now())
    for region, stores in regions.items():
        if stores.database is not own:
            await identity.require_rows(stores.database, region)
        await identity.require_kv(stores.kv, region)
        place = settings.all_regions[region]
        if place.valkey_url and place.kv == "database":
            await _require_nothing_left_in_valkey(region, place.valkey_url, identity.id)
        # With the rows in Postgres, every machine has its own folder of objects.
        shared = place.objects_url.startswith("s3:") or stores.database.dialect == "sqlite"
        try:
            await identity.require_objects(stores.objects, region, shared=shared)
        except ObjectError as exc:
            # Not needed before the first file; until then `/health/ready` reports it.
            _log.warning("objects: the store of the region %s does not answer (%s)", region, type(exc).__name__)
    await identity.remember()


async def _require_nothing_left_in_valkey(region: str, valkey_url: str, installation_id: str) -> None:
    """Raises StoreLost if Valkey holds keys while the key-value store is in the database."""
    try:
        found = await holds_entries(valkey_url, installation_id)
    except ValkeyUnavailable as exc:
        _log.warning("kv: cannot see whether the Valkey of the region %s still holds keys (%s)", region, exc.reason)
        return
    if found:
        raise StoreLost(
            f"the key-value store of the region {region} is in the database, but Valkey holds keys of it too, as "
            "earlier versions stored them: stop all servers and run `baobab transfer --kv database`, or "
            "`baobab transfer --kv valkey` and set BAOBAB_KV=valkey"
        )


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
        base_domain="localhost" if nameless else host,
        default_plan=settings.plan,
        default_region=settings.region,
        signup_open=settings.signup == "open",
        data=settings.data,
        version=__version__,
        ai_markup=settings.ai_markup,
        ai_drop_params=settings.ai_drop_params,
        ai_web_search=settings.ai_web_search,
        run_retention_days=settings.run_retention_days,
    )


@contextlib.asynccontextmanager
async def _run_housekeeping(services: Services) -> AsyncIterator[None]:
    """Runs the periodic maintenance tasks while the application is open, and a last flush when it closes."""
    stores = services.regions.values()
    flush: MaintenanceTasks = (
        services.audit_log.flush,
        services.failures.flush,
        partial(services.credentials.flush, services.database),
    )
    sweep: MaintenanceTasks = (
        services.notices.prune,
        *(each.kv.sweep for each in stores),
        *(each.objects.sweep for each in stores),
    )
    rounds = (("flush", _FLUSH_SECONDS, flush), ("sweep", _SWEEP_SECONDS, sweep))
    tasks = [asyncio.create_task(_run_periodically(seconds, works), name=name) for name, seconds, works in rounds]
    try:
        yield
    finally:
        for task in tasks:
            task.cancel()
        await asyncio.gather(*tasks, return_exceptions=True)
        await _run_each(flush)


async def _run_periodically(seconds: float, works: MaintenanceTasks) -> None:
    while True:
        await asyncio.sleep(seconds)
        await _run_each(works)


async def _run_each(works: MaintenanceTasks) -> None:
    """Runs every task, even if another one fails because its store does not answer."""
    for work in works:
        try:
            await work()
        except (DatabaseUnavailable, KvError, ObjectError) as exc:
            _log.warning("housekeeping: a store does not answer (%s)", type(exc).__name__)
        except Exception:  # noqa: BLE001 - a round that fails must not be the last
            _log.exception("housekeeping: a round failed")
