"""The files of deployments that somebody asked for lately, so that a page costs one query: which deployment is live."""

from collections.abc import Iterable
from typing import Any, NamedTuple

from sqlalchemy import select

from baobab.storage.sql.database import Execute
from baobab.tools.core import Services
from baobab.tools.sites.tables import site_contents, site_files

_MOST, _LONGEST_NAME = 20_000, 200
_Key = tuple[str, str, str]


class File(NamedTuple):
    path: str
    sha256: str
    stored_by: str
    size_bytes: int
    gzip_bytes: int | None


class KnownFiles:
    """Files by app, deployment and path; None for a path that a deployment does not have.

    A deployment that is ready never changes and its id is never another's, so no entry is ever wrong. Which deployment
    visitors see is asked each time: a new one shows at once, in every process.
    """

    def __init__(self, services: Services) -> None:
        del services
        self._files: dict[_Key, File | None] = {}

    async def find(self, execute: Execute, deployment: Any, names: Iterable[str]) -> dict[str, File]:
        """Returns the files of a ready deployment that have one of the names, by their names."""
        keys = {name: (deployment.app_id, deployment.id, name) for name in names}
        found_files = {name: self._files[key] for name, key in keys.items() if key in self._files}
        missing_names = keys.keys() - found_files.keys()
        if missing_names:
            rows = await _read(execute, deployment, sorted(missing_names))
            for name in missing_names:
                found_files[name] = rows.get(name)
                self._remember(keys[name], rows.get(name))
        return {name: file for name, file in found_files.items() if file is not None}

    def _remember(self, key: _Key, file: File | None) -> None:
        if len(key[2]) > _LONGEST_NAME:
            return
        while len(self._files) >= _MOST:
            del self._files[next(iter(self._files))]
        self._files[key] = file


async def _read(execute: Execute, deployment: Any, names: list[str]) -> dict[str, File]:
    files, contents = site_files.c, site_contents.c
    join = (contents.app_id == files.app_id) & (contents.sha256 == files.sha256)
    query = select(files.path, contents.sha256, contents.stored_by, contents.size_bytes, contents.gzip_bytes)
    is_one = (files.app_id == deployment.app_id, files.deployment_id == deployment.id, files.path.in_(names))
    rows = (await execute(query.select_from(site_files.join(site_contents, join)).where(*is_one))).all()
    return {row.path: File(*row) for row in rows}
