"""What a parse worker may still do once it has begun: compute, read Python's own files, and talk on the socket it has.

A fault in a reader, a decompressor or SQLite could let a hostile trace run code. That code finds no network, no other
program, no file but the interpreter's, no other process, and of the kernel nothing that root may change. Landlock
(Linux 5.13 and later) keeps files, seccomp keeps system calls; what a kernel or a machine does not offer is left out,
and ``confine`` tells what it could take.
"""

from __future__ import annotations

import ctypes
import os
import platform
import struct
import sys
from collections.abc import Iterable
from contextlib import suppress
from pathlib import Path

from roofwatch.model.devices import calibration_file

PR_SET_NO_NEW_PRIVS, PR_SET_SECCOMP, SECCOMP_MODE_FILTER = 38, 22, 2
CREATE_RULESET, ADD_RULE, RESTRICT_SELF = 444, 445, 446  # the same on every architecture
READ_FILE, READ_DIR, EXECUTE = 1 << 2, 1 << 3, 1 << 0  # execute: of a mapped library
ALLOWED = READ_FILE | READ_DIR | EXECUTE
FILE_RIGHTS = {1: (1 << 13) - 1, 2: (1 << 14) - 1, 3: (1 << 15) - 1, 5: (1 << 16) - 1}  # by version of Landlock
NET_RIGHTS, SCOPES = (4, 0b11), (6, 0b11)  # TCP bind and connect; abstract sockets and signals, of others
SYSTEM = (
    "/usr/lib",
    "/usr/lib64",
    "/usr/local/lib",
    "/lib",
    "/lib64",
    "/etc/ld.so.cache",
    "/etc/localtime",
    "/proc/self",
)

# <linux/seccomp.h>, <linux/audit.h>, <linux/filter.h>; numbers of system calls on x86-64 and on arm64.
ALLOW, ERRNO = 0x7FFF0000, 0x00050000
LOAD, EQUAL, ANY_BIT, GREATER, RETURN = 0x20, 0x15, 0x45, 0x35, 0x06
ARCHITECTURES = {"x86_64": (0xC000003E, 0), "aarch64": (0xC00000B7, 1)}
X32 = 0x40000000  # x86-64's second table of numbers
EPERM, ENOSYS = 1, 38
CLONE_THREAD = 0x00010000
CLONE, CLONE3 = (56, 220), 435
TGKILL, PRLIMIT = (234, 131), (302, 261)  # of this process only: the C library calls them for abort and setrlimit
DENIED: dict[str, tuple[int, int | None]] = {
    "socket": (41, 198), "socketpair": (53, 199), "connect": (42, 203), "bind": (49, 200), "listen": (50, 201),
    "execve": (59, 221), "execveat": (322, 281), "fork": (57, None), "vfork": (58, None), "kill": (62, 129),
    "ptrace": (101, 117), "process_vm_readv": (310, 270), "process_vm_writev": (311, 271),
    "pidfd_open": (434, 434), "pidfd_getfd": (438, 438), "memfd_create": (319, 279), "io_uring_setup": (425, 425),
    "mount": (165, 40), "umount2": (166, 39), "pivot_root": (155, 41), "chroot": (161, 51), "setns": (308, 268),
    "unshare": (272, 97), "bpf": (321, 280), "perf_event_open": (298, 241), "userfaultfd": (323, 282),
    "truncate": (76, 45), "chmod": (90, None), "fchmod": (91, 52), "fchmodat": (268, 53), "fchmodat2": (452, 452),
    "chown": (92, None), "fchown": (93, 55), "lchown": (94, None), "fchownat": (260, 54), "utimensat": (280, 88),
    "utime": (132, None), "utimes": (235, None), "futimesat": (261, None), "setxattr": (188, 5), "lsetxattr": (189, 6),
    "fsetxattr": (190, 7), "removexattr": (197, 14), "lremovexattr": (198, 15), "fremovexattr": (199, 16),
    "tkill": (200, 130), "rt_sigqueueinfo": (129, 138), "rt_tgsigqueueinfo": (297, 240),
    "pidfd_send_signal": (424, 424), "shmget": (29, 194), "shmat": (30, 196), "msgget": (68, 186), "semget": (64, 190),
    "setpriority": (141, 140), "ioprio_set": (251, 30), "sched_setparam": (142, 118), "sched_setscheduler": (144, 119),
    "sched_setaffinity": (203, 122), "sched_setattr": (314, 274), "migrate_pages": (256, 238), "move_pages": (279, 239),
    "kcmp": (312, 272), "process_madvise": (440, 440), "process_mrelease": (448, 448),
    "keyctl": (250, 219), "add_key": (248, 217), "request_key": (249, 218), "open_by_handle_at": (304, 265),
    # What only root may do; an agent may run as root. finit_module takes a descriptor, and a job has passed one.
    "init_module": (175, 105), "finit_module": (313, 273), "delete_module": (176, 106), "kexec_load": (246, 104),
    "kexec_file_load": (320, 294), "reboot": (169, 142), "settimeofday": (164, 170), "clock_settime": (227, 112),
    "adjtimex": (159, 171), "clock_adjtime": (305, 266), "swapon": (167, 224), "swapoff": (168, 225),
    "sethostname": (170, 161), "setdomainname": (171, 162), "acct": (163, 89), "syslog": (103, 116),
    "iopl": (172, None), "ioperm": (173, None), "modify_ldt": (154, None), "quotactl": (179, 60),
    "fsopen": (430, 430), "fsmount": (432, 432), "fspick": (433, 433), "move_mount": (429, 429),
    "open_tree": (428, 428), "mount_setattr": (442, 442), "vhangup": (153, 58), "personality": (135, 92),
}  # fmt: skip


def confine() -> tuple[str, ...]:
    """Take away all but what reading needs, for good. Names what this kernel could do: ``landlock``, ``seccomp``."""
    libc = ctypes.CDLL(None, use_errno=True)
    if libc.prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0):
        return ()
    taken = ("landlock",) if _files(libc, readable()) else ()
    return (*taken, "seccomp") if _calls(libc) else taken


def readable() -> list[str]:
    """The interpreter, what is installed for it, the system's libraries, and the folder of measured peaks.

    Never the root or a home as a whole. The folder, not its file: who measures again replaces the file.
    """
    peaks = str(calibration_file().parent)
    found = {os.path.realpath(path) for path in (sys.prefix, sys.base_prefix, *sys.path, *SYSTEM, peaks) if path}
    wide = {"/", "/home", "/root", "/tmp", "/etc", "/var", str(Path.home())}  # noqa: S108 - never to be read
    return sorted(path for path in found - wide if Path(path).exists())


def _files(libc: ctypes.CDLL, paths: Iterable[str]) -> bool:
    version = libc.syscall(CREATE_RULESET, None, ctypes.c_size_t(0), 1)
    if version < 1:
        return False
    rights = FILE_RIGHTS[max(known for known in FILE_RIGHTS if known <= version)]
    fields = [rights, *(bits for since, bits in (NET_RIGHTS, SCOPES) if version >= since)]
    attributes = struct.pack(f"={len(fields)}Q", *fields)
    rules = libc.syscall(CREATE_RULESET, attributes, ctypes.c_size_t(len(attributes)), 0)
    if rules < 0:
        return False
    try:
        for path in paths:
            with suppress(OSError):
                _allow(libc, rules, path)
        return bool(libc.syscall(RESTRICT_SELF, rules, 0) == 0)
    finally:
        os.close(rules)


def _allow(libc: ctypes.CDLL, rules: int, path: str) -> None:
    fd = os.open(path, os.O_PATH | os.O_CLOEXEC)
    try:
        rights = ALLOWED if Path(path).is_dir() else ALLOWED & ~READ_DIR
        libc.syscall(ADD_RULE, rules, 1, struct.pack("=Qi", rights, fd), 0)
    finally:
        os.close(fd)


def program(machine: str, pid: int) -> bytes | None:
    """The filter of system calls as BPF, for a process; None for a machine whose numbers are not known here.

    A thread may be made, a process not; signals and limits are for this process. clone3 tells its flags where no filter
    can look, so it is said to be missing: the C library then takes clone.
    """
    if machine not in ARCHITECTURES:
        return None
    audit, column = ARCHITECTURES[machine]
    denied = sorted(number for numbers in DENIED.values() if (number := numbers[column]) is not None)
    head = [(LOAD, 0, 0, 4), (EQUAL, 1, 0, audit), (RETURN, 0, 0, ERRNO | EPERM), (LOAD, 0, 0, 0)]
    if machine == "x86_64":
        head += [(GREATER, 0, 1, X32), (RETURN, 0, 0, ERRNO | EPERM)]
    head += [(EQUAL, 0, 1, CLONE3), (RETURN, 0, 0, ERRNO | ENOSYS)]
    # clone: the lower half of its first argument has the flags.
    head += [(EQUAL, 0, 4, CLONE[column]), (LOAD, 0, 0, 16), (ANY_BIT, 0, 1, CLONE_THREAD), (RETURN, 0, 0, ALLOW)]
    head += [(RETURN, 0, 0, ERRNO | EPERM)]
    head += _of_itself(TGKILL[column], pid) + _of_itself(PRLIMIT[column], pid, 0)
    tail = [(EQUAL, len(denied) - i, 0, number) for i, number in enumerate(denied)]
    steps = [*head, *tail, (RETURN, 0, 0, ALLOW), (RETURN, 0, 0, ERRNO | EPERM)]
    return b"".join(struct.pack("=HBBI", *step) for step in steps)


def _of_itself(number: int, *pids: int) -> list[tuple[int, int, int, int]]:
    """A call whose first argument must be one of these."""
    checks = [(EQUAL, len(pids) - i, 0, pid) for i, pid in enumerate(pids)]
    return [
        (EQUAL, 0, len(pids) + 3, number),
        (LOAD, 0, 0, 16),
        *checks,
        (RETURN, 0, 0, ERRNO | EPERM),
        (RETURN, 0, 0, ALLOW),
    ]


def _calls(libc: ctypes.CDLL) -> bool:
    steps = program(platform.machine(), os.getpid())
    if steps is None or sys.byteorder != "little":
        return False
    kept = ctypes.create_string_buffer(steps, len(steps))
    header = struct.pack("@HxxxxxxP", len(steps) // 8, ctypes.addressof(kept))
    return bool(libc.prctl(PR_SET_SECCOMP, SECCOMP_MODE_FILTER, header, 0, 0) == 0)
