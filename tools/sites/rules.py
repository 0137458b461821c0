"""The files `_headers` and `_redirects` of a site: a bounded syntax, and warnings for what is not understood."""

import re
from collections.abc import Mapping, Sequence
from functools import partial
from typing import Any
from urllib.parse import quote, urlsplit

from baobab.tools.sites.schemas import HeaderRule, RedirectRule

MOST_BYTES = 100_000
_MOST_RULES, _MOST_HEADERS, _LONGEST = 300, 30, 2000
_MOST_HOPS = 10
"""Redirects that may follow each other within a site. Where there are more, they would go in a circle."""
_MOST_WARNINGS = 50
_REDIRECTS = (301, 302, 303, 307, 308)
REWRITE = 200
_PATTERN = re.compile(r"(/(:[a-z][a-z0-9_]{0,30}|[A-Za-z0-9._~!$&'()+,;=@%-]+))*(/\*|/)?")
_HEADER_NAME = re.compile(r"[a-z][a-z0-9-]{0,60}")
_HEADER_VALUE = re.compile(r"[!-~]([ -~]*[!-~])?")
_ALLOWED = frozenset(
    (
        "cache-control",
        "content-language",
        "content-security-policy",
        "content-security-policy-report-only",
        "cross-origin-embedder-policy",
        "cross-origin-opener-policy",
        "cross-origin-resource-policy",
        "access-control-allow-headers",
        "access-control-allow-methods",
        "access-control-allow-origin",
        "access-control-expose-headers",
        "access-control-max-age",
        "link",
        "origin-agent-cluster",
        "permissions-policy",
        "referrer-policy",
        "service-worker-allowed",
        "timing-allow-origin",
        "x-frame-options",
        "x-robots-tag",
    )
)
"""What concerns only this site. Cookies, `Clear-Site-Data` and `Strict-Transport-Security` reach beyond it."""
_OWN = ("x-request-", "x-baobab-", "x-accel-", "x-sendfile", "x-forwarded-", "x-content-type", "x-action-", "x-real-")


def parse_headers(raw: bytes) -> tuple[list[HeaderRule], list[str]]:
    """Returns the rules of `_headers`: a path, and below it, indented, headers. Beside them the warnings."""
    rules: list[HeaderRule] = []
    warnings: list[str] = []
    is_known_path = False
    for number, line in _split_lines(raw, "_headers", warnings):
        if not line[0].isspace():
            is_known_path = _PATTERN.fullmatch(line.strip()) is not None and len(rules) < _MOST_RULES
            if is_known_path:
                rules.append({"pattern": line.strip(), "headers": []})
            else:
                warnings.append(f"_headers, line {number}: not a path such as `/assets/*`, or one too many; left out.")
            continue
        name, colon, value = line.strip().partition(":")
        name, value = name.strip().lower(), value.strip()
        if not is_known_path:
            warnings.append(f"_headers, line {number}: a header without a path before it; left out.")
        elif not colon or not _HEADER_NAME.fullmatch(name) or not _HEADER_VALUE.fullmatch(value[:_LONGEST]):
            warnings.append(f"_headers, line {number}: not `Name: value` in plain ASCII; left out.")
        elif not _may_be_set(name):
            warnings.append(f"_headers, line {number}: a site cannot set `{name}`; left out.")
        elif len(value) > _LONGEST or len(rules[-1]["headers"]) >= _MOST_HEADERS:
            warnings.append(f"_headers, line {number}: a value that is too long, or one header too many; left out.")
        else:
            rules[-1]["headers"].append((name, value))
    return rules, _shorten(warnings)


def parse_redirects(raw: bytes) -> tuple[list[RedirectRule], list[str]]:
    """Returns the rules of `_redirects`: `FROM TO [STATUS]` in each line. Beside them the warnings."""
    rules: list[RedirectRule] = []
    warnings: list[str] = []
    for number, line in _split_lines(raw, "_redirects", warnings):
        words = line.split()
        status_text = words[2] if len(words) > 2 else "301"
        status = int(status_text) if status_text.isascii() and status_text.isdigit() and len(status_text) == 3 else 0
        where = f"_redirects, line {number}"
        if len(words) not in (2, 3) or status not in (*_REDIRECTS, REWRITE):
            warnings.append(f"{where}: not `FROM TO` with 301, 302, 303, 307, 308 or 200 behind it; left out.")
        elif not _PATTERN.fullmatch(words[0]) or not _is_target(words[1], status) or len(line) > _LONGEST:
            warnings.append(f"{where}: not a path, or not a path or an https address to lead to; left out.")
        elif len(rules) >= _MOST_RULES:
            warnings.append(f"{where}: there are more than {_MOST_RULES} rules; left out.")
        else:
            rules.append({"pattern": words[0], "target": words[1], "status": status})
    for rule in rules:
        sample = re.sub(r":[a-z][a-z0-9_]*", "x", rule["pattern"]).replace("*", "x")
        if rule["status"] != REWRITE and find_redirect(rules, sample) is None:
            warnings.append(f"_redirects: `{rule['pattern']}` leads to itself in a circle; it redirects nobody.")
    return rules, _shorten(warnings)


def find_redirect(rules: Sequence[RedirectRule], path: str) -> tuple[str, int] | None:
    """Returns where a path leads, and the status. None if no rule is about it, or it would lead in a circle.

    path: begins with a slash. The address has the path's placeholders filled in; a rewrite leads to a path of the site.
    """
    first = _apply(rules, path)
    if first is None or first[1] == REWRITE:
        return first
    current, seen_paths = first, {path}
    for _ in range(_MOST_HOPS):
        parts = urlsplit(current[0])
        if parts.netloc:
            return first
        if parts.path in seen_paths:
            return None
        seen_paths.add(parts.path)
        following = _apply(rules, parts.path)
        if following is None or following[1] == REWRITE:
            return first
        current = following
    return None


def list_headers(rules: Sequence[HeaderRule], path: str) -> list[tuple[str, str]]:
    """Returns the headers that a site sets for a path; of one name, the last one."""
    headers: dict[str, str] = {}
    for rule in rules:
        if match(rule["pattern"], path) is not None:
            headers |= dict(rule["headers"])
    return list(headers.items())


def match(pattern: str, path: str) -> Mapping[str, str] | None:
    """Returns the values of a pattern's placeholders in a path, the rest of it as `splat`; None if it is another."""
    values: dict[str, str] = {}
    expected_segments, segments = pattern.split("/"), path.split("/")
    if expected_segments[-1] == "*":
        expected_segments.pop()
        if len(segments) < len(expected_segments):
            return None
        values["splat"] = "/".join(segments[len(expected_segments) :])
        segments = segments[: len(expected_segments)]
    if len(segments) != len(expected_segments):
        return None
    for expected_segment, segment in zip(expected_segments, segments, strict=True):
        if expected_segment.startswith(":") and segment:
            values[expected_segment[1:]] = segment
        elif expected_segment != segment:
            return None
    return values


def _apply(rules: Sequence[RedirectRule], path: str) -> tuple[str, int] | None:
    for rule in rules:
        values = match(rule["pattern"], path)
        if values is None:
            continue
        target = re.sub(r":([a-z][a-z0-9_]*)", partial(_fill, values=values), rule["target"])
        # What stands in the place of a placeholder must not lead to another host.
        if rule["target"].startswith("/") and target.startswith("//"):
            target = "/" + target.lstrip("/")
        return target, rule["status"]
    return None


def _fill(found: re.Match[str], values: Mapping[str, Any]) -> str:
    value = values.get(found[1])
    return found[0] if value is None else quote(value, safe="/-._~!$&'()+,;=@")


def _is_target(target: str, status: int) -> bool:
    if re.search(r"[^!-~]|[\\<>\"`]", target):
        return False
    if target.startswith("/"):
        return not target.startswith("//") and (status != REWRITE or not re.search(r"[?#]", target))
    try:
        parts = urlsplit(target)
    except ValueError:
        return False
    is_address = parts.scheme in ("http", "https") and re.fullmatch(r"[A-Za-z0-9.-]+(:[0-9]{1,5})?", parts.netloc)
    return bool(is_address) and status != REWRITE


def _may_be_set(name: str) -> bool:
    return name in _ALLOWED or (name.startswith("x-") and not name.startswith(_OWN))


def _split_lines(raw: bytes, name: str, warnings: list[str]) -> list[tuple[int, str]]:
    if len(raw) > MOST_BYTES:
        warnings.append(f"{name} has more than {MOST_BYTES} bytes; it is left out.")
        return []
    try:
        lines = raw.decode("utf-8-sig").splitlines()
    except UnicodeDecodeError:
        warnings.append(f"{name} is not a text in UTF-8; it is left out.")
        return []
    return [
        (number, line) for number, line in enumerate(lines, 1) if line.strip() and not line.lstrip().startswith("#")
    ]


def _shorten(warnings: list[str]) -> list[str]:
    if len(warnings) <= _MOST_WARNINGS:
        return warnings
    return [*warnings[:_MOST_WARNINGS], f"There are {len(warnings) - _MOST_WARNINGS} more warnings."]
