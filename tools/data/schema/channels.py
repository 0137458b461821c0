"""Rules for channels: which users and visitors may join a channel, and send to it."""

from collections.abc import Sequence
from dataclasses import asdict, dataclass
from typing import Any, Literal

from baobab.tools.core import patterns
from baobab.tools.data.actor import Actor

Level = Literal["public", "authed", "owner", "deny"]
Verb = Literal["join", "send"]
PRESENCE = "presence"
"""The name by which rules know the presence of the whole app."""


@dataclass(frozen=True, slots=True)
class ChannelRule:
    """A pattern, and the levels that joining its channels and sending to them need, as for keys (tools/kv/rules.py)."""

    pattern: str
    join: Level
    send: Level

    @property
    def as_json(self) -> dict[str, Any]:
        return asdict(self)

    def matches(self, channel: str, verb: Verb, actor: Actor) -> bool:
        if getattr(self, verb) != "owner":
            return patterns.of_anybody(self.pattern).fullmatch(channel) is not None
        text = f"{actor.user_id}\n{actor.user_role or ''}\n{channel}"
        return actor.role == "user" and patterns.of_owner(self.pattern).fullmatch(text) is not None


def allows(rules: Sequence[ChannelRule], channel: str, verb: Verb, actor: Actor) -> bool:
    """Returns whether an actor may join a channel, or send to it. The most specific rule that matches decides.

    Without any rule, users may do both, and visitors only join.
    """
    if actor.role == "service":
        return True
    if not rules:
        return actor.role == "user" or verb == "join"
    for rule in sorted(rules, key=lambda each: -patterns.literal_prefix(each.pattern)):
        if rule.matches(channel, verb, actor):
            level = getattr(rule, verb)
            return level in ("public", "owner") or (level == "authed" and actor.role == "user")
    return False
