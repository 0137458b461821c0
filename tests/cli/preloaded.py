"""A process that has imported Baobab and built its schemas, and forks one server after another.

Either takes two seconds of a processor, which each server would pay.

It is run as a script. Each message on its socket is a command line, with an environment and a folder, and brings two
descriptors: where the server writes its errors, and a pipe that is told the server's process, and its end.
"""

import gc
import importlib
import json
import os
import signal
import socket
import sys
import threading
import time

_LONGEST = 2**20


def main() -> None:
    with socket.socket(fileno=int(sys.argv[1])) as requests:
        _import_everything()
        # The children would otherwise copy the pages of what they never change.
        gc.collect()
        gc.freeze()
        assert threading.active_count() == 1
        while True:
            message, descriptors, _, _ = socket.recv_fds(requests, _LONGEST, 2)
            if not message:
                return
            log, pipe = descriptors
            if os.fork() == 0:
                break
            os.close(log)
            os.close(pipe)
            _reap()
    _watch(pipe)
    os.close(pipe)
    _become(json.loads(message), log)
    from baobab.cli import main as run

    run()


def _import_everything() -> None:
    """Imports and builds what a server has loaded some seconds after its start, and always alike."""
    for name in ("baobab.cli", "baobab.interfaces", "baobab.serving", "baobab.storage.sql.migrate"):
        importlib.import_module(name)
    from baobab.tools import toolsets
    from baobab.tools.core.registry import Registry

    Registry(toolsets()).prepare()


def _watch(pipe: int) -> None:
    """Forks the server, in which it returns; in the process between, tells what becomes of it."""
    process = os.fork()
    if process == 0:
        return
    os.write(pipe, f"{process}\n".encode())
    _, status = os.waitpid(process, 0)
    os.write(pipe, f"{os.waitstatus_to_exitcode(status)}\n".encode())
    os._exit(0)


def _reap() -> None:
    """Waits for those who have ended: whoever waits for this process is then told what they used."""
    try:
        while os.waitpid(-1, os.WNOHANG)[0]:
            pass
    except ChildProcessError:
        pass


def _become(request: dict[str, object], log: int) -> None:
    """Makes this process what the message wants: its arguments, environment and folder."""
    os.dup2(log, 2)
    os.close(log)
    sys.argv[1:] = request["arguments"]  # type: ignore[call-overload]
    os.environ.clear()
    os.environ.update(request["environment"])  # type: ignore[call-overload]
    os.chdir(str(request["folder"]))
    os.umask(0o022)
    time.tzset()
    signal.signal(signal.SIGINT, signal.default_int_handler)


if __name__ == "__main__":
    main()
