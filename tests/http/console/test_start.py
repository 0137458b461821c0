"""The console costs nothing before somebody opens it, nor does the export of traces that nobody has set."""

import json
import subprocess
import sys
from pathlib import Path

_SCRIPT = """
import asyncio, json, sys
from pathlib import Path
from tests.backends import ACTIVE_BACKEND, SqliteBackend
from tests.installation import open_installation

folder = Path(sys.argv[1])
(folder / "migrated").mkdir()
ACTIVE_BACKEND.append(SqliteBackend())

def list_loaded():
    # Copied, since another thread may import something meanwhile.
    names = list(sys.modules)
    return [name for name in names if name == "jinja2" or name.startswith(("jinja2.", "baobab.http.console."))]

async def main():
    async with open_installation(folder / "data") as baobab:
        before = list_loaded()
        assert (await baobab.client.get("/health")).status_code == 200
        assert (await baobab.client.get("/platform/me", headers=baobab.owner)).status_code == 200
        served = list_loaded()
        assert (await baobab.client.get("/console/sign-in")).status_code == 200
        # LangGraph imports the rest of OpenTelemetry, if it is installed.
        traced = [name for name in [*sys.modules] if name.startswith("opentelemetry.exporter")]
        print(json.dumps([before, served, "jinja2" in list_loaded(), traced]))

asyncio.run(main())
"""


def test_a_server_that_has_started_and_answered_has_loaded_neither(tmp_path: Path) -> None:
    process = subprocess.run(
        [sys.executable, "-c", _SCRIPT, str(tmp_path)],
        cwd=Path(__file__).parents[3],
        capture_output=True,
        text=True,
        timeout=120,
        check=False,
    )
    assert process.returncode == 0, process.stderr
    assert json.loads(process.stdout.splitlines()[-1]) == [[], [], True, []]
