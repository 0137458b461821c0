"""Removes what a stack of JavaScript says about the server."""

import re

PROGRAM_URL = "program:///function.ts"
"""What the program's own source is called in stacks."""

_MODULE = re.compile(
    r"program:///function\.ts|blob:[^\s:)]*/[0-9a-f-]+|data:(?:application|text)/[a-z]+;base64,[A-Za-z0-9+/=.]+"
)
_OURS = re.compile(r"^.*(?:file://|ext:|node:).*$\n?", re.MULTILINE)
_PATH = re.compile(r"file://[^\s)'\"]*")
_MOST = 8192


def hide_paths(text: str) -> str:
    """Returns a message without paths of the server."""
    return _PATH.sub("(server)", _MODULE.sub("function", text))[:_MOST]


def clean_stack(stack: str, name: str) -> str:
    """Returns a stack with the function's name for its module, and only with frames of the program."""
    head, newline, frames = stack.partition("\n    at ")
    own_frames = _OURS.sub("", newline[1:] + frames) if newline else ""
    text = _MODULE.sub(lambda _: name, head + "\n" + own_frames) if own_frames else _MODULE.sub(lambda _: name, head)
    return _PATH.sub("(server)", text).rstrip()[:_MOST]
