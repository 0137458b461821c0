"""What is run, and the requests that it is run for."""

import hashlib
import json
from collections.abc import AsyncIterator, Mapping
from dataclasses import dataclass
from typing import Literal, NamedTuple

Language = Literal["typescript", "python"]


@dataclass(frozen=True, slots=True)
class Program:
    """One version of a function.

    organization_id: whom its processes count for; empty where there is no organisation. code: what `check_source`
    returned; nothing is left to resolve. sha256: of that code. memory_mb: how much the program may use beside what the
    runtime itself needs.
    """

    app_id: str
    organization_id: str
    name: str
    language: Language
    code: str
    sha256: str
    memory_mb: int


@dataclass(frozen=True, slots=True)
class FunctionRequest:
    """A request to a function. url: absolute; what `req.url` shows."""

    method: str
    url: str
    headers: tuple[tuple[str, str], ...]
    body: AsyncIterator[bytes] | None


class ProcessKey(NamedTuple):
    """What a process serves. Two invocations share a process only where all of this is the same."""

    app_id: str
    organization_id: str
    name: str
    language: str
    sha256: str
    memory_mb: int
    env_digest: bytes


def make_key(program: Program, env: Mapping[str, str]) -> ProcessKey:
    """Returns what must be the same for two invocations to share a process."""
    digest = hashlib.sha256(json.dumps(sorted(env.items())).encode()).digest()
    return ProcessKey(
        program.app_id,
        program.organization_id,
        program.name,
        program.language,
        program.sha256,
        program.memory_mb,
        digest,
    )
