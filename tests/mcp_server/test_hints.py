"""Hints about tools say what a call does to what is there, and never more or less than the tool declares."""

from baobab.tools import toolsets
from baobab.tools.core.registry import Registry
from tests.conftest import Baobab
from tests.mcp_server.mcp_requests import send_message

_OVERWRITE = (
    "kv_put", "agents_update", "data_update", "data_update_many", "data_insert", "data_import", "data_delete",
    "rag_documents_replace", "users_update", "config_cors", "config_access_mode", "rls_create_policy",
    "rls_update_policy", "approvals_approve", "schema_apply", "files_put",
)  # fmt: skip
_ONLY_ADD = ("kv_incr", "kv_setnx", "agents_create", "rag_ingest", "apps_init", "users_invite", "api_keys_create")


async def test_hints_follow_from_what_a_tool_declares(baobab: Baobab) -> None:
    listed_tools = (await send_message(baobab, "tools/list", path="/mcp?toolsets=all")).result
    annotations = {tool["name"]: tool["annotations"] for tool in listed_tools["tools"]}
    while (cursor := listed_tools.get("nextCursor")) is not None:
        listed_tools = (await send_message(baobab, "tools/list", {"cursor": cursor}, path="/mcp?toolsets=all")).result
        annotations |= {tool["name"]: tool["annotations"] for tool in listed_tools["tools"]}
    for name in (*_OVERWRITE, *_ONLY_ADD):
        assert annotations[name]["destructiveHint"] is (name in _OVERWRITE), name
    tools = Registry(toolsets()).tools
    for name, hints in annotations.items():
        tool = tools.get(name)
        if tool is None:
            continue
        assert hints["readOnlyHint"] is (tool.effect == "read"), name
        if tool.effect == "read":
            continue
        is_destructive = tool.effect == "destructive" or tool.destructive_when is not None
        assert hints["destructiveHint"] or not is_destructive, name
        method = "" if tool.rest is None else tool.rest.method
        assert hints["destructiveHint"] or method not in ("PUT", "PATCH", "DELETE"), name
        assert hints["idempotentHint"] is (method in ("PUT", "DELETE")), name
