"""Surveys an app by what toolsets declare: what it can do, which hosts its code names, and what looks like a secret."""

import asyncio
from collections.abc import AsyncIterator, Iterable, Mapping
from typing import Any

from baobab.storage.cache import Cache
from baobab.tools.core import AppNotFound, BaobabError, Services
from baobab.tools.core.app_clones import Ability, ClonedRows, ClonedStore, CloneRule, Cloning, NeverCloned, Place
from baobab.tools.core.outages import STORE_OUTAGES
from baobab.tools.templates.schemas import FoundSecret
from baobab.tools.templates.secrets_in_text import find_hosts, find_secrets

MOST_TEXT = 8 * 2**20
"""The characters that are searched for secrets at most."""
_MOST_FOUND = 100
_PIECE, _OVERLAP = 100_000, 500
_AT_ONCE = 8
OUTLINE_FAILURES = (*STORE_OUTAGES, BaobabError)


class Survey:
    """What is found in an app. `cut` says that not all of its texts were read."""

    def __init__(self) -> None:
        self.abilities: list[Ability] = []
        self.secrets: list[FoundSecret] = []
        self.hosts: set[str] = set()
        self.cut = False
        self._left = MOST_TEXT

    async def read_text(self, place: str, text: str, *, is_code: bool) -> None:
        """Searches a text as far as there is room: in pieces, since patterns over a megabyte would hold others up."""
        part = text[: max(self._left, 0)]
        self.cut = self.cut or len(part) < len(text)
        self._left -= len(part)
        for start in range(0, len(part), _PIECE):
            # What stands across two pieces is whole in one of them.
            self._read_piece(
                place, part[start : start + _PIECE + _OVERLAP], part.count("\n", 0, start), is_code=is_code
            )
            if start + _PIECE < len(part):
                await asyncio.sleep(0)

    def _read_piece(self, place: str, piece: str, lines_before: int, *, is_code: bool) -> None:
        if is_code:
            self.hosts |= find_hosts(piece)
        for kind, line in find_secrets(piece):
            secret: FoundSecret = {"place": place[:300], "kind": kind, "line": lines_before + line}
            if len(self.secrets) < _MOST_FOUND and secret not in self.secrets:
                self.secrets.append(secret)

    @property
    def is_full(self) -> bool:
        return self._left <= 0


def list_rules(toolsets: Iterable[Any]) -> list[CloneRule]:
    """Lists what all toolsets declare about clones."""
    return [rule for toolset in toolsets for rule in toolset.clones]


async def survey_app(services: Services, toolsets: Iterable[Any], place: Place, *, texts: bool) -> Survey:
    """Surveys an app. texts: whether its texts are searched for secrets and hosts, too."""
    return await _survey(services, list_rules(toolsets), place, texts=texts)


async def list_left_out(toolsets: Iterable[Any], cloning: Cloning) -> list[Ability]:
    """Lists what an app can do and its copy, all of whose steps are made, cannot, not even once it is switched on."""
    services, rules = cloning.services, list_rules(toolsets)
    of_source = (await _survey(services, rules, cloning.source, texts=False)).abilities
    # The rows of the installation's own database are written together with the app's own row, which is not there yet.
    home_rules = [rule for rule in rules if isinstance(rule, ClonedRows) and rule.is_home]
    of_copy = (await _survey(services, [r for r in rules if r not in home_rules], cloning.dest, texts=False)).abilities
    for rule in home_rules:
        async for rows in rule.read(services.database.execute, cloning.source.app_id):
            copies = [rule.change(cloning, dict(row)) for row in rows]
            if rule.list_abilities is not None:
                of_copy += [each for copy in copies if copy is not None for each in rule.list_abilities(copy)]
    known_names = {(each.kind, each.name) for each in of_copy}
    return [each for each in of_source if (each.kind, each.name) not in known_names]


async def _survey(services: Services, rules: Iterable[CloneRule], place: Place, *, texts: bool) -> Survey:
    survey = Survey()
    for rule in rules:
        if isinstance(rule, NeverCloned):
            if rule.list_abilities is not None:
                survey.abilities += await rule.list_abilities(services, place)
        elif isinstance(rule, ClonedRows):
            await _survey_rows(services, rule, place, survey, texts=texts)
        elif isinstance(rule, ClonedStore):
            if rule.list_abilities is not None:
                survey.abilities += await rule.list_abilities(place)
            if texts and rule.read_texts is not None:
                await _read_texts(rule.read_texts(place), survey, is_code=rule.is_code)
    return survey


async def _survey_rows(services: Services, rule: ClonedRows, place: Place, survey: Survey, *, texts: bool) -> None:
    database = services.database if rule.is_home else place.stores.database
    async for rows in rule.read(database.execute, place.app_id):
        for row in rows:
            if rule.list_abilities is not None:
                survey.abilities += rule.list_abilities(row)
            if texts:
                for name, text in rule.read_texts(row):
                    await survey.read_text(
                        f"{name} of {row.get('name') or row.get('id') or ''}", text, is_code=rule.is_code
                    )


async def _read_texts(texts: AsyncIterator[tuple[str, str]], survey: Survey, *, is_code: bool) -> None:
    async for name, text in texts:
        if survey.is_full:
            survey.cut = True
            return
        await survey.read_text(name, text, is_code=is_code)


class Outlines:
    """What templates' pages show of apps' parts: their tables and functions, remembered for some seconds."""

    def __init__(self, services: Services) -> None:
        self._services = services
        self._cache: Cache[str, Mapping[str, list[Any]]] = Cache(self._load, services.clock, size=5000)
        self._rules: list[ClonedStore] = []
        self._slots = asyncio.Semaphore(_AT_ONCE)
        services.notices.subscribe("app", self._cache.forget)
        services.notices.subscribe("data_catalogue", self._cache.forget)

    async def get(self, toolsets: Iterable[Any], app_id: str) -> Mapping[str, list[Any]] | None:
        """Returns the parts by field, such as `tables`; None while the stores of the app's region do not answer."""
        if not self._rules:
            self._rules = [
                rule for rule in list_rules(toolsets) if isinstance(rule, ClonedStore) and rule.outline is not None
            ]
        try:
            return await self._cache.get(app_id)
        except OUTLINE_FAILURES:
            return None

    async def get_all(self, toolsets: Iterable[Any], app_ids: Iterable[str]) -> list[Mapping[str, list[Any]] | None]:
        return list(await asyncio.gather(*(self.get(toolsets, app_id) for app_id in app_ids)))

    async def _load(self, app_id: str) -> Mapping[str, list[Any]] | None:
        try:
            app = await self._services.directory.app(app_id)
        except AppNotFound:
            return None
        place = Place(app_id, self._services.stores_of(app.region), self._services.vault)
        fields: dict[str, list[Any]] = {"tables": [], "functions": []}
        async with self._slots:
            for rule in self._rules:
                if rule.outline is not None:
                    fields |= await rule.outline(place)
        return fields


async def list_env(toolsets: Iterable[Any], place: Place) -> dict[str, list[str]]:
    """Returns the names of the environment variables that the functions of an app need, by function."""
    keys: dict[str, list[str]] = {}
    for rule in list_rules(toolsets):
        if isinstance(rule, ClonedStore) and rule.list_env is not None:
            keys |= {name: sorted(names) for name, names in (await rule.list_env(place)).items()}
    return keys
