"""`baobab functions` against a server that runs."""

import json
import signal
from typing import Any

import pytest

from tests.cli.client.conftest import HELLO, OPEN_TO_ALL, Terminal


def deploy_hello(terminal: Terminal) -> None:
    source = terminal.write("functions/hello.ts", HELLO)
    terminal.write("functions/hello.json", json.dumps(OPEN_TO_ALL))
    terminal.run("functions", "deploy", source, "--message", "Begin")


def test_a_file_with_its_settings_becomes_a_function_that_can_be_called(terminal: Terminal) -> None:
    deploy_hello(terminal)
    assert terminal.call("GET", "/v1/APP/fn/hello", headers={"authorization": ""}).json()["hello"] == "world"
    (version,) = terminal.call("GET", "/v1/APP/functions/hello/versions").json()["versions"]
    assert version["message"] == "Begin"
    assert "hello" in terminal.run("functions", "list")
    (row,) = terminal.run_json("functions", "list")["functions"]
    assert [trigger["type"] for trigger in row["triggers"]] == ["http"]


def test_a_folder_is_deployed_and_a_file_that_is_refused_keeps_no_other_from_it(terminal: Terminal) -> None:
    terminal.write("functions/good.ts", HELLO)
    terminal.write("functions/other.py", "def handler(req, ctx):\n    return {'from': 'python'}\n")
    terminal.write("functions/bad.js", "export default ( => 1\n")
    for name in ("_shared.ts", "good.test.ts", "baobab.d.ts", "notes.md"):
        terminal.write(f"functions/{name}", "this is no function")
    output = terminal.run("functions", "deploy", terminal.folder / "functions", code=1)
    assert "bad.js: " in output
    assert "line 1, column" in output
    assert "1 of 3 functions were not deployed." in output
    names = [row["name"] for row in terminal.call("GET", "/v1/APP/functions").json()["functions"]]
    assert names == ["good", "other"]
    answer = terminal.run_json("functions", "deploy", terminal.folder / "functions", code=1)
    assert [("error" in each, each["name"]) for each in answer["functions"]] == [
        (True, "bad"),
        (False, "good"),
        (False, "other"),
    ]


@pytest.mark.parametrize(
    ("name", "content", "reason"),
    [
        ("f/hello.rb", "puts 1", "no source of a function"),
        ("f/he llo.ts", HELLO, "Rename it"),
        ("f/hello.ts", "x" * (2**20 + 1), "at most 1048576"),
    ],
)
def test_a_file_that_cannot_be_a_function_is_refused_before_anything_is_sent(
    terminal: Terminal, name: str, content: str, reason: str
) -> None:
    assert reason in terminal.run("functions", "deploy", terminal.write(name, content), code=1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [("[]", "an object"), ("{", "no JSON"), ('{"envVars": {"A": "1"}}', "baobab functions env set")],
)
def test_settings_that_are_no_settings_are_named_with_their_file(
    terminal: Terminal, settings: str, reason: str
) -> None:
    source = terminal.write("hello.ts", HELLO)
    terminal.write("hello.json", settings)
    output = terminal.run("functions", "deploy", source, code=1)
    assert reason in output
    assert "hello.json" in output


def test_a_generated_secret_is_shown_once(terminal: Terminal) -> None:
    source = terminal.write("hook.ts", HELLO)
    terminal.write("hook.json", json.dumps({"triggers": [{"type": "webhook"}]}))
    assert "shown this once: whsec_" in terminal.run("functions", "deploy", source)
    assert "whsec_" not in terminal.run("functions", "deploy", source)


def test_a_function_is_invoked_with_data_and_its_failure_is_an_exit_status(terminal: Terminal) -> None:
    answer = "const b = await req.json(); if (b.bad) throw new Error('no'); return Response.json(b)"
    code = f"export default async (req) => {{ {answer} }}"
    terminal.run("functions", "deploy", terminal.write("echo.ts", code))
    assert json.loads(terminal.run("functions", "invoke", "echo", "--data", '{"a": 1}')) == {"a": 1}
    data = terminal.write("data.json", '{"a": 2}')
    assert json.loads(terminal.run("functions", "invoke", "echo", "--data", f"@{data}")) == {"a": 2}
    assert json.loads(terminal.run("functions", "invoke", "echo", "--data", "-", piped='{"a": 3}')) == {"a": 3}
    answer = terminal.run_json("functions", "invoke", "echo", "--data", '{"a": 4}')
    assert (answer["status"], answer["body"]) == (200, {"a": 4})
    assert "The status is 500" in terminal.run("functions", "invoke", "echo", "--data", '{"bad": 1}', code=1)
    assert "no JSON" in terminal.run("functions", "invoke", "echo", "--data", "hello", code=1)


def test_a_rollback_goes_to_the_version_before_and_forward_again(terminal: Terminal) -> None:
    deploy_hello(terminal)
    output = terminal.run("functions", "rollback", "hello", code=1)
    assert "there is none before it" in output
    terminal.run("functions", "deploy", terminal.write("functions/hello.ts", HELLO.replace("world", "moon")))
    assert terminal.call("GET", "/v1/APP/fn/hello").json()["hello"] == "moon"
    assert "version 1" in terminal.run("functions", "rollback", "hello")
    assert terminal.call("GET", "/v1/APP/fn/hello").json()["hello"] == "world"
    assert terminal.run_json("functions", "rollback", "hello", "--to", "2")["version"] == 2


def test_variables_are_piped_in_listed_by_name_and_never_printed(terminal: Terminal) -> None:
    deploy_hello(terminal)
    secret = "s3cret-value"
    outputs = [
        terminal.run("functions", "env", "set", "WHO", piped=f"{secret}\n"),
        terminal.run("functions", "env", "set", "--function", "hello", piped='# a note\nexport A="1"\nB=2\n'),
        terminal.run("functions", "env", "list"),
        terminal.run("functions", "env", "list", "--function", "hello"),
    ]
    assert not any(secret in output for output in outputs)
    assert outputs[2:] == ["WHO\n", "A\nB\n"]
    assert terminal.call("GET", "/v1/APP/fn/hello").json()["who"] == secret
    terminal.run("functions", "env", "unset", "WHO")
    assert terminal.call("GET", "/v1/APP/fn/hello").json()["who"] is None


@pytest.mark.parametrize(
    ("arguments", "piped", "reason"),
    [
        (["WHO=secret"], "", "Give only the name WHO"),
        (["WHO"], "", "The pipe is empty"),
        ([], "no assignment", "Line 1"),
        (["A", "B"], "A=1\n", "not for just the variables named"),
    ],
)
def test_variables_that_could_leak_or_be_mistaken_are_refused(
    terminal: Terminal, arguments: list[str], piped: str, reason: str
) -> None:
    output = terminal.run("functions", "env", "set", *arguments, piped=piped, code=1)
    assert reason in output
    assert "secret" not in output


def test_logs_show_calls_with_what_they_printed_and_follow_goes_on(terminal: Terminal) -> None:
    work = "console.log(new URL(req.url).searchParams.get('n')); return new Response('ok')"
    code = f"export default async (req) => {{ {work} }}"
    terminal.run("functions", "deploy", terminal.write("talk.ts", code))
    terminal.call("GET", "/v1/APP/fn/talk?n=first")
    assert "info: first" in terminal.run("functions", "logs", "talk")
    with terminal.start("functions", "logs", "talk", "--follow", "--json") as process:
        assert process.stdout is not None
        rows: list[dict[str, Any]] = [json.loads(process.stdout.readline())]
        terminal.call("GET", "/v1/APP/fn/talk?n=second")
        rows.append(json.loads(process.stdout.readline()))
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 0
    assert [row["consoleLogs"][0]["message"] for row in rows] == ["first", "second"]


def test_a_mistake_is_a_sentence_or_json_and_an_exit_status(terminal: Terminal) -> None:
    output = terminal.run("functions", "rollback", "nobody", code=1)
    assert "nobody" in output
    assert "Traceback" not in output
    assert terminal.run_json("functions", "rollback", "nobody", code=1)["error"]["code"]
    assert "baobab apps" in terminal.run("functions", "list", "--app", "no-such-app", code=1)
    terminal.run("functions", "deploy", code=2)


def test_an_app_is_named_by_its_name(terminal: Terminal) -> None:
    deploy_hello(terminal)
    name = next(each["name"] for each in terminal.run_json("apps")["apps"] if each["id"] == terminal.app)
    assert terminal.run_json("functions", "list", "--app", name)["functions"][0]["name"] == "hello"
