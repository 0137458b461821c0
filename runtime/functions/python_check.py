"""Checks a source in Python when it is deployed."""

from typing import Any

from baobab.runtime.functions.monty_pool import monty, open_pool
from baobab.runtime.functions.python_runtime import read_prelude
from baobab.runtime.functions.source_errors import BadSource

_LIMITS = {"max_feed_duration_secs": 10.0, "max_memory": 128 * 2**20, "max_suspensions": 100}
_MODULES = (
    "asyncio, base64, collections, copy, csv, dataclasses, datetime, decimal, functools, hashlib, itertools, json, "
    "math, os, pathlib, random, re, sys, time, typing"
)
"""What Monty has of the standard library, in whole or in part."""

_SCHEMA = "try:\n    _schema = input_schema\nexcept NameError:\n    _schema = None\n_schema"


async def check_python(source: str) -> Any:
    """Runs a module once in a process of its own. Returns its `input_schema`, or None. Raises BadSource."""
    pool = await open_pool(1)
    module = await monty.get()
    try:
        async with pool.checkout(limits=_LIMITS) as session:
            await session.feed_run(read_prelude())
            try:
                await session.feed_run(source, print_callback=lambda *_: None)
            except module.MontyError as error:
                raise _read_error(error) from error
            try:
                kind = await session.feed_run("type(handler).__name__")
            except module.MontyError:
                kind = None
            if kind != "function":
                raise BadSource("The source has no handler. Add `async def handler(req, ctx): ...`.")
            return await session.feed_run(_SCHEMA)
    finally:
        await pool.close()


def _read_error(error: Any) -> BadSource:
    text = error.display("type-msg") if hasattr(error, "display") else "The module could not be loaded."
    frames = error.traceback() if hasattr(error, "traceback") else []
    line, column = (frames[-1].line, frames[-1].column) if frames else (None, None)
    if "No module named" in text:
        text = f"{text}. Functions in Python have no packages; these modules are there: {_MODULES}."
    elif "does not yet support" in text or "not supported" in text:
        text = f"{text}. Functions in Python know a part of the language. Write it otherwise, or in TypeScript."
    return BadSource(text, line, column)
