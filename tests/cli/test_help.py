"""Every command says what it does and what it takes."""

from collections.abc import Iterator

import click
import pytest
from click.testing import CliRunner

from baobab.cli import main


def list_commands(command: click.Command, *path: str) -> Iterator[tuple[str, ...]]:
    yield path
    if isinstance(command, click.Group):
        for name, inner in command.commands.items():
            yield from list_commands(inner, *path, name)


every_command = pytest.mark.parametrize("path", [*list_commands(main)], ids=" ".join)


@every_command
def test_help_teaches(path: tuple[str, ...]) -> None:
    result = CliRunner().invoke(main, [*path, "--help"])
    assert result.exit_code == 0
    text = result.output.partition("Options:")[0]
    assert len(text.split()) > 8, f"`baobab {' '.join(path)} --help` says next to nothing"


@every_command
def test_every_option_and_argument_is_explained(path: tuple[str, ...]) -> None:
    command: click.Command = main
    for name in path:
        assert isinstance(command, click.Group)
        command = command.commands[name]
    for parameter in command.params:
        if isinstance(parameter, click.Option):
            assert parameter.help, f"{parameter.name} has no help"
        else:
            assert parameter.make_metavar(click.Context(command)) in (command.help or "")


def test_a_command_that_does_not_exist_is_named() -> None:
    result = CliRunner().invoke(main, ["sevre"])
    assert result.exit_code == 2
    assert "sevre" in result.output
