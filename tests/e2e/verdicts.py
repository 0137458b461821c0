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
    has_success: bool
    """Whether it has found anything to be right. A scenario that found nothing to look at has not passed."""

    @property
    def has_passed(self) -> bool:
        return self.has_success and not self.faults


def load_verdicts(folder: Path) -> list[Verdict]:
    """One for each scenario whose checks the suite has written into a folder."""
    verdicts = []
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
        has_success = any(check["status"] == "SUCCESS" and check["id"] != _EVERYWHERE for check in checks)
        verdicts.append(Verdict(match[1], faults, has_success))
    return verdicts


def load_left_out(configuration: str, requirements: str) -> set[str]:
    return {
        scenario
        for group in tomllib.loads(LEFT_OUT.read_text())["left_out"]
        if configuration in group["configurations"] and requirements == group["requirements"]
        for scenario in group["scenarios"]
    }


def judge_verdicts(verdicts: list[Verdict], left_out: set[str], expected_count: int) -> tuple[Counter[str], list[str]]:
    """How many scenarios passed, failed and are left out; and what there is to say of the failed ones."""
    count: Counter[str] = Counter()
    complaints = []
    for verdict in verdicts:
        if verdict.scenario in left_out and not verdict.has_passed:
            count["left out"] += 1
        elif verdict.scenario in left_out:
            count["failed"] += 1
            complaints.append(f"{verdict.scenario}: passes; take it out of {LEFT_OUT.name}")
        elif verdict.has_passed:
            count["passed"] += 1
        else:
            count["failed"] += 1
            faults = verdict.faults or ("it found nothing to look at",)
            complaints += [f"{verdict.scenario}: {fault}" for fault in faults]
    ran = {verdict.scenario for verdict in verdicts}
    for scenario in sorted(left_out - ran):
        count["failed"] += 1
        complaints.append(f"{scenario}: did not run; {LEFT_OUT.name} names it")
    missing = expected_count - len(ran)
    if missing:
        count["failed"] += abs(missing)
        complaints.append(f"{len(verdicts)} scenarios ran; there are {expected_count}")
    return count, complaints
