"""The environments of peers that bring dozens of packages which nothing else here wants: each its own, below .bench/.

`make bench-peers` makes them all; a measurement makes the one that it needs.
"""

import subprocess
import venv
from importlib.metadata import version
from pathlib import Path
from typing import NamedTuple

_FOLDER = Path(__file__).parents[3] / ".bench"


class Peer(NamedTuple):
    name: str
    version: str
    extras: str = ""
    shared_packages: tuple[str, ...] = ()
    """What both sides stand on, in the very same versions."""


FASTMCP = Peer(
    "fastmcp", "4.1.2", shared_packages=("apsw", "httptools", "mcp", "pydantic", "starlette", "uvicorn", "uvloop")
)
DBOS = Peer("dbos", "3.4.0", shared_packages=("aiosqlite", "psycopg", "psycopg-binary", "sqlalchemy"))
MEM0 = Peer("mem0ai", "2.2.1")
# It imports httpx without asking for it.
GRAPHITI = Peer("graphiti-core", "0.31.1", "[kuzu]", shared_packages=("httpx",))
SQLITE_VEC = Peer("sqlite-vec", "0.1.9", shared_packages=("apsw",))
LLAMA_INDEX = Peer("llama-index-core", "0.14.25", shared_packages=("numpy",))
LITELLM = Peer("litellm", "1.106.2", "[proxy]")


def install_peer(peer: Peer) -> Path:
    """The interpreter of the peer's environment, made when it is first asked for. CalledProcessError."""
    folder = _FOLDER / f"{peer.name}-{peer.version}"
    python, marker = folder / "bin" / "python", folder / "installed"
    if not marker.exists():
        print(f"Installing {peer.name} {peer.version} into {folder} ...", flush=True)
        venv.create(folder, with_pip=True, clear=True)
        command = [str(python), "-m", "pip", "install", "--quiet", "--quiet", "--disable-pip-version-check"]
        same = [f"{name}=={version(name)}" for name in peer.shared_packages]
        subprocess.run([*command, f"{peer.name}{peer.extras}=={peer.version}", *same], check=True)
        marker.touch()
    return python


if __name__ == "__main__":
    for peer in (FASTMCP, DBOS, LITELLM, MEM0, GRAPHITI, SQLITE_VEC, LLAMA_INDEX):
        install_peer(peer)
