"""Expose rules: which keys end users and anonymous callers may touch."""

import re
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Literal

from sqlalchemy import select

from baobab.storage.cache import Cache
from baobab.tools.core import Caller, EndUser, Forbidden, Services, Unauthenticated, patterns
from baobab.tools.kv.keys import MAX_KEY
from baobab.tools.kv.tables import rules_table

Level = Literal["public", "authed", "owner", "deny"]
Verb = Literal["read", "write"]

NOTICE = "kv_rules"


@dataclass(frozen=True)
class Rule:
    """A pattern and the levels that reading and writing its keys need.

    In a pattern `*` stands for one part (no `:`), `**` for anything, `{user.id}` and `{user.role}` for what the
    caller's token says. Where the level is not `owner`, a placeholder stands for one part of any user.
    """

    pattern: str
    read: Level
    write: Level
    order: int

    def level(self, verb: Verb) -> Level:
        return self.read if verb == "read" else self.write

    @cached_property
    def literal_prefix(self) -> int:
        """The length of the pattern's fixed beginning: the longer it is, the more specific the rule."""
        return patterns.literal_prefix(self.pattern)

    @cached_property
    def _of_anybody(self) -> re.Pattern[str]:
        return patterns.of_anybody(self.pattern)

    @cached_property
    def _of_owner(self) -> re.Pattern[str]:
        return patterns.of_owner(self.pattern)

    def may_match(self, key: str) -> bool:
        """Returns whether it matches a key for some caller."""
        return self._of_anybody.fullmatch(key) is not None

    def matches(self, key: str, verb: Verb, caller: Caller) -> bool:
        if self.level(verb) != "owner":
            return self.may_match(key)
        if not isinstance(caller, EndUser):
            return False
        return self._of_owner.fullmatch(f"{caller.user_id}\n{caller.role}\n{key}") is not None


@dataclass(frozen=True, slots=True)
class Access:
    """Whom the rules of an app allow a verb on one key.

    level: what everybody needs. rule: the pattern that decides so; None where none matches.
    owner_rule: the pattern that lets the user in whom the key names, before `rule` decides.
    """

    level: Level
    rule: str | None
    owner_rule: str | None


class RuleBook:
    """The rules of one app, the most specific first."""

    def __init__(self, rules: Iterable[Rule]) -> None:
        self.rules = sorted(rules, key=lambda rule: (-rule.literal_prefix, rule.order))

    def allows(self, key: str, verb: Verb, caller: Caller) -> bool:
        # The key may not be validated yet, and matching takes longer the longer it is.
        if len(key) > MAX_KEY:
            return False
        for rule in self.rules:
            if rule.matches(key, verb, caller):
                level = rule.level(verb)
                return level in ("public", "owner") or (level == "authed" and isinstance(caller, EndUser))
        return False

    def explain(self, key: str, verb: Verb) -> Access:
        """Says whom the rules allow a verb on a key. The first rule that matches decides, as `allows` has it."""
        owner_rule: str | None = None
        for rule in self.rules:
            if not rule.may_match(key):
                continue
            level = rule.level(verb)
            if level != "owner":
                return Access(level, rule.pattern, owner_rule)
            owner_rule = owner_rule or rule.pattern
        return Access("deny", None, owner_rule)

    def find_open_beside_owners(self) -> Iterator[tuple[Rule, Verb, Rule]]:
        """Yields each rule at `owner` with the verb and the rule that opens the same keys to others, too."""
        for rule in self.rules:
            sample = re.sub(r"\{user\.(?:id|role)\}|\*\*?", "x", rule.pattern)
            verbs: tuple[Verb, ...] = ("read", "write")
            for verb in verbs:
                if rule.level(verb) == "owner":
                    opening = next(
                        (
                            rule_beside
                            for rule_beside in self.rules
                            if rule_beside.matches(sample, verb, _SOMEBODY_ELSE)
                        ),
                        None,
                    )
                    if opening is not None and opening.level(verb) in ("public", "authed"):
                        yield rule, verb, opening

    def require(self, key: str, verb: Verb, caller: Caller) -> None:
        """Raises Unauthenticated for an anonymous caller and Forbidden for a user whom no rule allows this."""
        if self.allows(key, verb, caller):
            return
        if isinstance(caller, EndUser):
            # The caller is signed in, so signing in is no remedy.
            raise Forbidden(f"No rule lets this user {verb} the key.", remediation=_USER_REMEDY)
        raise Unauthenticated(f"No rule lets anonymous callers {verb} the key.", remediation=_REMEDY)


_SOMEBODY_ELSE = EndUser("", "somebody else", "somebody else's")
_REMEDY = "Sign in, or have the app's developer expose the key with op:kv_expose."
_USER_REMEDY = "Use a key of your own, or have the app's developer expose this one with op:kv_expose."


class RuleBooks:
    """The rule books of apps, cached in memory. A change in any process clears the app's within half a second."""

    def __init__(self, services: Services) -> None:
        self._database = services.database
        self._books: Cache[str, RuleBook] = Cache(self._load, services.clock)
        services.notices.subscribe(NOTICE, self._books.forget)
        services.notices.subscribe("app", self._books.forget)

    async def get(self, app_id: str) -> RuleBook:
        return await self._books.get(app_id) or RuleBook(())

    async def _load(self, app_id: str) -> RuleBook:
        query = select(rules_table).where(rules_table.c.app_id == app_id)
        async with self._database.reading() as connection:
            rows = (await connection.execute(query)).all()
        return RuleBook(Rule(row.pattern, row.read, row.write, row.position) for row in rows)
