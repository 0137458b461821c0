"""Runs tests in several processes that are forked from the one that has collected them (`--processes 4`).

To import Baobab, to collect ten thousand tests and to build what most of them need takes fifteen seconds of a
processor. With pytest-xdist each process takes them; here only the first does. All tests of a file run in one process,
and the files begin in the order of the collection.
"""

import atexit
import gc
import itertools
import multiprocessing
import os
import threading
import traceback
import warnings
from collections import deque
from collections.abc import Callable
from multiprocessing.connection import Connection, wait
from typing import Any

import pytest
from _pytest import runner

Items = list[int]
"""Tests that run one after another: their numbers in the collection."""


class Worker:
    """A forked process, as the first one sees it. It asks for tests, and says which it begins and how they end."""

    def __init__(self, pid: int, connection: Connection) -> None:
        self.pid = pid
        self.connection = connection
        self.waiting: deque[int] = deque()
        """Tests that it was given and has not begun."""
        self.running: int | None = None


class ForkedRun:
    """The plugin that stands in for pytest's own loop over the tests."""

    def __init__(self, processes: int, load: Callable[[], None]) -> None:
        """load: imports and builds what most tests need, once for all processes; a run of few files goes without."""
        self._processes = processes
        self._load = load
        self._numbers = itertools.count()
        self._files: deque[Items] = deque()
        self._workers: dict[Connection, Worker] = {}

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool | None:
        if session.config.option.collectonly or session.testsfailed or not session.items:
            return None
        files: dict[Any, Items] = {}
        for number, item in enumerate(session.items):
            files.setdefault(item.path, []).append(number)
        self._files.extend(files.values())
        if len(files) > self._processes:
            self._load()
        # What is there now stays: the processes need not look for garbage in it, and do not copy its pages.
        gc.freeze()
        assert threading.active_count() == 1, threading.enumerate()
        try:
            for _ in range(min(self._processes, len(files))):
                self._start_worker(session)
            while self._workers:
                for connection in wait(list(self._workers)):
                    self._listen(session, self._workers[connection])  # type: ignore[index]
                if session.shouldfail:
                    raise session.Failed(session.shouldfail)
                if session.shouldstop:
                    raise session.Interrupted(session.shouldstop)
        finally:
            # A process ends when it finds its connection closed.
            for worker in self._workers.values():
                worker.connection.close()
            for worker in self._workers.values():
                os.waitpid(worker.pid, 0)
        return True

    def _start_worker(self, session: pytest.Session) -> None:
        number = next(self._numbers)
        folder = session.config._tmp_path_factory.mktemp(f"process-{number}", numbered=False)  # type: ignore[attr-defined]
        ours, theirs = multiprocessing.Pipe()
        pid = os.fork()
        if pid == 0:
            for connection in (ours, *self._workers):
                connection.close()
            code = 1
            try:
                session.config._tmp_path_factory._basetemp = folder  # type: ignore[attr-defined]
                WorkerRun(session, theirs).run()
                code = 0
            except (BrokenPipeError, EOFError, KeyboardInterrupt):
                # The first process has ended the run.
                pass
            except BaseException:  # noqa: BLE001 - the process ends with it
                traceback.print_exc()
            finally:
                atexit._run_exitfuncs()
                os._exit(code)
        theirs.close()
        self._workers[ours] = Worker(pid, ours)

    def _listen(self, session: pytest.Session, worker: Worker) -> None:
        hook = session.config.hook
        try:
            kind, value = worker.connection.recv()
            if kind == "ask":
                items = self._files.popleft() if self._files else []
                worker.waiting.extend(items)
                worker.connection.send(items)
        except (EOFError, BrokenPipeError, ConnectionResetError):
            kind, value = "end", None
        if kind == "begin":
            worker.running = value
            worker.waiting.remove(value)
        elif kind == "report":
            report = hook.pytest_report_from_serializable(config=session.config, data=value)
            hook.pytest_runtest_logreport(report=report)
            if report.when == "teardown":
                worker.running = None
                hook.pytest_runtest_logfinish(nodeid=report.nodeid, location=report.location)
        elif kind == "warning":
            hook.pytest_warning_recorded.call_historic(kwargs=value)
        elif kind == "end":
            self._end_worker(session, worker)

    def _end_worker(self, session: pytest.Session, worker: Worker) -> None:
        """Says which test has ended its process, if one has, and starts another for the rest of its tests."""
        del self._workers[worker.connection]
        worker.connection.close()
        code = os.waitstatus_to_exitcode(os.waitpid(worker.pid, 0)[1])
        if code == 0 and worker.running is None and not worker.waiting:
            return
        if worker.running is None:
            raise session.Failed(f"A process of the tests ended by itself: {code}.")
        item = session.items[worker.running]
        report = pytest.TestReport(
            item.nodeid, item.location, {}, "failed", f"The test ended its process: {code}.", "call"
        )
        session.config.hook.pytest_runtest_logreport(report=report)
        if worker.waiting:
            self._files.append(list(worker.waiting))
        if self._files:
            self._start_worker(session)


class WorkerRun:
    """The plugin of a forked process, which runs what it is given and tells the first process of it."""

    def __init__(self, session: pytest.Session, connection: Connection) -> None:
        self._session = session
        self._connection = connection

    def run(self) -> None:
        plugins = self._session.config.pluginmanager
        # The first process writes, and what it has captured stays its own.
        plugins.unregister(name="terminalreporter")
        capture: Any = plugins.getplugin("capturemanager")
        capture.stop_global_capturing()
        capture.start_global_capturing()
        plugins.register(self)
        try:
            self._run_tests()
        finally:
            runner.pytest_sessionfinish(self._session)
            capture.stop_global_capturing()
        # The connection may stay open for longer: processes that a test forked have it, too.
        self._connection.send(("end", None))

    def _run_tests(self) -> None:
        items = self._session.items
        numbers = self._ask()
        while numbers:
            number = numbers.pop(0)
            # Which fixtures live on depends on the next test.
            numbers = numbers or self._ask()
            following = items[numbers[0]] if numbers else None
            self._connection.send(("begin", number))
            items[number].config.hook.pytest_runtest_protocol(item=items[number], nextitem=following)

    def _ask(self) -> Items:
        self._connection.send(("ask", None))
        given: Items = self._connection.recv()
        return given

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        config = self._session.config
        self._connection.send(("report", config.hook.pytest_report_to_serializable(config=config, report=report)))

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: tuple[str, int, str] | None
    ) -> None:
        # The first process may not know the warning's own class.
        category = next(kind for kind in warning_message.category.__mro__ if kind.__module__ == "builtins")
        message = warnings.WarningMessage(
            str(warning_message.message), category, warning_message.filename, warning_message.lineno
        )
        told = {"warning_message": message, "when": when, "nodeid": nodeid, "location": location}
        self._connection.send(("warning", told))
