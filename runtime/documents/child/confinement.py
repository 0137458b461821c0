"""The limits that the child sets for itself: memory, time, files, and on Linux the system calls that it may make.

A document may take over the process through a fault in a C library. It then has only its own memory and the pipe to the
server: no files, no network and no other processes.
"""

import ctypes
import math
import os
import platform
import resource
import signal
import struct
import sys
from collections.abc import Sequence

_PR_SET_PDEATHSIG, _PR_SET_NO_NEW_PRIVS, _PR_SET_SECCOMP, _FILTER = 1, 38, 22, 2
_LOAD, _EQUAL, _RETURN = 0x20, 0x15, 0x06
_ALLOW, _REFUSE = 0x7FFF0000, 0x00050001
"""The results of a filter: allow the call, or let it fail with EPERM."""

_MACHINES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
"""The kernel's constant for each architecture, and the index of its call numbers in _CALLS."""
# On aarch64, `poll` is `ppoll`.
_CALLS = {
    "read": (0, 63),
    "write": (1, 64),
    "close": (3, 57),
    "fstat": (5, 80),
    "poll": (7, 73),
    "lseek": (8, 62),
    "mmap": (9, 222),
    "mprotect": (10, 226),
    "munmap": (11, 215),
    "brk": (12, 214),
    "rt_sigaction": (13, 134),
    "rt_sigprocmask": (14, 135),
    "rt_sigreturn": (15, 139),
    "sched_yield": (24, 124),
    "mremap": (25, 216),
    "madvise": (28, 233),
    "getpid": (39, 172),
    "exit": (60, 93),
    "uname": (63, 160),
    "gettimeofday": (96, 169),
    "getrusage": (98, 165),
    "times": (100, 153),
    "sigaltstack": (131, 132),
    "gettid": (186, 178),
    "futex": (202, 98),
    "sched_getaffinity": (204, 123),
    "restart_syscall": (219, 128),
    "clock_gettime": (228, 113),
    "clock_nanosleep": (230, 115),
    "exit_group": (231, 94),
    "getrandom": (318, 278),
    "rseq": (334, 293),
}


def limit_resources(memory_bytes: int, seconds: float) -> None:
    """Limits memory and time. The process ends with the server's thread that started it, and leaves no core dump."""
    if sys.platform == "linux":
        _control(_PR_SET_PDEATHSIG, signal.SIGKILL)
        _limit(resource.RLIMIT_AS, memory_bytes)
    # The server's own work comes first.
    os.nice(10)
    _limit(resource.RLIMIT_CORE, 0)
    _limit(resource.RLIMIT_FSIZE, 0)
    _limit(resource.RLIMIT_CPU, math.ceil(seconds) + 1)
    # The server kills it at its time; this is for a server that was killed itself.
    signal.alarm(math.ceil(seconds) + 2)


def close_everything() -> None:
    """Makes it impossible to open a file or a connection, or to start a process, from here on."""
    _limit(resource.RLIMIT_NOFILE, 0)
    if sys.platform == "linux" and platform.machine() in _MACHINES:
        machine, place = _MACHINES[platform.machine()]
        _control(_PR_SET_NO_NEW_PRIVS, 1)
        _allow_only(machine, [numbers[place] for numbers in _CALLS.values()])


def _limit(resource_id: int, most: int) -> None:
    _, hard = resource.getrlimit(resource_id)
    most = most if hard == resource.RLIM_INFINITY else min(most, hard)
    resource.setrlimit(resource_id, (most, most))


def _allow_only(machine: int, calls: Sequence[int]) -> None:
    """Makes the kernel refuse every other system call, with a BPF program."""
    program = [(_LOAD, 0, 0, 4), (_EQUAL, 1, 0, machine), (_RETURN, 0, 0, _REFUSE), (_LOAD, 0, 0, 0)]
    program += [(_EQUAL, len(calls) - at, 0, call) for at, call in enumerate(calls)]
    program += [(_RETURN, 0, 0, _REFUSE), (_RETURN, 0, 0, _ALLOW)]
    code = ctypes.create_string_buffer(b"".join(struct.pack("HBBI", *each) for each in program))
    _control(
        _PR_SET_SECCOMP, _FILTER, ctypes.create_string_buffer(struct.pack("HP", len(program), ctypes.addressof(code)))
    )


def _control(option: int, *arguments: int | ctypes.Array[ctypes.c_char]) -> None:
    """Calls `prctl`. Raises OSError: a process that cannot be confined must not read anything."""
    libc = ctypes.CDLL(None, use_errno=True)
    words = [each if isinstance(each, ctypes.Array) else ctypes.c_ulong(each) for each in arguments]
    words += [ctypes.c_ulong(0)] * (4 - len(words))
    if libc.prctl(option, *words) != 0:
        raise OSError(ctypes.get_errno(), os.strerror(ctypes.get_errno()))
