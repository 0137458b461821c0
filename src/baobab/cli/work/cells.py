"""`baobab cells`: shows cells, and drains them."""

import getpass
import os
import socket

from baobab.tools.core.services import Services
from baobab.tools.moves.drains import CellState, list_cell_states, start_drain, stop_drain


async def show_cells(services: Services) -> list[str]:
    """Returns every cell and how far a drain of it is, as lines for people."""
    return [_describe(state) for state in await list_cell_states(services)]


async def drain_cell(services: Services, name: str) -> list[str]:
    """Starts to drain a cell, and returns what `show_cells` does. Raises CellUnknown, NotDrainable."""
    await start_drain(services, name, _name_operator())
    return await show_cells(services)


async def admit_to_cell(services: Services, name: str) -> list[str]:
    """Lets a cell take apps again, and returns what `show_cells` does. Raises CellUnknown."""
    await stop_drain(services, name)
    return await show_cells(services)


def _describe(state: CellState) -> str:
    cell = state.cell
    most = "" if cell.max_apps is None else f" of {cell.max_apps}"
    parts = [f"{cell.name}: geography {cell.geography}, apps {state.apps}{most}"]
    if not state.answers:
        parts.append("does not answer")
    if state.copies:
        parts.append(f"copies that moves left behind {state.copies}")
    if state.leaving:
        parts.append(f"moves out of it {state.leaving}")
    drain = state.drain
    if drain is not None:
        parts.append(f"drained since {drain.since:%Y-%m-%d %H:%M:%S} UTC by {drain.started_by}")
        if drain.emptied_at is not None:
            parts.append(f"empty since {drain.emptied_at:%Y-%m-%d %H:%M:%S} UTC")
        if drain.last_error is not None:
            parts.append(f"stuck: {drain.last_error}")
    return ", ".join(parts)


def _name_operator() -> str:
    try:
        user = getpass.getuser()
    except (KeyError, OSError):
        # In a container the account may have no name.
        user = str(os.getuid())
    return f"{user}@{socket.gethostname()}"[:200]
