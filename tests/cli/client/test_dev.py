"""`baobab functions dev`: a folder of functions runs on this machine, and follows its files."""

import json
import re
import signal
import stat
import subprocess

import httpx

from tests.cli.client.conftest import HELLO, OPEN_TO_ALL, Terminal
from tests.ports import free_port


def read_until(process: subprocess.Popen[str], pattern: str) -> re.Match[str]:
    """Reads what the command prints, up to a line that has the pattern."""
    assert process.stdout is not None
    lines = []
    for line in process.stdout:
        lines.append(line)
        match = re.search(pattern, line)
        if match:
            return match
    raise AssertionError("".join(lines))


def test_a_folder_runs_on_this_machine_and_follows_its_files(terminal: Terminal) -> None:
    folder = terminal.folder / "functions"
    terminal.write("functions/hello.ts", HELLO)
    terminal.write("functions/hello.json", json.dumps(OPEN_TO_ALL))
    terminal.write("functions/.env", "WHO=ada-lovelace\n")
    table = {"columns": {"id": {"type": "serial", "primaryKey": True}, "text": "text"}}
    terminal.write("functions/schema.json", json.dumps({"tables": {"notes": table}}))
    with terminal.start("functions", "dev", folder, "--port", free_port()) as process:
        try:
            address = read_until(process, r"run at (\S+)/fn/NAME")[1]
            read_until(process, r"hello\.ts: version 1 ")
            assert httpx.get(f"{address}/fn/hello").json() == {"hello": "world", "who": "ada-lovelace"}
            terminal.write("functions/hello.ts", "export default ( => 1")
            read_until(process, r"hello\.ts: .*line 1, column")
            assert httpx.get(f"{address}/fn/hello").json()["hello"] == "world"
            query = "ctx.db.query('insert into notes (text) values ($1)', ['a'])"
            code = f"export default async (req, ctx) => {{ console.log('heard'); return Response.json(await {query}) }}"
            terminal.write("functions/hello.ts", code)
            read_until(process, r"hello\.ts: version 2 ")
            assert httpx.get(f"{address}/fn/hello").json()["rowCount"] == 1
            read_until(process, r"info: heard")
            (folder / "hello.ts").unlink()
            read_until(process, r"hello: removed")
            assert httpx.get(f"{address}/fn/hello").status_code == 404
            # Nothing of it is in the app of the server that the variables name.
            assert terminal.call("GET", "/v1/APP/functions").json()["functions"] == []
        finally:
            process.send_signal(signal.SIGINT)
        output = process.communicate(timeout=60)[0]
        assert process.returncode == 0, output
    assert "Stopped." in output
    assert (folder / ".baobab" / ".gitignore").read_text() == "*\n"
    assert stat.S_IMODE((folder / ".baobab" / "key").stat().st_mode) == 0o600


def test_a_folder_that_was_not_made_by_the_command_is_not_deleted(terminal: Terminal) -> None:
    terminal.write("functions/.baobab/mine.txt", "mine")
    output = terminal.run("functions", "dev", terminal.folder / "functions", "--fresh", code=1)
    assert "was not made by this command" in output
    assert (terminal.folder / "functions" / ".baobab" / "mine.txt").exists()


def test_types_are_written_with_the_tables_of_an_app(terminal: Terminal) -> None:
    table = {"columns": {"id": {"type": "serial", "primaryKey": True}, "title": {"type": "text", "nullable": False}}}
    schema = {"schema": {"tables": {"posts": table}}}
    assert terminal.call("POST", "/v1/APP/schema/apply", json=schema).status_code == 200
    file = terminal.folder / "baobab.d.ts"
    terminal.run("functions", "types", "--out", file)
    text = file.read_text()
    assert "interface Ctx {" in text
    assert "  posts: {\n    id: number;\n    title: string;\n  };\n" in text
