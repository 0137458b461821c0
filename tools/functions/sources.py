"""Checks the source of a function before it is stored."""

import asyncio
from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any

from baobab.runtime.functions.check import check_source
from baobab.runtime.functions.errors import EngineUnavailable
from baobab.runtime.functions.imports import FetchedModule
from baobab.runtime.functions.packages import PackageStore
from baobab.runtime.functions.source_errors import BadSource
from baobab.runtime.net.egress import Egress
from baobab.tools.core import BaobabError, Services
from baobab.tools.functions.errors import FunctionInvalid, RuntimeAway
from baobab.tools.functions.schemas import MOST_CODE

_MOST_FETCHED = 4 * 2**20
_FETCH_SECONDS = 30.0
_IMPORT_SECONDS = 120.0
"""For a whole source, with all that it imports."""
_MOST_PACKED = 24 * 2**20
_LONGEST_MESSAGE = 1000


@dataclass(frozen=True, slots=True)
class CheckedCode:
    """A source that can be deployed: what runs, its digest, and what it says of itself."""

    code: str
    sha256: str
    input_schema: Any
    imports: list[Any]


async def check(services: Services, source: str, language: str, env: Mapping[str, str]) -> CheckedCode:
    """Returns what runs of a source. Raises FunctionInvalid, with line and column where it has them, and RuntimeAway.

    env: what the code sees while it is loaded.
    """
    if len(source.encode()) > MOST_CODE:
        raise FunctionInvalid(f"The code has more than {MOST_CODE} bytes.")
    client = services.http_client
    assert isinstance(client, Egress)

    async def fetch(url: str) -> FetchedModule:
        """Fetches what the source imports."""
        answer = await client.request(
            "GET", url, max_bytes=_MOST_FETCHED, timeout=_FETCH_SECONDS, follow=5, cross_host=True, https_only=True
        )
        if answer.status != 200:
            raise FunctionInvalid(f"The import {url[:200]} was answered with {answer.status}.")
        text = answer.body.decode("utf-8", errors="replace")
        return FetchedModule(answer.url, answer.headers.get("content-type", ""), text)

    try:
        async with asyncio.timeout(_IMPORT_SECONDS):
            checked_source = await check_source(source, language, fetch=fetch, store=_open_store(services), env=env)
    except TimeoutError as exc:
        raise FunctionInvalid(f"What the code imports was not there within {_IMPORT_SECONDS:g} seconds.") from exc
    except BadSource as exc:
        place = {"line": exc.line, "column": exc.column} if exc.line is not None else {}
        where = f" (line {exc.line}, column {exc.column})" if place else ""
        message = exc.message if len(exc.message) <= _LONGEST_MESSAGE else f"{exc.message[:_LONGEST_MESSAGE]}…"
        raise FunctionInvalid(f"{message}{where}", details=place) from exc
    except EngineUnavailable as exc:
        raise RuntimeAway(exc.reason) from exc
    imports = [asdict(each) for each in checked_source.imports]
    return CheckedCode(checked_source.code, checked_source.sha256, checked_source.input_schema, imports)


def _open_store(services: Services) -> PackageStore | None:
    """Returns where packages of npm come from; None if the installation has no registry."""
    registry, client = services.options.npm_registry, services.http_client
    if not registry:
        return None
    assert isinstance(client, Egress)

    async def download(url: str, headers: Mapping[str, str]) -> bytes:
        try:
            answer = await client.request(
                "GET",
                url,
                headers=headers,
                max_bytes=_MOST_PACKED,
                timeout=_FETCH_SECONDS,
                follow=5,
                cross_host=True,
                https_only=registry.startswith("https:"),
            )
        except BaobabError as error:
            raise BadSource(f"the registry cannot be reached: {error.message}") from error
        if answer.status != 200:
            raise BadSource(f"the registry answered {answer.status}.")
        return answer.body

    return PackageStore(registry, download)
