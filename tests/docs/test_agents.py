"""What docs/agents.md tells a reader to type works as it stands there."""

import subprocess
from pathlib import Path

from tests.cli.server_process import PATIENCE, serving
from tests.docs.blocks import blocks
from tests.docs.generate import ROOT

INIT = """curl -s $BAOBAB/init -H "Authorization: Bearer $KEY" -d '{"name": "asking"}'"""


def test_the_examples_of_the_page_about_agents_run(tmp_path: Path) -> None:
    with serving(tmp_path / "data") as server:
        begin = [f"BAOBAB={server.address}", f"KEY={server.key}"]
        begin.append(f"APP=$({INIT} | grep -o 'app_[a-z0-9]\\{{12\\}}' | head -n 1)")
        script = "\n".join([*begin, *blocks((ROOT / "docs/agents.md").read_text(), "sh")])
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=PATIENCE, check=False
        )
    assert done.returncode == 0, done.stderr
    assert "event: run_end" in done.stdout
    assert '"output":8' in done.stdout
    assert '"status":"cancelled"' in done.stdout
