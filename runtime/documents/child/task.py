"""Does one task in a process of its own: limits itself, reads the file from standard input, and writes one answer.

The answer begins with a line of JSON: `{"refused": "Why."}`, or the task's result.
"""

import importlib
import json
import os
from typing import Any

from baobab.runtime.documents.child.confinement import close_everything, limit_resources
from baobab.runtime.documents.child.refusal import Refused

_TASKS = {
    "parse": "baobab.runtime.documents.child.parse_task",
    "recognise": "baobab.runtime.documents.child.recognise_task",
    "thumbnail": "baobab.runtime.documents.child.thumbnail",
}
_PIECE = 2**20


def import_ahead(name: str, options: dict[str, Any]) -> None:
    """Imports what the task needs if the file is what its sender declared. It does not look at the content."""
    task = importlib.import_module(_TASKS[name])
    task.import_ahead(options)


def do_task(name: str, options: dict[str, Any]) -> None:
    """Writes the answer to standard output. Raises any error that a damaged document causes in a library."""
    try:
        answer = _compute_answer(name, options)
    except Refused as exc:
        answer = _encode_refusal(exc.sentence)
    except MemoryError:
        answer = _encode_refusal("Reading the file takes more memory than is allowed.")
    except RecursionError:
        answer = _encode_refusal("The document is nested too deeply.")
    unwritten = memoryview(answer)
    while unwritten:
        unwritten = unwritten[os.write(1, unwritten) :]


def _compute_answer(name: str, options: dict[str, Any]) -> bytes:
    """Returns the answer. Raises Refused, and any error that a damaged document causes in a library."""
    limit_resources(options["memory_bytes"], options["seconds"])
    task = importlib.import_module(_TASKS[name])
    source = _read_source(options["source_bytes"])
    work = task.prepare(source, options)
    # All that is needed is imported by now; from here on, no file can be opened.
    close_everything()
    answer: bytes = work()
    return answer


def _read_source(most: int) -> bytes:
    """Returns the content of the file. Raises Refused."""
    pieces = []
    while piece := os.read(0, _PIECE):
        pieces.append(piece)
        most -= len(piece)
        if most < 0:
            raise Refused("The file is too large.")
    return b"".join(pieces)


def _encode_refusal(sentence: str) -> bytes:
    return json.dumps({"refused": sentence}).encode() + b"\n"
