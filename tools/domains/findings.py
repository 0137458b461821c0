"""What resolvers say of the records of a custom domain, and what it means: one sentence for all that is wrong."""

import re
from collections.abc import Sequence
from dataclasses import dataclass

from baobab.runtime.net.record_resolver import RecordAnswer, RecordResolver
from baobab.tools.domains.hostnames import build_challenge

_HOST = re.compile(r"[a-z0-9_]([a-z0-9._-]{0,251}[a-z0-9])?")


@dataclass(frozen=True, slots=True)
class Findings:
    is_proven: bool
    """Whether every resolver sees the TXT record."""
    is_lost: bool
    """Whether every resolver answers, and none sees it. One that is silent or disagrees takes nobody's name away."""
    is_seen: bool
    """Whether a resolver sees it."""
    leads_here: bool
    """Whether every resolver sees that the name leads to the app; true where that cannot be seen."""
    is_begun: bool
    """Whether a resolver sees one of the records."""
    problems: tuple[str, ...]


async def look(resolver: RecordResolver, hostname: str, method: str, token: str, target: str) -> Findings:
    """Asks every resolver for the records of a name."""
    challenge = build_challenge(hostname)
    proofs = await resolver.look_up(challenge, "TXT")
    leads = await resolver.look_up(hostname, "CNAME") if method == "http" else []
    proof_problem = _judge(proofs, token, f"the TXT record {challenge}", f"Set it to {token}.")
    lead_problem = _judge(leads, target, f"the CNAME record of {hostname}", f"Set it to {target}.")
    return Findings(
        is_proven=proof_problem is None,
        is_lost=all(answer.values is not None and token not in answer.values for answer in proofs),
        is_seen=_is_seen(proofs, token),
        leads_here=lead_problem is None,
        is_begun=_is_seen(proofs, token) or _is_seen(leads, target),
        problems=tuple(problem for problem in (proof_problem, lead_problem) if problem is not None),
    )


def _is_seen(answers: Sequence[RecordAnswer], value: str) -> bool:
    return any(answer.values is not None and value in answer.values for answer in answers)


def _judge(answers: Sequence[RecordAnswer], value: str, what: str, remedy: str) -> str | None:
    """Returns what is wrong with a record, and what to do; None if every resolver sees it."""
    seeing = [answer for answer in answers if answer.values is not None and value in answer.values]
    silent = [answer.nameserver for answer in answers if answer.values is None]
    if len(seeing) == len(answers):
        return None
    if len(silent) == len(answers):
        return f"No resolver answers for {what}. See that the name servers of the domain answer."
    if seeing and silent:
        return f"The resolver {silent[0]} does not answer for {what}, and another one sees it: only wait."
    if seeing:
        return f"Only {len(seeing)} of {len(answers)} resolvers see {what}. The others will when their caches expire."
    return f"{_name_fault(answers, what)} {remedy}"


def _name_fault(answers: Sequence[RecordAnswer], what: str) -> str:
    """Returns how a record is wrong that no resolver sees."""
    values = {value for answer in answers for value in answer.values or ()}
    hosts = [value for value in values if _HOST.fullmatch(value)]
    if "CNAME" in what and hosts:
        return f"T{what[1:]} is {min(hosts)}."
    return f"T{what[1:]} has another value." if values else f"There is no {what.removeprefix('the ')} yet."
