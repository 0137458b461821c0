"""Verdicts: what the suite's checks say of each scenario, held against what we know to be left out."""

import json
import re
import tomllib
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

LEFT_OUT = Path(__file__).with_name("left_out.toml")

_FOLDER = re.compile(r"server-(.+)-\d{4}-\d\d-\d\dT[\d-]+Z")
# The suite adds this to every scenario that exchanged anything; it says nothing of what the scenario is about.
_EVERYWHERE = "wire-schema-valid"


@dataclass(frozen=True)
class Verdict:
    scenario: str
    faults: tuple[str, ...]
    looked: bool
    """Whether it has found anything to be right. A scenario that found nothing to look at has not passed."""

    @property
    def has_passed(self) -> bool:
        return self.looked and not self.faults


def load_verdicts(folder: Path) -> list[Verdict]:
    """One for each scenario whose checks the suite has written into a folder."""
    found = []
    for file in sorted(folder.glob("*/checks.json")):
        match = _FOLDER.fullmatch(file.parent.name)
        assert match, file
        checks = json.loads(file.read_text())
        # A warning is a fault: the suite warns where the protocol says "should".
        faults = tuple(
            f"{check['status']} {check['id']}: {check.get('errorMessage') or check['description']}"
            for check in checks
            if check["status"] in ("FAILURE", "WARNING")
        )
        looked = any(check["status"] == "SUCCESS" and check["id"] != _EVERYWHERE for check in checks)
        found.append(Verdict(match[1], faults, looked))
    return found


def load_left_out(configuration: str, requirements: str) -> set[str]:
    return {
        scenario
        for group in tomllib.loads(LEFT_OUT.read_text())["left_out"]
        if configuration in group["configurations"] and requirements == group["requirements"]
        for scenario in group["scenarios"]
    }


def judge_verdicts(found: list[Verdict], known: set[str], expected: int) -> tuple[Counter[str], list[str]]:
    """How many scenarios passed, failed and are left out; and what there is to say of the failed ones."""
    count: Counter[str] = Counter()
    told = []
    for verdict in found:
        if verdict.scenario in known and not verdict.has_passed:
            count["left out"] += 1
        elif verdict.scenario in known:
            count["failed"] += 1
            told.append(f"{verdict.scenario}: passes; take it out of {LEFT_OUT.name}")
        elif verdict.has_passed:
            count["passed"] += 1
        else:
            count["failed"] += 1
            faults = verdict.faults or ("it found nothing to look at",)
            told += [f"{verdict.scenario}: {fault}" for fault in faults]
    ran = {verdict.scenario for verdict in found}
    for scenario in sorted(known - ran):
        count["failed"] += 1
        told.append(f"{scenario}: did not run; {LEFT_OUT.name} names it")
    missing = expected - len(ran)
    if missing:
        count["failed"] += abs(missing)
        told.append(f"{len(found)} scenarios ran; there are {expected}")
    return count, told
