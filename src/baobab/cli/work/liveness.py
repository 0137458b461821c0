"""Makes a copy the installation that lives, or an installation a copy, for `baobab serve`."""

from collections.abc import Callable

from baobab.cli.errors import CommandError
from baobab.cli.installation import open_application
from baobab.settings import Settings
from baobab.storage.copies import CopyMark
from baobab.tools.system.copies import describe_installation, describe_waiting, drop_waiting


async def begin_to_live(settings: Settings, waiting: str | None, print_line: Callable[[str], None]) -> None:
    """Makes a copy live, and says what waited in it. Raises CommandError if what becomes of that is not said.

    waiting: `run` or `drop`. print_line: receives lines for people.
    """
    async with open_application(settings, every_region=True) as application:
        services, kinds = application.services, application.registry.jobs
        before = await describe_installation(services, kinds)
        if before["state"] == "live":
            print_line("This installation lives already.")
            return
        lines = describe_waiting(before["waiting"], services.clock.now())
        if lines and waiting is None:
            raise CommandError(
                f"this is a copy since {before['since']:%Y-%m-%d %H:%M:%S} UTC, and jobs wait in it from before, which "
                f"the original may have done: {'; '.join(lines)}. Start it with `--live --waiting drop` to leave them "
                "undone, or with `--live --waiting run` to do them here, too"
            )
        if waiting == "drop":
            await drop_waiting(services, kinds)
        await services.liveness.begin_to_live(services.database, services.notices)
        print_line("This installation lives from now on.")
        for line, each in zip(lines, before["waiting"], strict=True):
            print_line(f"{'Left undone' if waiting == 'drop' and each['dropped'] else 'Done now'}: {line}")


async def become_copy(settings: Settings, print_line: Callable[[str], None]) -> None:
    """Makes an installation a copy, unless it is one."""
    async with open_application(settings) as application:
        services = application.services
        if not services.liveness.is_copy:
            mark = CopyMark(services.clock.now(), "its operator has said so")
            await services.liveness.become_copy(services.database, services.notices, mark)
        print_line("This installation is a copy: it sends and starts nothing until `baobab serve --live`.")
