"""Libraries of functions that the server stores and runs; each call is atomic."""

from __future__ import annotations

import hashlib
from typing import Any

from baobab.storage.valkey.errors import FunctionMissing
from baobab.storage.valkey.pipeline import Pipeline


class Library:
    """`code` is Lua that registers its functions under names that begin with `LIBRARY .. "_"`.

    The version in the name is a hash of the code, so that two releases can use one server side by side.
    """

    def __init__(self, pipeline: Pipeline, name: str, code: str) -> None:
        version = hashlib.sha256(code.encode()).hexdigest()[:12]
        self._pipeline = pipeline
        self._name = f"baobab_{name}_{version}"
        self._source = f'#!lua name={self._name}\nlocal LIBRARY = "{self._name}"\n{code}'

    async def load(self) -> None:
        await self._pipeline.send("FUNCTION", "LOAD", "REPLACE", self._source)

    async def call(self, function: str, key: str, *arguments: bytes | str | int) -> Any:
        command = ("FCALL", f"{self._name}_{function}", 1, key, *arguments)
        try:
            return await self._pipeline.send(*command)
        except FunctionMissing:
            await self.load()
            return await self._pipeline.send(*command)
