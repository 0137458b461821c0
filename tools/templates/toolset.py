"""The toolsets of templates: what is offered to everybody, and what an app knows of where it comes from."""

from baobab.tools.core import Toolset
from baobab.tools.core.app_clones import never_clone
from baobab.tools.templates.errors import ENVELOPE

templates = Toolset(
    "templates",
    "Templates: find an app that others offer, see what it can do, and clone it.",
    base="/v1",
    envelope=ENVELOPE,
)
clones = Toolset(
    "clones",
    "Where a cloned app comes from, what is still switched off in it, and who is told of clones.",
    base="/v1/{app_id}",
    clones=(
        *never_clone("each clone has one of its own", "clone_origins"),
        *never_clone("history", "clone_jobs"),
        *never_clone("credentials", "clone_webhooks"),
    ),
)
