"""Types of the arguments and options of the command line."""

import click

from baobab.tools.core.limits.money import nanos


class Dollars(click.ParamType[int]):
    """An exact amount of dollars, converted to nano-dollars. With `below` it is at most 0, such as `-10`."""

    name = "USD"

    def __init__(self, *, below: bool = False) -> None:
        self._below = below

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> int:
        try:
            amount = nanos(value.removeprefix("-") if self._below else value)
        except ValueError as exc:
            self.fail(f"{value!r} {exc}", param, ctx)
        if self._below and amount and not value.startswith("-"):
            self.fail(f"{value!r} must be at most 0, such as -10", param, ctx)
        return -amount if self._below else amount


class Word(click.ParamType[str]):
    """A text of 1 to 200 printable characters, which fits on one line."""

    name = "text"

    def convert(self, value: str, param: click.Parameter | None, ctx: click.Context | None) -> str:
        if not (0 < len(value) <= 200 and value.isprintable()):
            self.fail("must have 1 to 200 characters that can be printed", param, ctx)
        return value
