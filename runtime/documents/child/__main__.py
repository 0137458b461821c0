"""The child process: limits itself, reads the file from its standard input, and writes one answer.

Its arguments are a task and the task's options in JSON. The answer begins with a line of JSON, `{"refused": "Why."}` or
what the task says.
"""

import importlib
import json
import os
import sys
from typing import Any

from baobab.runtime.documents.child.confinement import close_everything, limit_resources
from baobab.runtime.documents.child.refusal import Refused

TASKS = {"parse": "baobab.runtime.documents.child.parse_task", "thumbnail": "baobab.runtime.documents.child.thumbnail"}
_PIECE = 2**20


def read_source(most: int) -> bytes:
    """Raises Refused."""
    pieces = []
    while piece := os.read(0, _PIECE):
        pieces.append(piece)
        most -= len(piece)
        if most < 0:
            raise Refused("The file is too large.")
    return b"".join(pieces)


def run_task(name: str, options: dict[str, Any]) -> bytes:
    """Raises Refused, and whatever a damaged document makes a library raise."""
    limit_resources(options["memory_bytes"], options["seconds"])
    task = importlib.import_module(TASKS[name])
    source = read_source(options["source_bytes"])
    work = task.prepare(source, options)
    # All that is needed is imported by now; from here on, no file can be opened.
    close_everything()
    answer: bytes = work()
    return answer


def encode_refusal(sentence: str) -> bytes:
    return json.dumps({"refused": sentence}).encode() + b"\n"


def main() -> None:
    memory = "Reading the file takes more memory than is allowed."
    try:
        answer = run_task(sys.argv[1], json.loads(sys.argv[2]))
    except Refused as exc:
        answer = encode_refusal(exc.sentence)
    except MemoryError:
        answer = encode_refusal(memory)
    except RecursionError:
        answer = encode_refusal("The document is nested too deeply.")
    left = memoryview(answer)
    while left:
        left = left[os.write(1, left) :]
    # Without the interpreter's own end, which would take longer than many documents.
    os._exit(0)


main()
