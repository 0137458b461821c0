"""Which rule decides about a key: the compiled patterns against a slow oracle that is plainly right."""

import functools
import re
import time

import pytest
from hypothesis import assume, example, given, settings
from hypothesis import strategies as st

from baobab.tools.core.auth.callers import Anonymous, Caller, EndUser
from baobab.tools.core.patterns import check_pattern
from baobab.tools.kv.rules import Rule, RuleBook

_TOKENS = ["a", "b", ":", "/", "*", "**", "{user.id}", "{user.role}"]
_CLAIMS = ["a", "b", "ab", "a:b", "", "*", "a\nb"]
_LEVELS = ["public", "authed", "owner", "deny"]
_MANY = settings(max_examples=250)

ANY, SEGMENT = object(), object()
"""What an oracle's part may be beside a text: anything at all, or one segment."""


def _is_valid(pattern: str) -> bool:
    try:
        check_pattern(pattern)
    except ValueError:
        return False
    return True


patterns = st.lists(st.sampled_from(_TOKENS), min_size=1, max_size=8).map("".join).filter(_is_valid)
keys = st.text("ab:/", min_size=1, max_size=9)
users = st.builds(EndUser, st.just("app_1"), st.sampled_from(_CLAIMS), st.sampled_from(_CLAIMS))
callers: st.SearchStrategy[Caller] = st.one_of(st.just(Anonymous()), users)
levels = st.sampled_from(_LEVELS)
rulesets = st.lists(st.tuples(patterns, levels, levels), max_size=5, unique_by=lambda rule: rule[0])


def parse_parts(pattern: str, owner: EndUser | None = None) -> tuple[object, ...]:
    claims = {"{user.id}": owner and owner.user_id, "{user.role}": owner and owner.role}
    meaning = {"**": ANY, "*": SEGMENT} | {name: claim or SEGMENT for name, claim in claims.items()}
    return tuple(meaning.get(token, token) for token in re.findall(r"\*\*|\*|\{user\.\w+\}|.", pattern))


@functools.cache
def matches(parts: tuple[object, ...], key: str) -> bool:
    """Tries every way to cut the key, one by one."""
    if not parts:
        return not key
    first, rest = parts[0], parts[1:]
    if first is ANY:
        return any(matches(rest, key[cut:]) for cut in range(len(key) + 1))
    if first is SEGMENT:
        return any(":" not in key[:cut] and matches(rest, key[cut:]) for cut in range(1, len(key) + 1))
    return key.startswith(str(first)) and matches(rest, key[len(str(first)) :])


def names_nobody(pattern: str, caller: EndUser) -> bool:
    used_claims = [
        claim for name, claim in (("id", caller.user_id), ("role", caller.role)) if f"{{user.{name}}}" in pattern
    ]
    # The whole token is nobody's when a claim breaks the line, which no id and no role does.
    breaks_line = "\n" in caller.user_id + caller.role
    return breaks_line or any(not claim or ":" in claim for claim in used_claims)


def is_expected_allowed(rules: list[tuple[str, str, str]], key: str, verb: str, caller: Caller) -> bool:
    """Collect the rules that match, sort them by the length of their fixed beginning, then by order; take the first."""
    levels = []
    for order, (pattern, read, write) in enumerate(rules):
        level = read if verb == "read" else write
        if level == "owner":
            if not isinstance(caller, EndUser) or names_nobody(pattern, caller):
                continue
            here = matches(parse_parts(pattern, caller), key)
        else:
            here = matches(parse_parts(pattern), key)
        if here:
            beginning = re.split(r"\*|\{user", pattern)[0]
            levels.append((-len(beginning), order, level))
    if not levels:
        return False
    level = min(levels)[2]
    return level in ("public", "owner") or (level == "authed" and isinstance(caller, EndUser))


def is_allowed(rules: list[tuple[str, str, str]], key: str, verb: str, caller: Caller) -> bool:
    book = RuleBook(Rule(*rule, order) for order, rule in enumerate(rules))  # type: ignore[arg-type]
    return book.allows(key, verb, caller)  # type: ignore[arg-type]


@_MANY
@given(patterns, keys)
@example("{user.id}a**a", "bababa")
@example("**{user.id}a**a", "bababa")
@example("**a*b**a*b", "aaba:ab")
@example("**a*:b*a**", "aa:ab:ba")
@example("a**b*:**a", "ab:bb:a")
def test_a_pattern_matches_exactly_the_keys_that_its_definition_says(pattern: str, key: str) -> None:
    assert is_allowed([(pattern, "public", "deny")], key, "read", Anonymous()) == matches(parse_parts(pattern), key)


@_MANY
@given(patterns, keys, users)
@example("{user.id}:**", "a:b:x", EndUser("app_1", "a:b"))
@example("{user.role}**", "a", EndUser("app_1", "a", ""))
@example("{user.id}", "ab", EndUser("app_1", "*"))
def test_an_owner_rule_matches_the_pattern_with_the_callers_claims_in_it(pattern: str, key: str, user: EndUser) -> None:
    assume("{user." in pattern)
    owns = not names_nobody(pattern, user) and matches(parse_parts(pattern, user), key)
    assert is_allowed([(pattern, "owner", "deny")], key, "read", user) == owns


@_MANY
@given(rulesets, keys, st.sampled_from(["read", "write"]), callers)
def test_the_longest_fixed_beginning_decides_then_the_order(
    rules: list[tuple[str, str, str]], key: str, verb: str, caller: Caller
) -> None:
    assert is_allowed(rules, key, verb, caller) == is_expected_allowed(rules, key, verb, caller)


@_MANY
@given(rulesets, keys, st.sampled_from(["read", "write"]), callers)
def test_what_is_said_of_a_key_is_what_its_callers_meet(
    rules: list[tuple[str, str, str]], key: str, verb: str, caller: Caller
) -> None:
    book = RuleBook(Rule(*rule, order) for order, rule in enumerate(rules))  # type: ignore[arg-type]
    explanation = book.explain(key, verb)  # type: ignore[arg-type]
    may = is_expected_allowed(rules, key, verb, caller)
    if not isinstance(caller, EndUser):
        assert may == (explanation.level == "public")
    elif explanation.owner_rule is None:
        assert may == (explanation.level in ("public", "authed"))
    else:
        # Whoever the key names may; for others the level says it.
        assert may or explanation.level == "deny"


A, B = EndUser("app_1", "a"), EndUser("app_1", "b", "editor")


@pytest.mark.parametrize(
    ("rules", "key", "caller", "may"),
    [
        # The longer beginning wins, wherever it stands.
        ([("x:**", "deny", "deny"), ("x:y:*", "public", "deny")], "x:y:z", Anonymous(), True),
        ([("x:y:*", "public", "deny"), ("x:**", "deny", "deny")], "x:y:z", Anonymous(), True),
        ([("x:**", "deny", "deny"), ("x:y:*", "public", "deny")], "x:z", Anonymous(), False),
        # Among equals the first declared wins.
        ([("x:*", "deny", "deny"), ("x:**", "public", "deny")], "x:y", Anonymous(), False),
        ([("x:**", "public", "deny"), ("x:*", "deny", "deny")], "x:y", Anonymous(), True),
        # An owner rule that names somebody else does not count: the next one decides.
        ([("u:{user.id}:*", "owner", "owner"), ("u:**", "public", "deny")], "u:b:x", A, True),
        ([("u:{user.id}:*", "owner", "owner"), ("u:**", "deny", "deny")], "u:a:x", A, True),
        ([("u:{user.id}:*", "owner", "owner"), ("u:**", "public", "deny")], "u:a:x", Anonymous(), True),
        ([("u:{user.id}:*", "owner", "owner")], "u:a:x", Anonymous(), False),
        # Roles are claims too.
        ([("r:{user.role}:*", "owner", "owner")], "r:editor:x", B, True),
        ([("r:{user.role}:*", "owner", "owner")], "r:editor:x", A, False),
        # Both placeholders of one pattern must be the caller's.
        ([("{user.role}:{user.id}", "owner", "owner")], "editor:b", B, True),
        ([("{user.role}:{user.id}", "owner", "owner")], "editor:a", B, False),
    ],
)
def test_rules_are_chosen_as_documented(rules: list[tuple[str, str, str]], key: str, caller: Caller, may: bool) -> None:
    assert is_allowed(rules, key, "read", caller) is may


def test_reading_and_writing_are_decided_by_different_levels_of_one_rule() -> None:
    rules = [("x", "public", "authed")]
    assert [is_allowed(rules, "x", verb, Anonymous()) for verb in ("read", "write")] == [True, False]
    assert [is_allowed(rules, "x", verb, A) for verb in ("read", "write")] == [True, True]


@pytest.mark.parametrize(
    ("pattern", "key"),
    [
        ("**a*b**", "a" * 512),
        ("**a*b", "a" * 511 + "c"),
        ("**{user.id}x**", "a" * 512),
        ("**a**a**a**a**a**a**a**", "a" * 511 + "b"),
        ("**a*:a*:a*:a*:b**", ("a" * 9 + ":") * 51),
        ("a*b:a*b:a*b:a*b:a*b:a*b:a*b:a*c", ":".join(["a" * 63] * 8)),
        ("**" + "a" * 250 + "*b**", "a" * 512),
        ("**:a*" + "a" * 100 + "b**", (":" + "a" * 127) * 4),
        (":".join(["{user.id}"] * 40), "a:" * 255),
    ],
)
def test_no_pattern_makes_a_long_key_slow(pattern: str, key: str) -> None:
    check_pattern(pattern)
    book = RuleBook([Rule(pattern, "public", "public", 0), Rule(pattern, "owner", "owner", 1)])
    book.allows(key, "read", A)
    start = time.process_time()
    for _ in range(20):
        book.allows(key, "read", A)
    # Each took some milliseconds where the time grew with the square of the key, and some microseconds otherwise.
    assert (time.process_time() - start) / 20 < 0.004


def test_a_key_longer_than_the_store_takes_is_not_matched_at_all() -> None:
    book = RuleBook([Rule("**", "public", "public", 0)])
    assert book.allows("a" * 512, "read", A)
    assert not book.allows("a" * 513, "read", A)
