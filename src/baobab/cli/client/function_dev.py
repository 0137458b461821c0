"""`baobab functions dev`: a scratch server on this machine that runs a folder of functions as they are written."""

import contextlib
import json
import os
import re
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click

from baobab.cli.client.errors import ClientError
from baobab.cli.client.event_stream import follow_events
from baobab.cli.client.function_env import read_lines
from baobab.cli.client.function_files import FunctionFile, list_sources, read_function
from baobab.cli.client.output import make_lines_plain, make_plain
from baobab.cli.client.server import Server, write_segment

_FOLDER = ".baobab"
_KEY = re.compile(r"bb_sk_[A-Za-z0-9]{40}")
_PREFIX = "BAOBAB_"
_POLL_SECONDS = 0.3
_START_SECONDS = 120.0
_STOP_SECONDS = 10.0
_ENV, _SCHEMA = ".env", "schema.json"


@click.command()
@click.argument("folder", type=click.Path(path_type=Path), default=Path())
@click.option("--port", type=click.IntRange(1, 65535), default=8787, help="The loopback port, 8787 by default.")
@click.option("--fresh", is_flag=True, help="Begin with an empty installation: deletes FOLDER/.baobab.")
def dev(folder: Path, port: int, *, fresh: bool) -> None:
    """Run the functions in [FOLDER] on this machine, and deploy each again when its file changes, until Ctrl-C.

    A scratch server starts on 127.0.0.1 with an app of its own, in FOLDER/.baobab, which is kept for the next time. So
    functions run in the same sandbox as anywhere, and `ctx` has tables, keys, files, users and triggers that are
    nobody else's: nothing reaches the server that you are logged in to. FOLDER/schema.json is applied as the app's
    tables, FOLDER/.env as its variables. What functions print appears in this terminal.
    """
    if not folder.is_dir():
        raise ClientError(f"{folder} is no folder. Name the one that has the functions.")
    scratch = folder / _FOLDER
    if fresh:
        _delete(scratch)
    with _run_server(scratch, port) as server:
        created_app = server.call("POST", "/init", {"name": "dev"})
        session = _Session(folder, server, str(created_app["app_id"]))
        click.echo(f"Functions run at {server.address}/v1/{session.app_id}/fn/NAME. Ctrl-C stops.")
        click.echo(f"To call it with other commands: {_write_exports(server, session.app_id, scratch)}")
        try:
            while True:
                session.look()
                time.sleep(_POLL_SECONDS)
        except KeyboardInterrupt:
            click.echo("Stopped.")


def _write_exports(server: Server, app_id: str, scratch: Path) -> str:
    key_file = make_plain(str(scratch / "key"))
    return f'export BAOBAB_URL={server.address} BAOBAB_APP={app_id} BAOBAB_KEY="$(cat {key_file})"'


class _Session:
    """What has been deployed of a folder so far, and what was wrong with the rest."""

    def __init__(self, folder: Path, server: Server, app_id: str) -> None:
        self.app_id = app_id
        self._folder = folder
        self._server = server
        self._seen_stamps: dict[Path, tuple[int, int] | None] = {}
        self._names: dict[Path, str] = {}
        self._followed_names: set[str] = set()

    def look(self) -> None:
        """Applies what has changed since the last look. What is wrong is printed, and tried again when it changes."""
        for name, apply in ((_SCHEMA, self._apply_schema), (_ENV, self._apply_env)):
            if self._has_changed(self._folder / name) and (self._folder / name).is_file():
                self._try(name, apply)
        sources = list_sources(self._folder)
        for source in sources:
            # Both are asked: each remembers what it has seen.
            changes = [self._has_changed(source), self._has_changed(source.with_suffix(".json"))]
            if any(changes):
                self._try(source.name, lambda source=source: self._deploy(read_function(source)))
        for source in [each for each in self._names if each not in sources]:
            name = self._names.pop(source)
            self._seen_stamps.pop(source, None)
            self._try(source.name, lambda name=name: self._remove(name))

    def _has_changed(self, file: Path) -> bool:
        try:
            found_stat = file.stat()
            stamp = (found_stat.st_mtime_ns, found_stat.st_size)
        except OSError:
            stamp = None
        if file in self._seen_stamps and self._seen_stamps[file] == stamp:
            return False
        was_seen = file in self._seen_stamps
        self._seen_stamps[file] = stamp
        return was_seen or stamp is not None

    def _try(self, what: str, work: Any) -> None:
        try:
            work()
        except ClientError as exc:
            click.echo(f"{what}: {exc.message}", err=True)

    def _apply_schema(self) -> None:
        try:
            schema = json.loads((self._folder / _SCHEMA).read_text())
        except (OSError, ValueError) as exc:
            raise ClientError(f"no JSON: {exc}.") from exc
        self._server.call("POST", f"/v1/{self.app_id}/schema/apply", {"schema": schema})
        click.echo(f"{_SCHEMA}: the tables are as it says.")

    def _apply_env(self) -> None:
        values = read_lines((self._folder / _ENV).read_text(), _ENV)
        self._server.call("PATCH", f"/v1/{self.app_id}/env", {"envVars": values})
        click.echo(f"{_ENV}: set {', '.join(sorted(values))}.")

    def _deploy(self, file: FunctionFile) -> None:
        result = self._server.call("POST", f"/v1/{self.app_id}/functions", file.build_deployment())
        self._names[file.path] = file.name
        address = result["url"] or result["webhook_url"] or ""
        click.echo(f"{file.path.name}: version {result['version']}  {address}".rstrip())
        if file.name not in self._followed_names:
            self._followed_names.add(file.name)
            threading.Thread(target=self._print_logs, args=(file.name,), daemon=True).start()

    def _remove(self, name: str) -> None:
        self._server.call("DELETE", f"/v1/{self.app_id}/functions/{write_segment(name)}")
        click.echo(f"{name}: removed, as its file is gone.")

    def _print_logs(self, name: str) -> None:
        path = f"/v1/{self.app_id}/functions/{write_segment(name)}/logs/stream"
        # The function may be removed, and the server stop.
        with contextlib.suppress(ClientError):
            for event in follow_events(self._server, path, {"level": "all"}, is_quiet=True):
                if event is not None:
                    _print_call(name, json.loads(event))
        self._followed_names.discard(name)


def _print_call(name: str, row: dict[str, Any]) -> None:
    head = f"{name}  {row['statusCode']}  {row['method']} {row['path']}  {row['trigger']}  {row['duration']:.0f} ms"
    lines = [make_plain(head)]
    lines += [f"  {make_lines_plain(each['level'] + ': ' + each['message'])}" for each in row["consoleLogs"]]
    if row["error"]:
        lines.append(f"  {make_lines_plain(row['stack'] or row['error'])}")
    click.echo("\n".join(lines))


def _delete(scratch: Path) -> None:
    """Deletes the scratch installation; a folder that is something else is left alone. Raises ClientError."""
    import shutil

    if not scratch.exists():
        return
    if not (scratch / "key").is_file():
        raise ClientError(
            f"{scratch} was not made by this command. Look at it, and delete it yourself only if you may."
        )
    shutil.rmtree(scratch)


@contextlib.contextmanager
def _run_server(scratch: Path, port: int) -> Iterator[Server]:
    """Starts the scratch server, and stops it afterwards. Raises ClientError if it does not start."""
    key = _prepare(scratch)
    log = scratch / "server.log"
    command = [sys.executable, "-m", "baobab", "serve", "--port", str(port), "--data", str(scratch / "data")]
    with log.open("wb") as stream:
        # In a session of its own, since Ctrl-C would end it before this command has said what it has to.
        process = subprocess.Popen(  # noqa: S603 - this program
            command, env=_build_environment(), stdout=stream, stderr=stream, start_new_session=True
        )
    server = Server(f"http://127.0.0.1:{port}", key)
    try:
        _wait_until_ready(process, server, log)
        yield server
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(_STOP_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()


def _prepare(scratch: Path) -> str:
    """Creates the installation if there is none, and returns its key. Raises ClientError."""
    key_file = scratch / "key"
    try:
        if key_file.is_file():
            return key_file.read_text().strip()
        scratch.mkdir(mode=0o700, exist_ok=True)
        (scratch / ".gitignore").write_text("*\n")
    except OSError as exc:
        raise ClientError(f"{exc.filename or scratch} cannot be used: {exc.strerror}.") from exc
    command = [sys.executable, "-m", "baobab", "init", "--data", str(scratch / "data")]
    process = subprocess.run(  # noqa: S603 - this program
        command, env=_build_environment(), capture_output=True, text=True, check=False
    )
    match = _KEY.search(process.stdout)
    if match is None:
        raise ClientError(
            f"The scratch installation was not created: {process.stderr.strip()} If nothing in {scratch} is of use, "
            "--fresh begins anew."
        )
    with os.fdopen(os.open(key_file, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "w") as stream:
        stream.write(match[0] + "\n")
    return match[0]


def _build_environment() -> dict[str, str]:
    """Returns the environment without our settings: none of them may lead to an installation that is not scratch."""
    return {name: value for name, value in os.environ.items() if not name.startswith(_PREFIX)}


def _wait_until_ready(process: subprocess.Popen[bytes], server: Server, log: Path) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while process.poll() is None and time.monotonic() < deadline:
        with contextlib.suppress(ClientError):
            # With the key: another server may have the port.
            server.call("GET", "/platform/me")
            return
        time.sleep(0.1)
    lines = log.read_text(errors="replace").strip().splitlines()
    raise ClientError(f"The scratch server did not start: {make_plain(lines[-1]) if lines else 'it said nothing'}")
