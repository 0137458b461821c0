"""Errors of tool servers. No message contains a token, or an address that a name resolved to."""

from baobab.tools.core.errors import BaobabError, Conflict, NotFound


class ToolServerNotFound(NotFound):
    code = "tool_server_not_found"
    summary = "The app has no tool server with this id."
    remediation = "List the tool servers with op:mcp_servers_list."


class ToolNotOffered(NotFound):
    code = "tool_not_offered"
    summary = "The tool server offers no such tool, or nobody has accepted it yet."
    remediation = "Probe the server, look at its tools, and accept them with `accept` (op:mcp_servers_probe)."


class ToolChanged(Conflict):
    code = "tool_changed"
    summary = "The server's description of this tool has changed since it was accepted, so the tool was not called."
    remediation = "Probe the server, look at what has changed, and accept it with `accept` (op:mcp_servers_probe)."


class ToolServerFailed(BaobabError):
    code = "tool_server_failed"
    status = 502
    summary = "The tool server's answer was not valid MCP."
    remediation = "Check that the URL is that of an MCP server and that the server works, then try again."


class ToolServerDenied(ToolServerFailed):
    code = "tool_server_denied"
    summary = "The tool server, or its token URL, refused the credential."
    remediation = "Register the server again, with a valid credential."


class ToolServerTimeout(ToolServerFailed):
    code = "tool_server_timeout"
    status = 504
    summary = "The tool server did not answer in time."
    remediation = "Try again later, or ask for less. The call may have taken effect all the same."


class RemoteToolFailed(ToolServerFailed):
    code = "tool_failed"
    summary = "The tool reported an error."
    remediation = "Read its message, which is the server's own, and try again with other arguments if that helps."
