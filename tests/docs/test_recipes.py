"""What the pages with recipes tell a reader to type works as written."""

import hmac
import json
import os
import re
import secrets
import subprocess
import sys
import time
from collections.abc import Iterator
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any

import httpx
import pytest

from tests.cli.server_process import TIMEOUT_SECONDS, ServerProcess, run_server
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.docs.shell import check_order, run_shell, set_variables
from tests.docs.test_first_steps import wait_until_it_answers
from tests.ports import free_port

REFUSED, LEAKED, PUBLIC, BUDGETS, FILES, REPOSITORY, DATA, APPROVALS, RETRIEVAL, SITES, FUNCTIONS = (
    (ROOT / "docs" / f"{page}.md").read_text()
    for page in (
        "refused",
        "leaked-key",
        "public-page",
        "try-budgets",
        "files",
        "repository",
        "data",
        "approvals",
        "retrieval",
        "sites",
        "functions",
    )
)


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder in which the server was started, where the pages' relative paths lead."""
    root = tmp_path_factory.mktemp("recipes")
    (root / ".venv" / "bin").mkdir(parents=True)
    (root / ".venv" / "bin" / "baobab").symlink_to(Path(sys.executable).with_name("baobab"))
    return root


@pytest.fixture(scope="module")
def parrot_port(folder: Path) -> Iterator[str]:
    """The port at which the model server of the page answers."""
    port = str(free_port())
    (program,) = find_blocks(BUDGETS, "python")
    (folder / "parrot.py").write_text(program.replace("9900", port))
    with subprocess.Popen([sys.executable, "parrot.py"], cwd=folder, stderr=subprocess.DEVNULL) as process:
        try:
            wait_until_it_answers(f"http://127.0.0.1:{port}/v1/models")
            yield port
        finally:
            process.terminate()


@pytest.fixture(scope="module")
def server(folder: Path, parrot_port: str) -> Iterator[ServerProcess]:
    (start,) = find_blocks(BUDGETS, "console")
    (servers,) = re.findall(r"BAOBAB_AI_SERVERS=(\S+)", start)
    settings = {"BAOBAB_AI_SERVERS": servers.replace("9900", parrot_port), "BAOBAB_ACCESS_LOG": "1"}
    with run_server(folder / "data", settings=settings) as process:
        yield process


def keep_variables(server: ServerProcess) -> tuple[str, str]:
    """A new app, and the commands that set the pages' variables to it."""
    with open_client(server, server.key) as calls:
        app = calls.post("/init", json={"name": f"recipe-{secrets.token_hex(6)}"}).json()["app_id"]
    return app, f"BAOBAB={server.address}\nKEY={server.key}\nAPP={app}\n"


def open_client(server: ServerProcess, key: str = "") -> httpx.Client:
    headers = {"authorization": f"Bearer {key}"} if key else {}
    return httpx.Client(base_url=server.address, headers=headers, timeout=TIMEOUT_SECONDS)


def read_bodies(output: str) -> list[dict[str, Any]]:
    """The JSON objects that were printed one after the other."""
    bodies = []
    while output := output.strip():
        body, end = json.JSONDecoder().raw_decode(output)
        bodies.append(body)
        output = output[end:]
    return bodies


def find_program(folder: Path) -> dict[str, Any]:
    """The environment of a reader who has installed the program, and not logged in anywhere."""
    path = f"{Path(sys.executable).parent}:{os.environ['PATH']}"
    return {"PATH": path, "XDG_CONFIG_HOME": str(folder / "config")}


def test_a_refusal_is_found_in_each_place_that_the_page_names(server: ServerProcess) -> None:
    (first,) = find_blocks(REFUSED.partition("\n## ")[0], "sh")
    of_keys, of_app, of_server = find_blocks(REFUSED, "sh", below="Afterwards: four places")
    app, variables = keep_variables(server)
    answer = run_shell(variables + first)
    assert answer.startswith("HTTP/1.1 404 ")
    (request_id,) = re.findall(r"^x-request-id: (\S+)", answer, re.MULTILINE | re.IGNORECASE)
    with open_client(server, server.key) as calls:
        refusal = calls.delete(f"/v1/{app}/agents/nobody")
    assert refusal.status_code == 404

    now = datetime.now(UTC)
    begin, end = (f"{now + timedelta(days):%Y-%m-%dT%H:%M:%SZ}" for days in (-1, 1))
    # The page asks for yesterday; the server of this test has been there since today.
    of_keys, of_app = (
        text.replace("${YESTERDAY}T00:00:00Z", begin).replace("${TODAY}T00:00:00Z", end) for text in (of_keys, of_app)
    )
    (body,) = read_bodies(run_shell(variables + of_keys))
    # Other recipes are refused in the same app.
    assert ("nowhere", "not_found") in [(row["key"], row["error_code"]) for row in body["entries"]]

    rows = read_bodies(run_shell(variables + of_app.replace("req_PUT_YOURS_HERE", refusal.headers["x-request-id"])))
    events = [row["event_type"] for row in rows]
    assert events.count("agent.delete_failed") == 2, "once by outcome, once by its request"

    start, search = of_server.splitlines()
    assert start == "BAOBAB_ACCESS_LOG=1 make serve 2> server.log"
    line = run_shell(search.replace("req_PUT_YOURS_HERE", request_id).replace("server.log", str(server.log)))
    assert json.loads(line)["status"] == 404


def test_a_leaked_key_is_replaced_revoked_and_looked_up_by_the_steps_of_the_page(
    server: ServerProcess, folder: Path
) -> None:
    app, variables = keep_variables(server)
    with open_client(server, server.key) as calls:
        body = calls.post("/api-keys", json={"name": "deploy"}).json()
    with open_client(server, body["key"]) as calls:
        calls.put(f"/v1/{app}/kv/changed", json={"value": 1}).raise_for_status()
        calls.post("/api-keys", json={"name": "made"}).raise_for_status()
        table = {"columns": {"id": {"type": "serial", "primaryKey": True}}}
        schema = {"name": "make a table", "schema": {"tables": {"leaks": table}}}
        calls.post(f"/v1/{app}/schema/apply", json=schema).raise_for_status()
        calls.post(f"/v1/{app}/leaks", json={}).raise_for_status()
    with open_client(server, server.key) as calls:
        # Writes are counted in the audit log a moment after they were answered.
        end = time.monotonic() + TIMEOUT_SECONDS
        while not calls.get(f"/v1/{app}/audit-logs?actor_id={body['key_id']}").json()["logs"]:
            assert time.monotonic() < end, "no row of the key's write"
            time.sleep(0.05)
    script = "\n".join(find_blocks(LEAKED, "sh"))
    assert script.count("PUT_ITS_ID_HERE") == 1
    process = run_shell(variables + script.replace("PUT_ITS_ID_HERE", body["key_id"]), folder)
    check_order(process, '"name":"deploy"', '"name":"deploy-2"', *re.findall(r"^# (.*)$", script, re.MULTILINE))
    _, _, looked_up = process.partition('"keys_revoked":2}')
    check_order(
        looked_up,
        '"logs":',
        f'"actor_id":"{body["key_id"]}"',
        '"usage":',
        '"approvals":[]',
        '"table": "leaks"',
        "api_key.create|",
    )
    with open_client(server, body["key"]) as calls:
        assert calls.get("/apps").status_code == 401


def test_each_place_that_a_leaked_key_may_have_changed_can_be_read(server: ServerProcess) -> None:
    app, _ = keep_variables(server)
    with open_client(server, server.key) as calls:
        organisation = calls.get("/v1/organizations").json()["organizations"][0]["id"]
        _, _, table = LEAKED.partition("| What it may have left | Where |")
        places = [path for line in table.splitlines() for path in re.findall(r"`GET (\S+)`", line)]
        assert len(places) > 5
        for path in places:
            answer = calls.get(path.replace("APP_ID", app).replace("ORG_ID", organisation))
            assert answer.status_code == 200, path


def test_an_operator_without_a_key_revokes_one_by_the_commands_of_the_page(server: ServerProcess, folder: Path) -> None:
    rescue, listing, revoking = re.findall(r"`(\.venv/bin/baobab keys [^`]+)`", LEAKED)
    assert "bb_sk_" in run_shell(rescue, folder)
    (line,) = [line for line in run_shell(listing, folder).splitlines() if "rescue" in line]
    key_id = re.search(r"[0-9a-f-]{36}", line)
    assert key_id, line
    run_shell(revoking.replace("ID", key_id[0]), folder)


def test_the_public_page_reads_the_number_and_its_visitors_cannot_write_it(server: ServerProcess) -> None:
    app, variables = keep_variables(server)
    script = "\n".join(find_blocks(PUBLIC, "sh"))
    check_order(run_shell(variables + script), *re.findall(r"^# (.*)$", script, re.MULTILINE))
    (address,) = re.findall(r'const address = "https://[^/]+(\S+)";', PUBLIC)
    path = address.replace("APP_ID", app)
    page = {"origin": "https://shop.example"}
    with open_client(server) as visitor:
        answer = visitor.get(path, headers=page)
        assert (answer.json(), answer.headers["access-control-allow-origin"]) == ({"value": 1}, page["origin"])
        assert visitor.get(path, headers={"origin": "https://other.example"}).status_code == 403
        assert visitor.post(f"{path}/incr", headers=page).status_code in {401, 403}
        with open_client(server, server.key) as owner:
            owner.post(f"/v1/{app}/secure").raise_for_status()
        assert visitor.get(path, headers=page).status_code == 401


def test_a_key_asks_and_a_person_decides_by_the_commands_of_the_page(server: ServerProcess) -> None:
    _, variables = keep_variables(server)
    making, replacing, rule, approving, rejecting = find_blocks(APPROVALS, "sh")[:5]
    new_key = 'curl -s -X PUT $BAOBAB/v1/$APP/kv/milk -H "Authorization: Bearer $AGENT" -d "{\\"value\\": 1}"\n'
    _, choosing, _ = approving.splitlines()
    process = run_shell(f"{variables}{making}{replacing}{rule}{new_key}{approving}{choosing}\n{rejecting}")
    check_order(process, '"pending"', "APPROVAL_REQUIRED", '"kv_put":"always"', '"pending"', '"milk"', '"bread"')
    check_order(process, '"status":"approved"', '"status":"rejected"')


def test_a_budget_refuses_calls_and_a_run_as_the_page_says(server: ServerProcess) -> None:
    app, variables = keep_variables(server)
    limit, spend, run, look = find_blocks(BUDGETS, "sh")
    run_shell(variables + limit)
    *answers, refusal = read_bodies(run_shell(variables + spend))
    assert [answer["usage"]["completion_tokens"] for answer in answers] == [20] * 4
    (example,) = read_bodies(find_blocks(BUDGETS, "json")[0])
    error, expected_error = refusal["error"], example["error"]
    assert error["message"].startswith(expected_error["message"].removesuffix(" ..."))
    expected_error["message"] = error["message"]
    expected_error["budget"] |= {name: error["budget"][name] for name in ("subject_id", "resets_at")}
    assert {name: error[name] for name in expected_error} == expected_error
    with open_client(server, server.key) as calls:
        short = {"model": "shop/parrot", "max_tokens": 10, "messages": [{"role": "user", "content": "Hi"}]}
        assert calls.post(f"/v1/{app}/chat/completions", json=short).status_code == 200
    assert '"type":"model_failed"' in run_shell(variables + run)
    process = run_shell(variables + look)
    check_order(process, '"spent_usd":0.1005', '"model":"shop/parrot"')
    with open_client(server, server.key) as calls:
        assert not calls.get("/dashboard/billing/budgets").json()["budgets"]


def test_tables_are_made_filled_and_opened_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    with open_client(server, server.key) as calls:
        app = calls.post("/init", json={"name": "tables"}).json()["app_id"]
    variables = f"cd {tmp_path}\nBAOBAB={server.address}\nKEY={server.key}\nAPP={app}\n"
    rows, warning, plan, batch, files, merge, isolation, policy, colleagues, admins, realtime, *channels, undo = (
        find_blocks(DATA, "sh")
    )
    commands = [rows, isolation, policy, realtime, undo, batch, files, warning, plan, colleagues, admins, *channels]
    commands.append(merge)
    process = run_shell(variables + "".join(commands))
    check_order(process, "Made 2 changes.", "Hello", '[{"title":"Hello","public":true}]', "posts_user_isolation")
    check_order(process, "posts_user_isolation", '[{"title":"Hello"}]', '{"anonymous":1,"any_user":1,"total":1}')
    check_order(process, '{"configured":[{"table":"posts","status":"enabled"}]}', "1", "[1,1]", "1")
    check_order(process, "`posts` has no column `titel`", "\nposts_user\n")
    check_order(process, "\nposts_user\n", "Made", "admins_add_members", "Made 1 change.")


def test_files_are_uploaded_read_and_bounded_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    _, variables = keep_variables(server)
    # The server names the address that it was started with, as it does behind a proxy.
    output = run_shell("\n".join((f"cd {tmp_path}", variables, *find_blocks(FILES, "sh"))))
    check_order(output, "Baobabs store water.", "today.md", "Baobabs store water.", "trips/b.txt", "trips/rome/a.txt")
    check_order(output, '"prefix":"trips/rome/"', "trips/oslo/b.txt", "archive/b.txt", "2", '"deleted_ids":[]', "{}")
    check_order(output, "null", "hi", "null", "404", "true", "86400", '"maxFileSizeMb":50')


def test_files_are_pushed_and_pulled_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    _, variables = keep_variables(server)
    push, pull = find_blocks(REPOSITORY, "sh")
    check_order(run_shell(f"cd {tmp_path}\n{variables}{push}{pull}"), '"file_count":1', "# My app")


def test_a_site_is_deployed_as_the_page_says_also_from_continuous_integration(
    server: ServerProcess, tmp_path: Path
) -> None:
    _, variables = keep_variables(server)
    in_one_call, by_folder, by_zip = find_blocks(SITES, "sh")
    (workflow,) = find_blocks(SITES, "yaml")
    (lines,) = re.findall(r"- run: \|\n((?: {10}.*\n)+)", workflow)
    (tmp_path / "dist" / "assets").mkdir(parents=True)
    (tmp_path / "dist" / "index.html").write_text("<h1>Built</h1>")
    (tmp_path / "dist" / "assets" / "app.js").write_text("let a = 1")
    recipe = "".join(line[10:] + "\n" for line in lines.splitlines())
    output = run_shell(f"cd {tmp_path}\n{variables}{in_one_call}{recipe}{by_zip}{by_folder}", **find_program(tmp_path))
    check_order(output, '"status":"READY"', "true", '"status":"READY"', '"files_count":2', ".localhost:")


def test_functions_are_deployed_and_called_as_the_page_says(server: ServerProcess, tmp_path: Path) -> None:
    commands = set_variables(server) + "echo $APP\n" + "\n".join(find_blocks(FUNCTIONS, "sh"))
    output = run_shell(commands, tmp_path, **find_program(tmp_path))
    assert "interface Ctx {" in (tmp_path / "functions" / "baobab.d.ts").read_text()
    check_order(
        output, '{"hello":"Ada"}', "greet  version 1", '{"greeting":"Good morning"}', "info: greeting a stranger"
    )
    check_order(output, '{"hello":"Ada"}', '"webhook_url"', '"type":"cron"', '{"thanks":true}', '"name":"lookup"')
    app_id = output.split()[0]
    base, owner = f"{server.address}/v1/{app_id}", {"authorization": f"Bearer {server.key}"}
    content = json.dumps({"id": "evt_1", "data": {"object": {"id": "pi_1", "amount": 500}}}).encode()
    at = str(int(time.time()))
    digest = hmac.new(b"whsec_test", f"{at}.".encode() + content, "sha256").hexdigest()
    signature = {"stripe-signature": f"t={at},v1={digest}"}
    answers = [httpx.post(f"{base}/webhook/stripe", content=content, headers=signature) for _ in range(5)]
    assert [answer.status_code for answer in answers] == [200] * 5
    assert [answer.text == "ok" for answer in answers] == [True, False, False, False, False]
    assert httpx.get(f"{base}/kv/paid:pi_1", headers=owner).json()["value"] == {"id": "pi_1", "amount": 500}
    (program,) = find_blocks(FUNCTIONS, "python")
    deployment = {"name": "orders", "language": "python", "code": program}
    assert httpx.post(f"{base}/functions", json=deployment, headers=owner).status_code == 200
    answer = httpx.post(f"{base}/fn/orders", json={"id": "7"}, headers=owner)
    assert answer.json() == {"stored": "7"}


def test_a_visitor_gets_an_answer_from_the_documents_of_a_public_collection(server: ServerProcess) -> None:
    _, variables = keep_variables(server)
    blocks = find_blocks(RETRIEVAL, "sh", below="A public chatbot")
    script = "\n".join(blocks)
    collection, agent, *rest = read_bodies(run_shell(variables + "\n".join(blocks[:2])))
    assert collection["warnings"] == ["Anyone may read every document of `faq` without signing in."]
    assert (agent["agent"]["visibility"], rest) == ("public", [])
    output = run_shell(variables + "RAG=$BAOBAB/v1/$APP/rag/collections\n" + "\n".join(blocks[2:]))
    check_order(output, "Question: When are you open?", "hours.md", *re.findall(r"^# (\S.*)$", script, re.MULTILINE))
