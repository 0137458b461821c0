"""Effects: what a tool does to the world, from harmless to final. Approval, annotations and modes derive from them."""

from typing import Literal

Effect = Literal["read", "write", "external", "destructive"]
Policy = Literal["none", "destructive", "external", "write"]
"""The mildest effect that waits for a person. `external` includes `destructive`."""

Ask = Literal["always", "never"]
"""Whether calls of one tool wait for a person, whatever their effect."""

_RANK = {"read": 0, "write": 1, "external": 2, "destructive": 3, "none": 4}


def exceeds(effect: Effect, other: Effect) -> bool:
    """Returns whether one effect is graver than another."""
    return _RANK[effect] > _RANK[other]


def needs_approval(effect: Effect, policy: Policy) -> bool:
    """Returns whether a call with an effect waits for a person under a policy. Reads never wait."""
    return effect != "read" and _RANK[effect] >= _RANK[policy]


def stricter(policy: Policy, other: Policy) -> Policy:
    """Returns the policy under which more calls wait."""
    return policy if _RANK[policy] <= _RANK[other] else other
