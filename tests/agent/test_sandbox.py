"""What a parse worker can no longer do, tried by a real process on this kernel."""

from __future__ import annotations

import json
import os
import struct
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.agent import sandbox
from roofwatch.model import devices
from roofwatch.model.record import Peak, Peaks

PROGRAM = Path(__file__).parent / "programs" / "confined.py"
STILL = {"make a thread", "talk", "import", "read its memory", "tell the time", "limit itself"}
FILES = {"read a secret", "list a folder", "write a file", "change a file", "delete a file", "make a folder"}


@pytest.fixture(scope="module")
def confined(tmp_path_factory) -> dict:
    """What it could take, and what became of each try."""
    folder = tmp_path_factory.mktemp("folder")
    secret = folder / "key"
    secret.write_text("a key")
    done = subprocess.run(
        [sys.executable, PROGRAM, secret, folder], capture_output=True, text=True, timeout=60, check=True, cwd="/"
    )
    assert secret.read_text() == "a key"
    return json.loads(done.stdout)


def test_what_reading_needs_still_works(confined):
    """Threads, its socket, imports that come late, its own memory."""
    assert {name for name in STILL if confined["told"][name] != "done"} == set()


def test_files_are_out_of_reach(confined):
    """None can be read, listed, written or removed, but those of the interpreter."""
    if "landlock" not in confined["taken"]:
        pytest.skip("this kernel has no Landlock")
    assert {name for name in FILES if confined["told"][name] != "PermissionError"} == set()


def test_system_calls_are_refused(confined):
    """No network, no program, no process, no look into others."""
    if "seccomp" not in confined["taken"]:
        pytest.skip("no filter of system calls for this kernel or machine")
    tries = set(confined["told"]) - STILL - FILES
    assert len(tries) == 11
    assert {name: confined["told"][name] for name in tries} == dict.fromkeys(tries, "PermissionError")


def outcome(steps: bytes, arch: int, number: int, first: int = 0) -> int:
    """The filter run by a small machine of our own, as filter.h has it; ``first``: the first argument."""
    data = struct.pack("=iIQ6Q", number, arch, 0, first, 0, 0, 0, 0, 0)
    at, value = 0, 0
    while True:
        code, true, false, operand = struct.unpack_from("=HBBI", steps, at * 8)
        at += 1
        if code == sandbox.RETURN:
            return operand
        if code == sandbox.LOAD:
            (value,) = struct.unpack_from("=I", data, operand)
            continue
        met = {
            sandbox.EQUAL: value == operand, sandbox.GREATER: value >= operand, sandbox.ANY_BIT: bool(value & operand)
        }[code]  # fmt: skip
        at += true if met else false


@pytest.mark.parametrize(("machine", "column"), [("x86_64", 0), ("aarch64", 1)])
def test_the_filter_of_each_machine(machine, column):
    """Every denied call, calls of another machine, processes but not threads; everything else passes."""
    steps, arch = sandbox.program(machine, 4711), sandbox.ARCHITECTURES[machine][0]
    refused = sandbox.ERRNO | sandbox.EPERM
    denied = {numbers[column] for numbers in sandbox.DENIED.values()} - {None}
    clone, tgkill, prlimit = (of[column] for of in (sandbox.CLONE, sandbox.TGKILL, sandbox.PRLIMIT))
    for number in range(600):
        expected = refused if number in denied else sandbox.ALLOW
        if number in {clone, tgkill}:
            expected = refused
        if number == sandbox.CLONE3:
            expected = sandbox.ERRNO | sandbox.ENOSYS
        assert outcome(steps, arch, number) == expected, number
    assert outcome(steps, arch, clone, sandbox.CLONE_THREAD | 0x11) == sandbox.ALLOW
    for number in (tgkill, prlimit):  # of itself, and of others
        assert outcome(steps, arch, number, 4711) == sandbox.ALLOW
        assert outcome(steps, arch, number, 4712) == outcome(steps, arch, number, 1) == refused
    assert outcome(steps, arch, prlimit, 0) == sandbox.ALLOW
    assert outcome(steps, arch ^ 1, 0) == refused
    if machine == "x86_64":
        assert outcome(steps, arch, sandbox.X32 | 41) == refused


def test_an_unknown_machine_has_no_filter():
    """Better none than one with the wrong numbers."""
    assert sandbox.program("riscv64", 1) is None


def test_neither_root_nor_a_home_may_be_read():
    """The folders named are the interpreter's and the system's libraries."""
    assert not {"/", "/root", "/home", "/etc", str(Path.home())} & set(sandbox.readable())
    assert any(Path(path).is_relative_to(sys.base_prefix) for path in sandbox.readable())


MEASURED = """
import sys
from roofwatch.agent import sandbox
from roofwatch.model import devices
from roofwatch.model.record import Peak, Peaks
from roofwatch.model import devices
sandbox.confine()
print("confined", flush=True)
sys.stdin.readline()
print(devices.load_peaks([devices.calibration_file()], "cpu/x/1"))
"""


def test_peaks_that_were_measured_are_read(tmp_path):
    """Also those of a calibration that ended after the worker began: the file is then another one."""
    key, file = "cpu/x/1", tmp_path / "roofwatch" / "peaks.json"
    devices.save_peaks(file, key, Peaks({("fp32", "vector"): Peak(1e9, "measured")}, None))
    command = [sys.executable, "-c", MEASURED]
    env = {**os.environ, "XDG_CACHE_HOME": str(tmp_path)}
    with subprocess.Popen(command, env=env, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as child:
        assert child.stdout is not None
        assert child.stdout.readline() == "confined\n"
        newer = Peaks({("fp32", "vector"): Peak(2e9, "measured")}, None)
        devices.save_peaks(file, key, newer)
        told, _ = child.communicate("\n", timeout=30)
    assert told.strip() == repr(newer)
