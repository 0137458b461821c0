"""The fork server: it has imported the libraries, and forks a process for each document.

It never looks at a document, so each of its children begins as clean as a new interpreter, in a hundredth of the time.

Its standard input is a socket. A request is its length in four bytes, and a task with its options in JSON. Three
descriptors come with it: the file, a pipe for the answer, and a pipe whose other end the server closes when the
process has to end. The answer begins with one byte that says that the process was started.
"""

import contextlib
import json
import os
import select
import signal
import socket
from typing import Any, NoReturn

from baobab.runtime.documents.child.task import do_task, import_ahead

_IDLE_SECONDS = 60
_LENGTH = 4


def main() -> None:
    """Serves requests, and returns when the server is gone or has had no document to read for a while."""
    requests = socket.socket(fileno=os.dup(0))
    poll = select.poll()
    poll.register(requests, select.POLLIN)
    running: dict[int, int] = {}
    while True:
        ready = [descriptor for descriptor, _ in poll.poll(None if running else _IDLE_SECONDS * 1000)]
        if not ready:
            return
        for lifeline in set(ready) & set(running):
            poll.unregister(lifeline)
            os.close(lifeline)
            _end_process(running.pop(lifeline))
        if requests.fileno() in ready:
            request = _receive(requests)
            if request is None:
                for process_id in running.values():
                    _end_process(process_id)
                return
            (name, options), (source, answer, lifeline) = request
            import_ahead(name, options)
            try:
                process_id = os.fork()
            except OSError:
                # The server sees that nothing was started.
                os.close(lifeline)
            else:
                if process_id == 0:
                    _become_child(name, options, source, answer, [requests.fileno(), *running, lifeline])
                running[lifeline] = process_id
                poll.register(lifeline, 0)
            os.close(source)
            os.close(answer)


def _receive(requests: socket.socket) -> tuple[list[Any], list[int]] | None:
    """Returns a task with its options, and its descriptors; None when the server is gone."""
    head, descriptors, _, _ = socket.recv_fds(requests, _LENGTH, 3)
    pieces = b""
    most = int.from_bytes(head, "big")
    while head and len(pieces) < most:
        piece = requests.recv(most - len(pieces))
        if not piece:
            return None
        pieces += piece
    return (json.loads(pieces), descriptors) if head else None


def _become_child(
    name: str, options: dict[str, Any], source: int, answer: int, inherited_descriptors: list[int]
) -> NoReturn:
    status = 1
    try:
        os.dup2(source, 0)
        os.dup2(answer, 1)
        for descriptor in (source, answer, *inherited_descriptors):
            os.close(descriptor)
        os.write(1, b"+")
        do_task(name, options)
        status = 0
    finally:
        # Without the interpreter's own end, and never back into the fork server's work.
        os._exit(status)


def _end_process(process_id: int) -> None:
    """Kills a child, even if it has answered, so that nothing survives of a process that a document has taken over."""
    # Its id cannot be another's before it is waited for.
    with contextlib.suppress(ProcessLookupError):
        os.kill(process_id, signal.SIGKILL)
    os.waitpid(process_id, 0)


main()
