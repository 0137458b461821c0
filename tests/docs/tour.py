"""The README's tour, done as it stands there against a server that runs."""

import re
import subprocess

from tests.cli.server_process import TIMEOUT_SECONDS
from tests.docs.blocks import find_blocks
from tests.docs.generate import ROOT

README = (ROOT / "README.md").read_text()


def run_tour(address: str, key: str) -> tuple[str, str]:
    """The tour's shell commands in one script, and what it printed."""
    start, *steps = find_blocks(README, "sh")
    assert start == "make serve\n"
    script = replace_line("\n".join(steps), "BAOBAB=http://127.0.0.1:8000", f"BAOBAB={address}")
    script = replace_line(script, "KEY=bb_sk_PUT_YOUR_KEY_HERE", f"KEY={key}")
    process = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", script], capture_output=True, text=True, timeout=TIMEOUT_SECONDS, check=False
    )
    assert process.returncode == 0, process.stderr
    return script, process.stdout


def check_promises(script: str, output: str) -> None:
    """Fails unless the answers that the script's comments promise were printed, in their order."""
    matches = re.findall(r"^# (\{.*\})$", script, re.MULTILINE)
    assert len(matches) > 4
    for answer in matches:
        before, separator, output = output.partition(answer)
        assert separator, f"{answer} does not follow {before}"


def replace_line(text: str, line: str, other: str) -> str:
    assert text.count(line) == 1, f"{line!r} is what the test replaces"
    return text.replace(line, other)
