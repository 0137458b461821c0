"""Finds what looks like a secret, and which hosts are named, in texts that a clone would have."""

import re
from collections.abc import Iterator

_KINDS = tuple(
    (kind, re.compile(pattern))
    for kind, pattern in (
        ("private key", r"-----BEGIN (?:[A-Z]+ )*PRIVATE KEY-----"),
        ("key of this server", r"\bbb_(?:sk|sub)_[A-Za-z0-9]{20,}"),
        ("key of a model provider", r"\bsk-(?:ant-|proj-|or-)?[A-Za-z0-9_-]{20,}"),
        ("key of Stripe", r"\b(?:sk|rk)_(?:live|test)_[A-Za-z0-9]{16,}"),
        ("signing secret", r"\b(?:whsec|wsec)_[A-Za-z0-9+/=_-]{20,}"),
        ("token of GitHub", r"\b(?:gh[pousr]_[A-Za-z0-9]{36,}|github_pat_[A-Za-z0-9_]{40,})"),
        ("token of Slack", r"\bxox[abeoprs]-[A-Za-z0-9-]{10,}"),
        ("key of AWS", r"\b(?:AKIA|ASIA)[0-9A-Z]{16}\b"),
        ("key of Google", r"\bAIza[0-9A-Za-z_-]{35}\b"),
        ("token of SendGrid", r"\bSG\.[A-Za-z0-9_-]{16,}\.[A-Za-z0-9_-]{16,}"),
        ("JSON Web Token", r"\beyJ[A-Za-z0-9_-]{10,}\.eyJ[A-Za-z0-9_-]{10,}\.[A-Za-z0-9_-]{10,}"),
        (
            "password in an address",
            r"\b[a-z][a-z0-9+.-]{1,20}://[^\s/:@\"']{1,80}:[^\s/:@\"'{}$<>]{3,200}@[A-Za-z0-9.-]+",
        ),
        (
            "assigned secret",
            r"(?i)\b(?:api[_-]?key|secret|password|passwd|access[_-]?token|auth[_-]?token)[\"']?\s{0,3}[:=]\s{0,3}"
            r"[\"'](?=[^\"']{0,200}\d)[A-Za-z0-9+/=_\-.]{16,200}[\"']",
        ),
    )
)
_HOST = re.compile(r"\b(?:https?|wss?)://(?:[^\s/@\"']{1,80}@)?([A-Za-z0-9](?:[A-Za-z0-9.-]{0,252}[A-Za-z0-9])?)")


def find_secrets(text: str) -> Iterator[tuple[str, int]]:
    """Yields the kind and the line, from 1, of each secret that a text seems to hold. Never the secret."""
    for kind, pattern in _KINDS:
        for match in pattern.finditer(text):
            yield kind, text.count("\n", 0, match.start()) + 1


def find_hosts(text: str) -> set[str]:
    """Returns the host names of the addresses in a text, in lower case."""
    return {match[1].lower() for match in _HOST.finditer(text) if "." in match[1] or match[1] == "localhost"}
