"""Builds the image, and runs the README's tour against a container of it: `make image`.

With docker or podman where one of them answers; else with buildah, without isolation. Where buildah reaches no registry
of images, `--base debian` makes the base of Debian's packages: it needs root and debootstrap.
"""

import argparse
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, Protocol

import httpx

from tests.docs.generate import ROOT
from tests.docs.tour import check_promises, run_tour
from tests.ports import free_port

TAG = "baobab:local"
MOST_BYTES = 600_000_000
_START_SECONDS = 120
_KEY = "bb_sk_" + "a" * 40
_DEBIAN = "bookworm"
"""Its Python is of the version of the Dockerfile's base."""
_SLIM = ("usr/share/doc", "usr/share/man", "usr/share/info", "usr/share/locale", "var/cache/apt", "var/lib/apt/lists")
"""What the base of the Dockerfile leaves out, too."""


class Engine(Protocol):
    def build(self) -> None: ...

    def inspect(self) -> tuple[int, Any]:
        """The image's bytes and its configuration."""
        ...

    def run(self, port: int) -> "Container": ...


class Container(Protocol):
    def execute(self, *command: str) -> str:
        """Runs a command in the container and returns its output; raises CalledProcessError where it fails."""
        ...

    def stop(self) -> None: ...


class Docker:
    """docker, or podman, which takes the same commands."""

    def __init__(self, program: str) -> None:
        self._program = program

    def build(self) -> None:
        _run_command(self._program, "build", "--tag", TAG, ROOT)

    def inspect(self) -> tuple[int, Any]:
        (image,) = json.loads(_read_output(self._program, "image", "inspect", TAG))
        return image["Size"], image["Config"]

    def run(self, port: int) -> "DockerContainer":
        port_mapping = f"127.0.0.1:{port}:8000"
        key = f"BAOBAB_BOOTSTRAP_KEY={_KEY}"
        restrictions = ("--read-only", "--tmpfs", "/tmp", "--cap-drop", "ALL", "--init")  # noqa: S108
        name = _read_output(
            self._program, "run", "--detach", *restrictions, "--publish", port_mapping, "--env", key, TAG
        )
        return DockerContainer(self._program, name.strip())


class DockerContainer:
    def __init__(self, program: str, name: str) -> None:
        self._program, self._name = program, name

    def execute(self, *command: str) -> str:
        return _read_output(self._program, "exec", self._name, *command)

    def stop(self) -> None:
        _run_command(self._program, "stop", "--time", "20", self._name)
        _run_command(self._program, "rm", "--volumes", self._name)


class Buildah:
    """buildah in a folder of its own. It only changes the root folder of what it runs: the network is the host's."""

    def __init__(self, folder: Path, base: str) -> None:
        self._folder, self._base = folder, base
        self._program = ("buildah", "--root", folder / "storage", "--runroot", folder / "run")

    def build(self) -> None:
        pull: tuple[str, ...] = ()
        if self._base == "debian":
            self._make_base()
            pull = ("--pull-never",)
        # What pip is told on this machine, and whom it trusts.
        files = [Path("/etc/pip.conf"), Path("/etc/ssl/certs/ca-certificates.crt")]
        volumes = [word for file in files if file.exists() for word in ("--volume", f"{file}:{file}:ro")]
        options = ("--isolation", "chroot", "--network", "host", "--format", "docker", *pull, *volumes)
        _run_command(*self._program, "bud", *options, "--tag", TAG, ROOT)

    def inspect(self) -> tuple[int, Any]:
        (image,) = [
            listed_image
            for listed_image in json.loads(_read_output(*self._program, "images", "--json"))
            if f"localhost/{TAG}" in (listed_image["names"] or ())
        ]
        payload = json.loads(_read_output(*self._program, "inspect", "--type", "image", TAG))
        return _parse_size(image["size"]), payload["Docker"]["config"]

    def run(self, port: int) -> "BuildahContainer":
        name = _read_output(*self._program, "from", "--pull-never", TAG).strip()
        return BuildahContainer(self._program, name, port, self._folder)

    def _make_base(self) -> None:
        tag = next(
            line.split()[1] for line in (ROOT / "Dockerfile").read_text().splitlines() if line.startswith("FROM")
        )
        root = self._folder / "debian"
        packages = "python3,python3-venv,python3-pip,ca-certificates"
        _run_command("debootstrap", "--variant=minbase", f"--include={packages}", _DEBIAN, root)
        for name in _SLIM:
            shutil.rmtree(root / name, ignore_errors=True)
        (root / "usr/bin/python").symlink_to("python3")
        name = _read_output(*self._program, "from", "scratch").strip()
        _run_command(*self._program, "copy", "--quiet", name, root, "/")
        _run_command(*self._program, "commit", "--quiet", "--rm", name, f"docker.io/library/{tag}")
        shutil.rmtree(root)


class BuildahContainer:
    def __init__(self, program: Sequence[object], name: str, port: int, folder: Path) -> None:
        self._program, self._name = program, name
        environment = {"BAOBAB_PORT": str(port), "BAOBAB_HOST": "127.0.0.1", "BAOBAB_BOOTSTRAP_KEY": _KEY}
        self._options = [word for pair in environment.items() for word in ("--env", "=".join(pair))]
        self._log = folder / "server.log"
        with self._log.open("wb") as log:
            command = self._command("baobab", "serve")
            self._process = subprocess.Popen(command, stdout=log, stderr=log, start_new_session=True)

    def execute(self, *command: str) -> str:
        return _read_output(*self._command(*command))

    def stop(self) -> None:
        os.killpg(self._process.pid, signal.SIGTERM)
        self._process.wait(30)
        _run_command(*self._program, "rm", self._name)

    def _command(self, *command: str) -> list[str]:
        isolation = ("--isolation", "chroot", "--network", "host")
        return [str(word) for word in (*self._program, "run", *isolation, *self._options, self._name, "--", *command)]


def main(arguments: Sequence[str] | None = None) -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument(
        "--base", choices=("registry", "debian"), default="registry", help="where buildah's base is from"
    )
    options = parser.parse_args(arguments)
    with _open_engine(options.base) as engine:
        engine.build()
        size, configuration = engine.inspect()
        print(f"{size / 1e6:.0f} MB")
        assert size < MOST_BYTES, "the image is larger than it may be"
        assert configuration["User"] == "10001:10001", configuration
        assert "/data" in configuration["Volumes"], configuration
        port = free_port()
        container = engine.run(port)
        try:
            _wait_until_ready(f"http://127.0.0.1:{port}")
            check_container(container, f"http://127.0.0.1:{port}", configuration["Healthcheck"]["Test"])
        finally:
            container.stop()
    return 0


def check_container(container: Container, address: str, health: Sequence[str]) -> None:
    """Does what the README says, and looks at what only a container can lack."""
    assert container.execute("id", "--user").strip() == "10001"
    kind, *command = health
    assert kind == "CMD", health
    container.execute(*command)
    check_promises(*run_tour(address, _KEY))
    models = httpx.get(f"{address}/v1/models", headers={"Authorization": f"Bearer {_KEY}"}, timeout=30).json()["data"]
    assert "baobab/minilm-l6-v2" in {model["id"] for model in models}, "the weights of the embeddings are not there"
    print("ready, healthy, not root; the README's tour works, and the embeddings have their weights")


@contextmanager
def _open_engine(base: str) -> Iterator[Engine]:
    for program in ("docker", "podman"):
        if shutil.which(program) and not subprocess.run([program, "info"], capture_output=True, check=False).returncode:
            yield Docker(program)
            return
    if shutil.which("buildah") is None:
        sys.exit("Neither docker nor podman answers, and there is no buildah: install one of them.")
    os.environ |= {"STORAGE_DRIVER": "vfs", "BUILDAH_ISOLATION": "chroot"}
    with tempfile.TemporaryDirectory(prefix="baobab-image-") as folder:
        engine = Buildah(Path(folder), base)
        try:
            yield engine
        finally:
            _run_command("buildah", "--root", f"{folder}/storage", "--runroot", f"{folder}/run", "rm", "--all")


def _wait_until_ready(address: str) -> None:
    deadline = time.monotonic() + _START_SECONDS
    while True:
        try:
            if httpx.get(f"{address}/health/ready").is_success:
                return
        except httpx.TransportError:
            pass
        assert time.monotonic() < deadline, "the container is not ready"
        time.sleep(0.2)


def _parse_size(text: str) -> int:
    """Converts a size of buildah's, such as `727 MB`, to bytes."""
    number, unit = text.split()
    return int(float(number) * {"KB": 10**3, "MB": 10**6, "GB": 10**9}[unit])


def _run_command(*command: object) -> None:
    subprocess.run([str(word) for word in command], check=True)


def _read_output(*command: object) -> str:
    return subprocess.run([str(word) for word in command], stdout=subprocess.PIPE, text=True, check=True).stdout


if __name__ == "__main__":
    sys.exit(main())
