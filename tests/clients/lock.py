"""Locks what the clients need, from the versions in `clients.toml`: `make lock-clients`.

The packages of Node clients are taken from there, too; what else a script imports stays as its package.json has it.
"""

import json
import subprocess
from pathlib import Path

from tests.clients.install import install_uv
from tests.clients.matrix import NODE_FOLDERS, load_clients

_COMPILE = (
    *("pip", "compile", "--quiet", "--universal", "--python-version", "3.11", "--no-config", "--no-emit-index-url"),
    *("--generate-hashes", "--no-annotate", "--no-header", "-"),
)


def main() -> None:
    clients = load_clients()
    for client in clients:
        if client.language == "python":
            command = [install_uv(), *_COMPILE, "--output-file", client.lock]
            subprocess.run(
                list(map(str, command)),
                input="\n".join(client.requirements),
                text=True,
                stdout=subprocess.DEVNULL,
                check=True,
            )
    for weight, folder in NODE_FOLDERS.items():
        wanted_here = [client.packages for client in clients if (client.language, client.weight) == ("node", weight)]
        if wanted_here:
            _lock_node(folder, {package: version for pins in wanted_here for package, version in pins.items()})


def _lock_node(folder: Path, pins: dict[str, str]) -> None:
    file = folder / "package.json"
    manifest = json.loads(file.read_text())
    manifest["dependencies"] = dict(sorted((manifest["dependencies"] | pins).items()))
    file.write_text(json.dumps(manifest, indent=2) + "\n")
    options = ("--package-lock-only", "--omit-lockfile-registry-resolved", "--ignore-scripts", "--no-audit", "--silent")
    subprocess.run(["npm", "install", "--prefix", str(folder), *options], check=True)


if __name__ == "__main__":
    main()
