"""Confines this process and then becomes deno or Monty. Run by path with `python -I -S`: it imports only the standard
library.

Two walls stand around deno's own. Landlock: no file but deno, its libraries and the runner can be opened, nothing can
be written, and no TCP port be used. A filter of system calls: no sockets, no other processes, no looking into them.
Where the kernel has none of them, deno's wall stands alone; `walls.py` says so.
"""

import ctypes
import json
import os
import platform
import resource
import signal
import stat
import struct
import sys

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 38, 22, 2
_CREATE_RULESET, _ADD_RULE, _RESTRICT_SELF = 444, 445, 446
_EXECUTE, _READ_FILE, _READ_DIR = 1 << 0, 1 << 2, 1 << 3
_FILES_BY_ABI = {1: 13, 2: 14, 3: 15, 4: 15, 5: 16}
"""How many kinds of access to files each version of Landlock knows."""

_LIBRARIES = ("/usr/lib", "/lib", "/lib64", "/usr/lib64", "/etc/ld.so.cache")
_LOAD, _EQUAL, _AT_LEAST, _ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06
_ALLOW, _EPERM, _ENOSYS = 0x7FFF0000, 0x00050001, 0x00050026
_CLONE_THREAD = 0x10000
_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
_REFUSED = {
    "socket": (41, 198),
    "kill": (62, 129),
    "ptrace": (101, 117),
    "mount": (165, 40),
    "add_key": (248, 217),
    "keyctl": (250, 219),
    "unshare": (272, 97),
    "perf_event_open": (298, 241),
    "setns": (308, 268),
    "process_vm_readv": (310, 270),
    "process_vm_writev": (311, 271),
    "bpf": (321, 280),
    "userfaultfd": (323, 282),
    "pidfd_send_signal": (424, 424),
    "io_uring_setup": (425, 425),
    "pidfd_getfd": (438, 438),
}
_CLONE, _CLONE3, _FORKS = (56, 220), 435, ((57, 58), ())


def main() -> None:
    """Takes `{"parent", "program", "arguments", "environment", "readable"}` as JSON, and does not return.

    parent: the process with whose thread this one ends, or null.
    """
    order = json.loads(sys.argv[1])
    libc = ctypes.CDLL(None, use_errno=True)
    if sys.platform == "linux":
        if order["parent"] is not None:
            libc.prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)
            if os.getppid() != order["parent"]:
                # The server had ended before this process could ask to end with it.
                sys.exit(1)
        with open("/proc/self/oom_score_adj", "w", encoding="ascii") as score:  # noqa: PTH123 - pathlib takes 5 ms
            score.write("500")
    os.nice(5)
    for limit, most in ((resource.RLIMIT_CORE, 0), (resource.RLIMIT_FSIZE, 0), (resource.RLIMIT_NOFILE, 256)):
        _, hard = resource.getrlimit(limit)
        value = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(limit, (value, value))
    if sys.platform == "linux":
        libc.prctl(_PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)
        _restrict_files(libc, order["program"], order["readable"])
        if platform.machine() in _MACHINES:
            _filter_calls(libc, *_MACHINES[platform.machine()])
    os.execve(order["program"], [order["program"], *order["arguments"]], order["environment"])  # noqa: S606 - no shell


def _restrict_files(libc: ctypes.CDLL, program: str, readable: list[str]) -> None:
    abi = libc.syscall(_CREATE_RULESET, None, 0, 1)
    if abi < 1:
        return
    files = (1 << _FILES_BY_ABI.get(abi, 16)) - 1
    # From version 4 on TCP, from version 6 on abstract sockets and signals.
    attributes = struct.pack("QQQ", files, 3 if abi >= 4 else 0, 3 if abi >= 6 else 0)
    size = 24 if abi >= 6 else 16 if abi >= 4 else 8
    ruleset = libc.syscall(_CREATE_RULESET, attributes, size, 0)
    if ruleset < 0:
        return
    rights = [(program, _EXECUTE | _READ_FILE), *((path, _EXECUTE | _READ_FILE | _READ_DIR) for path in _LIBRARIES)]
    # The C library finds the bounds of a stack in `maps`. This one stays open: else the kernel may forget what it knows
    # of the folder, and make it anew, without its rule.
    rights += [("/proc/self", _READ_FILE), *((path, _READ_FILE) for path in readable)]
    for path, access in rights:
        try:
            descriptor = os.open(path, os.O_PATH | os.O_CLOEXEC)
        except FileNotFoundError:
            continue
        if path == "/proc/self":
            os.set_inheritable(descriptor, True)  # noqa: FBT003 - it takes no keyword
        elif not stat.S_ISDIR(os.fstat(descriptor).st_mode):
            access &= ~_READ_DIR  # noqa: PLW2901 - a file has no such right
        libc.syscall(_ADD_RULE, ruleset, 1, struct.pack("=Qi", access, descriptor), 0)
        if path != "/proc/self":
            os.close(descriptor)
    libc.syscall(_RESTRICT_SELF, ruleset, 0)
    os.close(ruleset)


def _filter_calls(libc: ctypes.CDLL, machine: int, place: int) -> None:
    """Sets a BPF program: it refuses some calls, and `clone` unless that makes a thread."""
    numbers = [each[place] for each in _REFUSED.values()] + list(_FORKS[place])
    code = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _EPERM), (_LOAD, 0, 0, 0)]
    # The second set of calls of x86-64 has numbers from here on.
    code += [(_AT_LEAST, 0, 1, 0x40000000), (_RETURN, 0, 0, _EPERM)]
    for number in numbers:
        code += [(_EQUAL, 0, 1, number), (_RETURN, 0, 0, _EPERM)]
    # The flags of clone3 lie in memory, where a filter cannot look. Without it, the C library uses clone.
    code += [(_EQUAL, 0, 1, _CLONE3), (_RETURN, 0, 0, _ENOSYS)]
    code += [(_EQUAL, 0, 3, _CLONE[place]), (_LOAD, 0, 0, 16), (_ANY_BIT, 1, 0, _CLONE_THREAD), (_RETURN, 0, 0, _EPERM)]
    code += [(_RETURN, 0, 0, _ALLOW)]
    program = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in code))
    header = ctypes.create_string_buffer(struct.pack("HP", len(code), ctypes.addressof(program)))
    libc.prctl(_PR_SET_SECCOMP, _FILTER, header, 0, 0)


main()
