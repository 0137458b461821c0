"""`baobab functions`: deploy the functions of an app, try them, and follow what they do."""

import json
import sys
from pathlib import Path
from typing import Any

import click

from baobab.cli.client.errors import ClientError, json_option
from baobab.cli.client.event_stream import follow_events
from baobab.cli.client.function_dev import dev
from baobab.cli.client.function_env import env
from baobab.cli.client.function_files import read_functions
from baobab.cli.client.function_types import types
from baobab.cli.client.output import app_option, make_lines_plain, make_plain, print_json, print_table
from baobab.cli.client.server import Server, find_app, find_server, write_segment

_HTTP_ERROR = 400
_MOST_REMEMBERED = 10_000


@click.group()
def functions() -> None:
    """Deploy the functions of an app, try them, and follow what they do.

    A function is a file NAME.ts, NAME.js or NAME.py. NAME.json beside it has its settings and triggers, as `POST
    /v1/APP/functions` takes them, such as {"triggers": [{"type": "http", "config": {"auth": "none"}}]}.
    """


for command in (env, types, dev):
    functions.add_command(command)


@functions.command()
@click.argument("path", type=click.Path(path_type=Path))
@app_option
@click.option("--message", help="What this version changes, for the list of versions.")
@json_option
def deploy(path: Path, app: str | None, message: str | None, *, as_json: bool) -> None:
    """Deploy the function in the file PATH, or every function in the folder PATH.

    Example: `baobab functions deploy functions/ --app shop`

    All files are read before the first is sent. Each function is deployed whole or not at all; if one is refused, the
    others are deployed all the same, and the exit status is 1. A secret that the server generates is shown this once.
    """
    files = read_functions(path)
    server = find_server()
    app_id = find_app(server, app)
    results: list[dict[str, Any]] = []
    failures = 0
    for file in files:
        try:
            result = server.call("POST", f"/v1/{app_id}/functions", file.build_deployment(message))
        except ClientError as exc:
            failures += 1
            results.append({"name": file.name, "error": {"code": exc.code, "message": exc.message}})
            if not as_json:
                click.echo(f"{file.path}: {exc.message}", err=True)
            continue
        results.append(result)
        if not as_json:
            _describe_deployment(result)
    if as_json:
        print_json({"functions": results})
    if failures:
        if not as_json:
            click.echo(f"{failures} of {len(files)} functions were not deployed.", err=True)
        raise SystemExit(1)


def _describe_deployment(result: dict[str, Any]) -> None:
    note = "" if result["changed"] else " (the code is the same)"
    address = result["url"] or result["webhook_url"] or ""
    click.echo(f"{result['name']}  version {result['version']}{note}  {address}".rstrip())
    if result["webhook_secret"]:
        click.echo(f"{result['name']}  webhook secret, shown this once: {result['webhook_secret']}")


@functions.command("list")
@app_option
@json_option
def list_functions(app: str | None, *, as_json: bool) -> None:
    """List the functions of an app: version, triggers, calls, errors of the last 24 hours, address."""
    server = find_server()
    answer = server.call("GET", f"/v1/{find_app(server, app)}/functions")
    if as_json:
        print_json(answer)
        return
    rows = [
        (
            each["name"],
            f"version {each['version']}",
            ",".join(f"{trigger['type']}{'' if trigger['enabled'] else ' (off)'}" for trigger in each["triggers"]),
            f"calls {each['invocationCount']}",
            f"errors {each['errorRate']:.1%}",
            each["url"] or "",
        )
        for each in answer["functions"]
    ]
    print_table(rows, "The app has no functions. `baobab functions deploy FILE` deploys one.")


@functions.command()
@click.argument("name")
@app_option
@click.option("--follow", "-f", "follows", is_flag=True, help="Go on with what happens from now on, until Ctrl-C.")
@click.option("--limit", type=click.IntRange(1, 1000), default=20, help="How many calls to begin with, 20 by default.")
@click.option("--errors", is_flag=True, help="Only calls that failed.")
@json_option
def logs(name: str, app: str | None, limit: int, *, follows: bool, errors: bool, as_json: bool) -> None:
    """Print what calls of the function NAME did and printed, the newest last. With --json, one object a line.

    With --follow, a connection that breaks is made again, and goes on after the last call that was shown.
    """
    server = find_server()
    app_id = find_app(server, app)
    base, level = f"/v1/{app_id}/functions/{write_segment(name)}/logs", "error" if errors else "all"
    if not follows:
        for row in reversed(server.call("GET", base, query={"limit": limit, "level": level})["logs"]):
            _print_row(row, as_json=as_json)
        return
    shown_rows: dict[str, None] = {}
    try:
        # The stream is opened before the list is read, so that nothing falls between the two.
        for event in follow_events(server, f"{base}/stream", {"level": level}):
            if event is None:
                new_rows = server.call("GET", base, query={"limit": limit, "level": level})["logs"][::-1]
            else:
                new_rows = [json.loads(event)]
            for row in new_rows:
                identity = f"{row['request_id']} {row['timestamp']} {row['path']}"
                if identity in shown_rows:
                    continue
                shown_rows[identity] = None
                _print_row(row, as_json=as_json)
            while len(shown_rows) > _MOST_REMEMBERED:
                del shown_rows[next(iter(shown_rows))]
    except KeyboardInterrupt:
        return


def _print_row(row: dict[str, Any], *, as_json: bool) -> None:
    if as_json:
        click.echo(json.dumps(row))
        return
    memory = "" if row["memoryUsed"] is None else f", {row['memoryUsed']:.0f} MB"
    reason = row["shutdown_reason"]
    end = f", ended by {reason}" if reason not in (None, "EventLoopCompleted") else ""
    head = f"{row['timestamp']}  {row['statusCode']}  {row['method']} {row['path']}  version {row['version']}"
    click.echo(make_plain(f"{head}  {row['trigger']}  {row['duration']:.0f} ms{memory}{end}  {row['request_id']}"))
    for line in row["consoleLogs"]:
        _print_indented(f"{line['level']}: {line['message']}")
    if row["error"]:
        _print_indented(row["stack"] or row["error"])


def _print_indented(text: str) -> None:
    for line in make_lines_plain(text).splitlines():
        click.echo(f"  {line}")


@functions.command()
@click.argument("name")
@app_option
@click.option("--data", help="The body, as JSON; @FILE reads it from a file, and - from standard input.")
@click.option(
    "--method", type=click.Choice(["GET", "POST", "PUT", "PATCH", "DELETE"]), default="POST", help="POST by default."
)
@click.option("--as-user", metavar="ID", help="The id of a user of the app, as whom it runs.")
@json_option
def invoke(name: str, app: str | None, data: str | None, method: str, as_user: str | None, *, as_json: bool) -> None:
    """Call the function NAME to try it, whatever its triggers are, and print its answer.

    Example: `baobab functions invoke hello --app shop --data '{"name": "Ada"}'`

    It runs with the app's own right, or as a user. The exit status is 1 if the answer's status is 400 or above.
    """
    body = _read_data(data)
    server = find_server()
    path = f"/v1/{find_app(server, app)}/functions/{write_segment(name)}/invoke"
    answer = server.send("POST", path, body, query={"method": method, "as_user": as_user}, may_fail=True)
    if as_json:
        shown_body = answer.value if answer.value is not None else answer.content.decode(errors="replace")
        print_json({"status": answer.status, "headers": dict(answer.headers), "body": shown_body})
    else:
        _write_content(answer.content)
    if answer.status >= _HTTP_ERROR:
        click.echo(f"The status is {answer.status}. `baobab functions logs {name}` has what it printed.", err=True)
        raise SystemExit(1)


def _read_data(data: str | None) -> Any:
    """Returns the body of a call. Raises ClientError."""
    if data is None:
        return None
    text, place = data, "--data"
    try:
        if data == "-":
            text, place = sys.stdin.read(), "standard input"
        elif data.startswith("@"):
            place = data[1:]
            text = Path(place).read_text()
        return json.loads(text)
    except OSError as exc:
        raise ClientError(f"{place} cannot be read: {exc.strerror}.") from exc
    except ValueError as exc:
        raise ClientError(f"{place} is no JSON: {exc}. A text needs quotes, such as '\"hello\"'.") from exc


def _write_content(content: bytes) -> None:
    """Prints an answer as it is into a pipe; what a terminal would obey is made visible there."""
    if sys.stdout.isatty():
        click.echo(make_lines_plain(content.decode(errors="replace")))
    else:
        click.echo(content, nl=False)


@functions.command()
@click.argument("name")
@app_option
@click.option("--to", "number", type=click.IntRange(1), help="The number of the version; the one before, if left out.")
@json_option
def rollback(name: str, app: str | None, number: int | None, *, as_json: bool) -> None:
    """Make an earlier version of the function NAME the live one, at once; a later one goes forward again.

    Settings, triggers and variables stay as they are.
    """
    server = find_server()
    base = f"/v1/{find_app(server, app)}/functions/{write_segment(name)}/versions"
    answer = server.call("POST", f"{base}/{number or _find_version_before(server, base, name)}/rollback")
    if as_json:
        print_json(answer)
    else:
        click.echo(answer["message"])


def _find_version_before(server: Server, base: str, name: str) -> int:
    """Returns the number of the version before the live one. Raises ClientError."""
    versions = server.call("GET", base)["versions"]
    live_number = next(each["number"] for each in versions if each["live"])
    numbers = [int(each["number"]) for each in versions if each["number"] < live_number]
    if not numbers:
        raise ClientError(f"Version {live_number} of {name} is live, and there is none before it.", "VERSION_NOT_FOUND")
    return max(numbers)
