"""Runs the tests in several processes: `pytest --workers 4`.

They are forked from this one after it has collected the tests. So modules are imported and tests collected once, which
takes half a minute of a processor. All tests of a file run in the same process. The files are given out in the order of
the run, each to the first process that has nothing else to do.
"""

import contextlib
import gc
import itertools
import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from multiprocessing.connection import Connection, Pipe, wait
from typing import Any

import pytest

_ANY_CORES = "auto"
# Lets a worker stop after the test that it runs.
_STOP = signal.SIGUSR1


def add_option(parser: pytest.Parser) -> None:
    parser.addoption("--workers", default="1", help="how many processes run the tests, or auto: two for each core")


def count_workers(config: pytest.Config) -> int:
    asked = str(config.getoption("workers"))
    # A test waits about as long as it works.
    return 2 * (os.cpu_count() or 1) if asked == _ANY_CORES else int(asked)


def run_in_workers(session: pytest.Session, prepare: Callable[[], object] = lambda: None) -> bool | None:
    """Runs what was collected, as the hook `pytest_runtestloop` does. None: this process should run it itself.

    prepare: does once what each worker would do otherwise.
    """
    files = [[*tests] for _, tests in itertools.groupby(session.items, lambda test: test.path)]
    workers = min(count_workers(session.config), len(files))
    if workers < 2 or session.config.option.collectonly or session.testsfailed:
        return None
    prepare()
    assert threading.active_count() == 1, "a thread was started during the collection; the workers would not have it"
    temporary: pytest.TempPathFactory = session.config._tmp_path_factory  # type: ignore[attr-defined]
    folder = temporary.getbasetemp()
    # The workers would otherwise copy the pages of what they never change.
    gc.collect()
    gc.freeze()
    running: dict[Connection, _Worker] = {}
    for number in range(workers):
        ours, theirs = Pipe()
        process = os.fork()
        if process == 0:
            for connection in (ours, *running):
                connection.close()
            temporary._basetemp = folder / f"worker-{number}"
            temporary._basetemp.mkdir()
            _run_as_worker(session, files, theirs)
            return True
        theirs.close()
        running[ours] = _Worker(number, process)
    try:
        _lead(session, files, running)
    finally:
        for worker in running.values():
            os.kill(worker.process, _STOP)
        for worker in running.values():
            os.waitpid(worker.process, 0)
    return True


@dataclass
class _Worker:
    number: int
    process: int
    running: tuple[str, Any] | None = None
    """The test that it runs: its id and where it stands."""
    failed: bool = False
    untested: int = 0
    """Tests that it was given and has not finished."""


def _lead(session: pytest.Session, files: Sequence[Sequence[pytest.Item]], running: dict[Connection, _Worker]) -> None:
    """Gives the files to the workers, and passes on what they report, until all have ended."""
    left = iter(range(len(files)))
    while running:
        for connection in wait([*running], timeout=1):
            assert isinstance(connection, Connection)
            with contextlib.suppress(EOFError, ConnectionError):
                _answer(session, connection, running[connection], files, left)
        for connection, worker in [*running.items()]:
            # A process that a test left behind may hold the other end of its pipe open.
            ended, status = os.waitpid(worker.process, os.WNOHANG)
            if ended:
                del running[connection]
                with contextlib.suppress(EOFError, ConnectionError):
                    while connection.poll():
                        _answer(session, connection, worker, files, left)
                _end(session, worker, os.waitstatus_to_exitcode(status))
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
    untested = sum(len(files[number]) for number in left)
    if untested:
        raise session.Failed(f"no worker was left for {untested} tests")


def _answer(
    session: pytest.Session,
    connection: Connection,
    worker: _Worker,
    files: Sequence[Sequence[pytest.Item]],
    left: Iterator[int],
) -> None:
    kind, value = connection.recv()
    if kind == "next":
        number = next(left, None)
        worker.untested += 0 if number is None else len(files[number])
        connection.send(number)
    elif kind == "start":
        worker.running = value
    elif kind == "finish":
        worker.untested -= 1
    else:
        report = session.config.hook.pytest_report_from_serializable(config=session.config, data=value)
        worker.failed = worker.failed or report.failed
        session.config.hook.pytest_runtest_logreport(report=report)


def _end(session: pytest.Session, worker: _Worker, code: int) -> None:
    """Tells what ended with the worker unless it has run all that it was given."""
    if not worker.untested and code == (pytest.ExitCode.TESTS_FAILED if worker.failed else pytest.ExitCode.OK):
        return
    nodeid, location = worker.running or (f"worker {worker.number}", ("", None, ""))
    text = f"The process that ran this test ended with {code}, and {worker.untested} tests of its files did not run."
    report = pytest.TestReport(nodeid, location, {}, "failed", text, "call")
    session.config.hook.pytest_runtest_logreport(report=report)


class _Reporter:
    """In a worker: sends what becomes of its tests to the process that leads."""

    def __init__(self, config: pytest.Config, connection: Connection) -> None:
        self._config = config
        self._connection = connection

    def pytest_runtest_logstart(self, nodeid: str, location: tuple[str, int | None, str]) -> None:
        self._connection.send(("start", (nodeid, location)))

    def pytest_runtest_logfinish(self) -> None:
        self._connection.send(("finish", None))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self._connection.send(("report", data))


def _run_as_worker(session: pytest.Session, files: Sequence[Sequence[pytest.Item]], connection: Connection) -> None:
    plugins = session.config.pluginmanager
    # The process that leads prints the reports, and notes what failed for `--last-failed`.
    for name in ("terminalreporter", "lfplugin", "nfplugin"):
        plugins.unregister(name=name)
    plugins.register(_Reporter(session.config, connection))
    signal.signal(_STOP, lambda *_: setattr(session, "shouldstop", "another worker's test failed"))
    # What tests print goes into a file, which would be the same for all workers.
    capture = plugins.getplugin("capturemanager")
    capture.stop_global_capturing()
    capture.start_global_capturing()
    capture.suspend_global_capture()
    tests = _receive_tests(files, connection)
    test = next(tests, None)
    while test is not None:
        # What a test leaves open for the next is closed when there is none.
        following = next(tests, None)
        session.config.hook.pytest_runtest_protocol(item=test, nextitem=following)
        if session.shouldfail:
            raise session.Failed(session.shouldfail)
        if session.shouldstop:
            raise session.Interrupted(session.shouldstop)
        test = following


def _receive_tests(files: Sequence[Sequence[pytest.Item]], connection: Connection) -> Iterator[pytest.Item]:
    while True:
        connection.send(("next", None))
        number = connection.recv()
        if number is None:
            return
        yield from files[number]
