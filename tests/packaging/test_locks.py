"""The locks: every package pinned, every pin hashed, no index named."""

import re
import tomllib
from pathlib import Path

import pytest
from packaging.requirements import Requirement
from packaging.version import Version

ROOT = Path(__file__).parents[2]
RUNTIME, DEV = (ROOT / name for name in ("requirements.lock", "requirements-dev.lock"))

each_lock = pytest.mark.parametrize("lock", [RUNTIME, DEV], ids=lambda path: path.name)


def parse_pins(lock: Path) -> dict[str, tuple[Version, str]]:
    """Name -> version and the rest of the entry, markers and hashes."""
    pins = {}
    for entry in lock.read_text().replace("\\\n", " ").splitlines():
        match = re.match(r"([a-z0-9-]+)(?:\[[a-z,-]+\])?==(\S+)(.*)", entry)
        assert match, f"no pin: {entry[:80]}"
        pins[match[1]] = (Version(match[2]), match[3])
    return pins


@each_lock
def test_every_pin_is_hashed(lock: Path) -> None:
    for name, (_, rest) in parse_pins(lock).items():
        assert re.search(r"--hash=sha256:[0-9a-f]{64}", rest), name


@each_lock
def test_no_index_is_named(lock: Path) -> None:
    text = lock.read_text()
    assert "://" not in text
    assert not re.search(r"^\s*(-i|-f|--index-url|--extra-index-url|--find-links)\b", text, re.MULTILINE)


@each_lock
def test_litellm_is_a_version_that_can_be_trusted(lock: Path) -> None:
    version, _ = parse_pins(lock)["litellm"]
    assert version >= Version("1.106.2")
    # Stolen releases; an unbounded requirement resolves close to them.
    assert version not in {Version("1.82.7"), Version("1.82.8")}


def test_the_dev_lock_agrees_with_the_runtime_lock() -> None:
    runtime, dev = parse_pins(RUNTIME), parse_pins(DEV)
    assert {name: dev[name][0] for name in runtime} == {name: version for name, (version, _) in runtime.items()}


def test_the_locks_hold_what_the_project_asks_for() -> None:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    groups = project["dependency-groups"]
    for lock, requirements in (
        (RUNTIME, [*project["project"]["dependencies"], *groups["install"]]),
        (DEV, groups["dev"]),
    ):
        pins = parse_pins(lock)
        for requirement in map(Requirement, requirements):
            assert pins[requirement.name.lower()][0] in requirement.specifier, f"`make lock`: {requirement}"
