"""Run real clients against a real server: the light ones in `make e2e`, all of them in `make clients`.

`python -m tests.clients.run [--all] [NAME ...]`. A run of all, or of some by name, notes in `results.json` those that
come out as declared, with the date; `docs/clients.md` is made from it.
"""

import argparse
import contextlib
import datetime as dt
import json
import os
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import httpx

from tests.cli.server_process import ServerProcess, run_baobab, run_server
from tests.clients.install import NODE, install_node, install_python
from tests.clients.matrix import CHECKS, RESULTS, Client, load_clients, load_results

_SCRIPT_SECONDS = 150
_PASSWORD = "correct Horse 7!"
_QUIET = {
    "AGNO_TELEMETRY": "false",
    "ANONYMIZED_TELEMETRY": "false",
    "CREWAI_DISABLE_TELEMETRY": "true",
    "CREWAI_DISABLE_VERSION_CHECK": "true",
    "CREWAI_TRACING_ENABLED": "false",
    "LANGSMITH_TRACING": "false",
    "MCP_USE_ANONYMIZED_TELEMETRY": "false",
    "OPENAI_AGENTS_DISABLE_TRACING": "1",
    "OTEL_SDK_DISABLED": "true",
}
"""What keeps clients from calling home."""


@dataclass(frozen=True)
class ClientResult:
    client: Client
    model: str
    """Which of the client's models it was run on."""
    reports: dict[str, dict[str, str]]
    """What the script reported, by check."""
    errors: str
    """The end of what it wrote to standard error."""

    def has_passed(self, check: str) -> bool:
        report = self.reports.get(check, {})
        return "saw" in report and CHECKS[check].accepts(report["saw"])

    def list_faults(self) -> list[str]:
        """Lists the checks that did not end as declared: a check that fails, or passes though it is declared not to."""
        checks = self.client.checks_on(self.model)
        faults = [] if set(self.reports) >= set(checks) else [f"the script ended early: {self.errors}"]
        for check in checks:
            if self.has_passed(check) == (check in self.client.faults):
                report = json.dumps(self.reports.get(check, "no report"))
                faults.append(f"{check}: {'passes after all' if self.has_passed(check) else report[:1000]}")
        return faults


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--all", action="store_true", help="the heavy clients too")
    parser.add_argument("names", nargs="*", help="these clients only")
    options = parser.parse_args(arguments)
    all_clients = load_clients()
    clients = [c for c in all_clients if c.name in options.names] if options.names else all_clients
    if not (options.all or options.names):
        clients = [client for client in clients if client.weight == "light"]
    outcomes = run_clients(clients)
    fault_count = 0
    for outcome in outcomes:
        faults = outcome.list_faults()
        fault_count += len(faults)
        print(f"{outcome.client.title} {outcome.client.version}, {outcome.model} model: {_format_count(outcome)}")
        print(*(f"  {fault}" for fault in faults), sep="\n", end="\n" * bool(faults))
    print(f"{len(clients)} clients, {fault_count} checks not as declared")
    if options.all or options.names:
        note_results(outcomes)
    return 1 if fault_count else 0


def run_clients(clients: Sequence[Client]) -> list[ClientResult]:
    """Installs clients and runs each against one server, one after the other, while the next are being installed."""
    with (
        tempfile.TemporaryDirectory(prefix="baobab-clients-") as name,
        ThreadPoolExecutor(1) as node_installer,
        ThreadPoolExecutor(1) as python_installer,
    ):
        folder = Path(name)
        weights = sorted({client.weight for client in clients if client.language == "node"}, reverse=True)
        packages = {weight: node_installer.submit(install_node, weight) for weight in weights}
        programs: dict[str, Future[Path]] = {
            client.name: python_installer.submit(install_python, client)
            for client in clients
            if client.language == "python"
        }
        with start_provider() as url, run_server(folder / "data", settings=server_settings(url)) as server:
            run_baobab("password", "--data", folder / "data", "--password", _PASSWORD).check_returncode()
            outcomes: dict[str, list[ClientResult]] = {}
            # The Python environments are ready one by one, and first.
            for client in sorted(clients, key=lambda client: client.language != "python"):
                if client.language == "python":
                    command = [programs[client.name].result(), client.script]
                else:
                    packages[client.weight].result()
                    command = [NODE / "node", client.script]
                outcomes[client.name] = [
                    run_client(client, model, command, server, folder / f"{client.name}-{model}")
                    for model in client.models
                ]
            server.terminate()
    return [outcome for client in clients for outcome in outcomes[client.name]]


@contextlib.contextmanager
def start_provider() -> Iterator[str]:
    """The address of a fake provider of models that does what it is asked, in a process of its own."""
    command = [sys.executable, "-m", "tests.runtime.gateway.upstream", "--behaviour", "obedient"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        try:
            assert process.stdout is not None
            yield f"http://127.0.0.1:{int(process.stdout.readline())}"
        finally:
            process.terminate()


def server_settings(provider_url: str) -> dict[str, str]:
    """The settings of a server whose models of OpenAI and Anthropic come from the fake provider."""
    return {
        # Everything comes from one address and one account.
        "BAOBAB_PLAN": "enterprise",
        "BAOBAB_AI_PROBE": "false",
        "OPENAI_API_KEY": "sk-fake-0123456789",
        "OPENAI_BASE_URL": f"{provider_url}/v1",
        "ANTHROPIC_API_KEY": "sk-ant-fake-0123456789",
        "ANTHROPIC_BASE_URL": provider_url,
    }


def run_client(
    client: Client, model: str, command: Sequence[object], server: ServerProcess, home: Path
) -> ClientResult:
    """Runs a client's script in an app of its own, with a key whose destructive calls wait for a person."""
    home.mkdir()
    app = _ask(server, "POST", "/init", {"name": client.name})["app_id"]
    for key, value in (("greeting", "hello, client"), ("doomed", "not for long")):
        _ask(server, "PUT", f"/v1/{app}/kv/{key}", {"value": value})
    key = _ask(server, "POST", "/api-keys", {"name": client.name, "approval": "destructive"})["key"]
    environment = {
        **{name: os.environ[name] for name in ("LANG", "SSL_CERT_FILE") if name in os.environ},
        **_QUIET,
        "PATH": f"{NODE}{os.pathsep}{os.environ['PATH']}",
        "HOME": str(home),
        "CLIENT_BASE": server.address,
        "CLIENT_APP": app,
        "CLIENT_KEY": key,
        "CLIENT_OWNER": server.key,
        "CLIENT_PASSWORD": _PASSWORD,
        "CLIENT_MODEL": client.models[model],
        "CLIENT_CHECKS": ",".join(client.checks_on(model)),
    }
    try:
        process = subprocess.run(
            [str(part) for part in command],
            cwd=home,
            env=environment,
            capture_output=True,
            text=True,
            timeout=_SCRIPT_SECONDS,
            check=False,
        )
        output, errors = process.stdout, process.stderr
    except subprocess.TimeoutExpired as timeout:
        output = (timeout.stdout or b"").decode()
        errors = f"not done after {_SCRIPT_SECONDS} s"
    reports = (json.loads(line) for line in output.splitlines() if line.startswith('{"check"'))
    return ClientResult(client, model, {report["check"]: report for report in reports}, errors[-1500:])


def note_results(outcomes: Sequence[ClientResult]) -> None:
    """Notes the clients that come out as declared, for `docs/clients.md`, without those no longer declared."""
    results = load_results()
    today = dt.datetime.now(dt.UTC).date().isoformat()
    failed_names = {outcome.client.name for outcome in outcomes if outcome.list_faults()}
    for outcome in outcomes:
        client = outcome.client
        if client.name in failed_names:
            continue
        checks = {check: outcome.has_passed(check) for check in client.checks_on(outcome.model)}
        if outcome.model == "built-in":
            results[client.name] = {"version": client.version, "date": today, "checks": checks}
        else:
            results[client.name].setdefault("provider", {})[outcome.model] = checks
    declared_results = {client.name: results[client.name] for client in load_clients() if client.name in results}
    RESULTS.write_text(json.dumps(declared_results, indent=2) + "\n")


def _format_count(outcome: ClientResult) -> str:
    checks = outcome.client.checks_on(outcome.model)
    return f"{sum(map(outcome.has_passed, checks))} of {len(checks)} checks pass"


def _ask(server: ServerProcess, method: str, path: str, body: dict[str, Any]) -> Any:
    headers = {"Authorization": f"Bearer {server.key}"}
    answer = httpx.request(method, server.address + path, json=body, headers=headers, timeout=30)
    answer.raise_for_status()
    return answer.json() if answer.content else None


if __name__ == "__main__":
    sys.exit(main())
