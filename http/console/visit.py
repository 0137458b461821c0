"""A visit: one request to a page of the console, by somebody who is signed in."""

import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from datetime import datetime
from functools import partial
from typing import Any

from starlette.datastructures import UploadFile

from baobab.http.open_streams import stream_while_allowed
from baobab.tools.console.sessions import LiveSession
from baobab.tools.core.auth.access import least_role
from baobab.tools.core.auth.callers import Account
from baobab.tools.core.auth.roles import require_role
from baobab.tools.core.call import Preview
from baobab.tools.core.context import RequestContext
from baobab.tools.core.errors import Forbidden
from baobab.tools.core.registry import Registry
from baobab.tools.core.stream import Stream


@dataclass(frozen=True, slots=True)
class Visit:
    """One request of a signed-in person to a page."""

    registry: Registry
    session: LiveSession
    context: RequestContext
    render: Callable[[str, Mapping[str, Any]], str]
    """Renders a template as HTML, for streams that send parts of a page."""
    parts: Mapping[str, str] = field(default_factory=dict)
    """The named parts of the path."""
    query: Mapping[str, str] = field(default_factory=dict)
    form: Mapping[str, str] = field(default_factory=dict)
    files: Sequence[UploadFile] = ()
    """The files that a form has brought. They are gone once it is answered."""
    memory: dict[str, Any] = field(default_factory=dict)
    """What was read for this visit and is needed again: each call of a tool counts against the person's limit."""
    came_from: str = ""
    """The page that sent a form: its path below /console, with its query; empty if the browser does not say."""

    @property
    def now(self) -> datetime:
        return self.registry.services.clock.now()

    async def call(self, tool: str, /, organisation_id: str | None = None, **arguments: Any) -> Any:
        """Calls a tool as the signed-in person. organisation_id: the organisation to act in, if not the person's first
        one.
        """
        caller = self.session.caller
        if organisation_id is not None and caller.key_id is None:
            caller = Account(caller.account_id, organisation_id)
        result = await self.registry.call(tool, arguments, caller, self.context)
        # Values of the key-value store come as JSON text, which other interfaces pass on as it is.
        return json.loads(result) if isinstance(result, bytes) else result

    async def preview(self, tool: str, /, **arguments: Any) -> Preview:
        """Returns what a call of the signed-in person would do now, and changes nothing."""
        unit = self.registry.services.database.build_unit(write=False)
        try:
            found_tool = self.registry.find(tool)
            preview = await self.registry.preview(found_tool, arguments, self.session.caller, self.context, unit)
        except BaseException as exc:
            await unit.rollback(exc)
            raise
        await unit.commit()
        return preview

    async def follow(self, tool: str, /, **arguments: Any) -> Stream:
        """Opens a stream of a tool. It ends when the person loses access to it."""
        followed_tool = self.registry.find(tool)
        stream, call = await self.registry.run(followed_tool, arguments, self.session.caller, self.context)
        assert isinstance(stream, Stream)
        return replace(stream, pieces=stream_while_allowed(stream.pieces, partial(self.registry.recheck, call)))

    def may(self, tool: str, organisation_id: str | None = None) -> bool:
        """Returns whether the registry lets the person call a tool, in an organisation or else in any of theirs."""
        return self.registry.may_call(tool, self.session.caller, self.session.find_role(organisation_id))

    async def list_organisations(self, tool: str | None = None) -> Sequence[Mapping[str, Any]]:
        """Lists the person's organisations. tool: only those in which they may call it; Forbidden if there is none."""
        organisations = [row for row in self.session.organisations if tool is None or self.may(tool, row["id"])]
        if not organisations and tool is not None:
            needed_role = least_role(self.registry.find(tool).access)
            require_role(self.session.find_role(None), needed_role)
            raise Forbidden("This key does not open the page.")
        return organisations
