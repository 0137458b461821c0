"""Fixtures: a whole Baobab in this process, on a folder of its own, called through the app that the server runs."""

import contextlib
import functools
import gc
import itertools
import logging
import os
import shutil
from collections.abc import AsyncIterator, Iterator, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import httpx
import httpx2
import hypothesis
import pytest
import pytest_asyncio
from hypothesis.internal.conjecture import providers
from hypothesis.internal.constants_ast import Constants

from baobab.composition import Application
from baobab.runtime import passwords
from baobab.server import Server
from baobab.settings import load_settings
from baobab.storage.sql import postgres
from baobab.storage.sql.postgres_connection import build_engine
from tests import cheap_secrets, memory
from tests.backends import (
    ACTIVE_BACKEND,
    Backend,
    PostgresBackend,
    SqliteBackend,
    migrate_by_copying,
    prepare_data,
    release_data,
)
from tests.one_connection import hold_one_connection_at_a_time
from tests.servers import BEHIND_POOLER, find_memory, start_postgres
from tests.users import mint_user_token

ADDRESS = "http://127.0.0.1:8000"
KEY = "bb_sk_" + "T" * 40
_NAMES = itertools.count(1)
_BYTES_OF_A_WORKER = 3 * 2**29
"""With the servers that its tests start: a gigabyte at the end, and half as much for those."""

# A fifth of what it takes to collect the tests would be to look for garbage among them, which there is not.
gc.disable()


class _Loggers(dict[str, Any]):
    """All loggers by name. Pytest iterates over them before each test, and a server may import a library meanwhile, in
    a thread, which adds one.
    """

    def values(self) -> Any:
        return list(super().values())


logging.Logger.manager.loggerDict = _Loggers(logging.Logger.manager.loggerDict)

# It says what disagrees, as tests do.
pytest.register_assert_rewrite("tests.crash.ledger")

# The same examples in every run, on machines of any speed.
hypothesis.settings.register_profile(
    "default",
    derandomize=True,
    database=None,
    deadline=None,
    suppress_health_check=[hypothesis.HealthCheck.too_slow, hypothesis.HealthCheck.function_scoped_fixture],
)
# Others in every run, and what it takes to see a failure again (`make fuzz`).
hypothesis.settings.register_profile(
    "random",
    hypothesis.settings.get_profile("default"),
    max_examples=1000,
    derandomize=False,
    print_blob=True,
)
hypothesis.settings.load_profile("default")


def pytest_sessionstart() -> None:
    """Keeps hypothesis from drawing constants of our modules: which of them are loaded depends on the tests before.

    It reads the modules when the tests are collected, which would take a second and more of each process.
    """
    if hypothesis.settings().derandomize:
        providers._get_local_constants = Constants


def pytest_configure() -> None:
    """Puts the folders of tests into memory: a fifth of the processor time of the suite would go to a disk."""
    memory_folder = find_memory()
    if memory_folder is not None:
        os.environ.setdefault("PYTEST_DEBUG_TEMPROOT", memory_folder)


@dataclass
class Baobab:
    """An open installation: its application for what no interface shows, a client for everything else."""

    application: Application
    client: httpx.AsyncClient
    key: str = KEY
    _transport: Any = field(default=None, repr=False)

    async def create_app(self, **settings: Any) -> str:
        """A new app of the first account."""
        response = await self.client.post("/init", json={"name": f"app-{next(_NAMES)}", **settings}, headers=self.owner)
        assert response.status_code == 201, response.text
        app_id: str = response.json()["app_id"]
        return app_id

    @property
    def owner(self) -> dict[str, str]:
        return {"authorization": f"Bearer {self.key}"}

    async def fetch_metrics(self) -> str:
        """Reads /metrics as the operator."""
        token = self.application.settings.metrics_token or self.application.settings.metrics_file.read_text().strip()
        answer = await self.client.get("/metrics", headers={"authorization": f"Bearer {token}"})
        assert answer.status_code == 200, answer.text
        assert answer.headers["content-type"].startswith("text/plain")
        return answer.text

    async def user_headers(self, app_id: str, user_id: str, **claims: Any) -> dict[str, str]:
        """Headers of a signed-in user of an app, who is made if there is no such user yet."""
        token = await mint_user_token(self.application, app_id, user_id, **claims)
        return {"authorization": f"Bearer {token}"}


@pytest.fixture
def settings() -> dict[str, str]:
    """Environment of the installation; a test module overrides this fixture to set more."""
    return {"BAOBAB_PLAN": "enterprise"}


@pytest.hookimpl(optionalhook=True)
def pytest_xdist_auto_num_workers() -> int:
    """Two for each core, because a test waits about as long as it works; fewer where memory is short."""
    return max(1, min(2 * (os.cpu_count() or 1), memory.measure_memory() // _BYTES_OF_A_WORKER))


def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    if config.getoption("backend") != "sqlite":
        left_out = [item for item in items if item.get_closest_marker("on_files")]
        config.hook.pytest_deselected(items=left_out)
        items[:] = [item for item in items if item not in left_out]
    # Begun last, they would keep one process at work when the others have nothing left.
    items.sort(key=lambda item: item.get_closest_marker("long_file") is None)


def pytest_collection_finish() -> None:
    # What is loaded by now stays until the end: no garbage collection need look at it.
    gc.freeze()
    gc.enable()


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.addoption(
        "--backend", choices=("sqlite", "postgres", "pgbouncer"), default="sqlite", help="where the rows are"
    )


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter, config: pytest.Config) -> None:
    """Prints the seed of the order: `-q` leaves out the header, which would show it."""
    seed = config.getoption("randomly_seed", None)
    if seed is not None:
        terminalreporter.write_line(f"The same order again: --randomly-seed={seed}")


@pytest.fixture(scope="session", autouse=True)
def backend(request: pytest.FixtureRequest) -> Iterator[Backend]:
    with contextlib.ExitStack() as stack:
        if request.config.getoption("backend") == "pgbouncer":
            BEHIND_POOLER.append(True)
            stack.callback(BEHIND_POOLER.clear)
        if request.config.getoption("backend") != "sqlite":
            ACTIVE_BACKEND.append(PostgresBackend(stack.enter_context(start_postgres())))
        else:
            ACTIVE_BACKEND.append(SqliteBackend())
        yield ACTIVE_BACKEND[0]
        ACTIVE_BACKEND.clear()


@pytest.fixture(autouse=True)
def dropped_databases(request: pytest.FixtureRequest, backend: Backend) -> Iterator[None]:
    """Nothing is left of the installations that a test has opened in its folder."""
    yield
    folder = request.node.funcargs.get("tmp_path")
    if folder is not None:
        backend.drop(folder)


@pytest.fixture(scope="session", autouse=True)
def migrated_by_copying() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        migrate_by_copying(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def statements_compiled_once() -> Iterator[None]:
    """One engine for all databases in Postgres, as for all files: the servers of tests are of one version."""
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(postgres, "build_engine", functools.cache(build_engine))
        yield


@pytest.fixture(scope="session", autouse=True)
def one_connection_at_a_time() -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        hold_one_connection_at_a_time(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def frozen_once() -> Iterator[None]:
    with memory.collect_rarely(), pytest.MonkeyPatch.context() as patch:
        memory.freeze_only_once(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def cheap_cryptography() -> Iterator[None]:
    """Passwords and keys of apps that cost the servers of this process almost nothing."""
    with pytest.MonkeyPatch.context() as patch:
        cheap_secrets.make_cheap(patch)
        yield


@pytest.fixture(scope="session", autouse=True)
def authorities_read_once() -> Iterator[None]:
    """Clients of tests share what they know of certificate authorities: each would read it for fifteen milliseconds."""
    with pytest.MonkeyPatch.context() as patch:
        for library in (httpx, httpx2):
            transports = library._transports.default
            patch.setattr(transports, "create_ssl_context", functools.cache(transports.create_ssl_context))
        yield


@pytest.fixture
def real_passwords(monkeypatch: pytest.MonkeyPatch) -> None:
    """Hashes passwords at the cost at which servers do."""
    monkeypatch.setattr(passwords, "hasher", cheap_secrets.REAL_HASHER)


@pytest.fixture(scope="module", autouse=True)
def forgotten_routes() -> Iterator[None]:
    yield
    memory.forget_routes()


@contextlib.asynccontextmanager
async def open_baobab(data: Path, settings: Mapping[str, str]) -> AsyncIterator[Baobab]:
    server = Server(load_settings({**settings, **prepare_data(data), "BAOBAB_BOOTSTRAP_KEY": KEY}, data=data))
    async with server.open() as application:
        transport = httpx.ASGITransport(app=server, raise_app_exceptions=False)
        async with httpx.AsyncClient(transport=transport, base_url=ADDRESS) as client:
            yield Baobab(application, client)
    release_data(data)


class SharedInstallations:
    """The installations that the tests of one module share: one for each set of settings."""

    def __init__(self, stack: contextlib.AsyncExitStack, folders: pytest.TempPathFactory) -> None:
        self._stack = stack
        self._folders = folders
        self._open: dict[frozenset[tuple[str, str]], Baobab] = {}

    async def find(self, settings: Mapping[str, str]) -> Baobab:
        key = frozenset(settings.items())
        if key not in self._open:
            folder = self._folders.mktemp("shared")
            self._stack.callback(shutil.rmtree, folder)
            self._open[key] = await self._stack.enter_async_context(open_baobab(folder / "data", settings))
        return self._open[key]


@pytest_asyncio.fixture(scope="module", loop_scope="module")
async def shared_installations(tmp_path_factory: pytest.TempPathFactory) -> AsyncIterator[SharedInstallations]:
    async with contextlib.AsyncExitStack() as stack:
        yield SharedInstallations(stack, tmp_path_factory)


@pytest.fixture
async def baobab(
    request: pytest.FixtureRequest,
    tmp_path: Path,
    settings: dict[str, str],
    shared_installations: SharedInstallations,
) -> AsyncIterator[Baobab]:
    """An installation that the module's tests share, for starting one costs more than most tests.

    A test that counts what is there, or leaves behind what others must not see, has the mark `own_installation`.
    """
    if request.node.get_closest_marker("own_installation") is None:
        yield await shared_installations.find(settings)
    else:
        async with open_baobab(tmp_path / "data", settings) as own:
            yield own
