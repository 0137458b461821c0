"""Calls to tool servers. The first call imports the MCP library, which takes most of a second."""

import importlib
from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING, Any

from pydantic_core import from_json

from baobab.runtime.agents.remote.errors import RemoteToolFailed, ToolChanged, ToolServerFailed
from baobab.runtime.agents.remote.server import ToolServer
from baobab.runtime.agents.remote.tables import credential_context
from baobab.runtime.agents.remote.tokens import TokenCache
from baobab.runtime.agents.remote.tool_description import ToolListing
from baobab.runtime.agents.spec.bounds import find_violations
from baobab.runtime.late_import import LateImport
from baobab.runtime.net.egress import Egress
from baobab.tools.core.services import Services

if TYPE_CHECKING:
    from baobab.runtime.agents.remote.session import Session

_LIST_SECONDS = 15.0
_CALL_SECONDS = 60.0
_LONGEST_MESSAGE = 2000
_LONGEST_JSON = 64 * 1024
"""The longest text that is parsed as JSON, in characters. The text and the JSON must together fit into a run's
result.
"""

_library = LateImport(
    lambda: importlib.import_module("baobab.runtime.agents.remote.session"),
    packages=("mcp", "baobab.runtime.agents.remote"),
)


class ToolServerClient:
    """Calls tool servers, with a session for each call. One for each process.

    All methods raise ToolServerFailed and its subclasses, and EgressError.
    """

    def __init__(self, services: Services) -> None:
        assert isinstance(services.http_client, Egress)
        self._egress = services.http_client
        self._vault = services.vault
        self._tokens = TokenCache(self._egress, services.clock)
        self.list_seconds = _LIST_SECONDS
        self.call_seconds = _CALL_SECONDS

    async def list_tools(self, server: ToolServer) -> ToolListing:
        """Lists what a server offers now."""
        return await (await self._open_session(server, self.list_seconds)).list_tools()

    async def call_tool(
        self, server: ToolServer, name: str, arguments: Mapping[str, Any], idempotency_key: str
    ) -> dict[str, Any]:
        """Calls a tool. Returns its `text`, its `structured` JSON, and `parts` that are neither, without their bytes.

        It first checks that the server still describes the tool as it was accepted. Raises ToolNotOffered, ToolChanged
        and RemoteToolFailed.
        """
        tool = server.get_tool(name)
        session = await self._open_session(server, self.call_seconds)
        result = await session.call_tool(tool, arguments, idempotency_key)
        if result is None:
            raise ToolChanged
        text = "\n".join(part.text for part in result.content if part.type == "text").replace("\x00", "\ufffd")
        text = session.hide_credential(text)
        if result.is_error:
            raise RemoteToolFailed(text[:_LONGEST_MESSAGE] or None)
        parts = [_describe_part(part) for part in result.content if part.type != "text"]
        redacted_content = _replace_texts(
            {"structured": result.structured_content, "parts": parts}, session.hide_credential
        )
        answer = {"text": text, **redacted_content}
        for issue in find_violations(answer):
            raise ToolServerFailed(f"The tool's answer {issue.message}.")
        if result.structured_content is None:
            parsed_answer = answer | {"structured": _read_json(text)}
            answer = answer if any(find_violations(parsed_answer)) else parsed_answer
        return answer

    async def _open_session(self, server: ToolServer, seconds: float) -> "Session":
        library = await _library.get()
        auth = None
        if server.credential is not None:
            auth = from_json(self._vault.open(server.credential, credential_context(server.id)))
        session: Session = library.Session(self._egress, self._tokens, server, auth, seconds=seconds)
        return session


def _replace_texts(value: Any, replace_text: Callable[[str], str]) -> Any:
    """Replaces every text in a value, names of fields included."""
    if isinstance(value, str):
        return replace_text(value)
    if isinstance(value, dict):
        return {replace_text(name): _replace_texts(item, replace_text) for name, item in value.items()}
    if isinstance(value, list):
        return [_replace_texts(item, replace_text) for item in value]
    return value


def _read_json(text: str) -> Any:
    """Parses an object or list that the server sent as text, as many do. Returns None for every other text."""
    if len(text) > _LONGEST_JSON or not text.lstrip().startswith(("{", "[")):
        return None
    try:
        return from_json(text, allow_inf_nan=False)
    except ValueError:
        return None


def _describe_part(part: Any) -> dict[str, str]:
    """Describes a part that is not text: its type and, if it has them, its media type, URI, name and text."""
    resource = getattr(part, "resource", part)
    fields = {field: getattr(resource, field, None) for field in ("mime_type", "uri", "name", "text")}
    return {"type": part.type, **{field: str(value) for field, value in fields.items() if value is not None}}
