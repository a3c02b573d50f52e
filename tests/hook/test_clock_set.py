"""A clock that is set in a window: the window is refused, and nothing of it shows in the job's output."""

from __future__ import annotations

import re
import time
from pathlib import Path

import pytest
from hook_jobs import TRAIN, UNTIL_STDIN_CLOSES, Ended, Jobs
from little_agent import LittleAgent
from stepped_clock import Clock, faketime

from roofwatch.hook import clock, protocol


@pytest.mark.parametrize(
    ("moved_ns", "length_ns", "told"),
    [(0, 0, False), (500_000, 0, False), (2_000_000, 0, True), (-2_000_000, 0, True),
     (5_000_000, 10**10, False), (-5_000_000, 10**10, False), (30_000_000, 10**10, True)],
)  # fmt: skip
def test_a_clock_that_is_adjusted_was_not_set(moved_ns: int, length_ns: int, told: bool) -> None:
    """At most 500 µs a second are an adjustment's, which in 10 s is 5 ms; what is more is a clock that was set."""
    assert clock.was_set(clock.offset_ns() - moved_ns, length_ns) is told


CLOCK_BACK_S = 100


@pytest.mark.parametrize("path", ["native", "plain"])
def test_a_clock_that_is_set_in_a_window(jobs: Jobs, agent: LittleAgent, tmp_path: Path, path: str) -> None:
    """Its times are wrong, so it is refused; torch, for which ops then end before they begin, does not say so."""
    library = faketime()
    if not library:
        pytest.skip("libfaketime is neither installed nor to be had")
    faked = Clock(tmp_path / "clock", library)
    faked.set(0)
    code = TRAIN + UNTIL_STDIN_CLOSES + "import time\nwhile not over.is_set():\n    step()\n    time.sleep(0.01)\n"
    job = jobs.start(code, agent.path, run=True, ROOFWATCH_HOOK_CLOSE=path, **faked.env())
    connection = agent.accept().stepping()
    answers = [connection.take(steps=5)[0]["type"]]
    connection.ask(steps=50, max_ms=10_000)
    time.sleep(0.3)
    faked.set(-CLOCK_BACK_S)
    refused = connection.receive(20)[0]
    answers.append(connection.take(steps=5)[0]["type"])
    assert jobs.end(job) == Ended(0, "", "")
    assert (refused["type"], refused["reason"], refused["opened"]) == (protocol.REFUSED, protocol.CLOCK_SET, True)
    assert answers == [protocol.WINDOW] * 2


WARNS = """
import ctypes, gc, os, torch, weakref
from _roofwatch_hook.muted import Muted
core = ctypes.CDLL(os.path.join(os.path.dirname(torch.__file__), "lib", "libc10.so"))
name = "RKNS_14SourceLocationENSt7__cxx1112basic_stringIcSt11char_traitsIcESaIcEEEb"
make = core["_ZN3c107WarningC1ESt7variantIJNS0_11UserWarningENS0_18DeprecationWarningEEE" + name]
make.restype, make.argtypes = None, [ctypes.c_void_p, ctypes.c_int, ctypes.c_void_p, ctypes.c_void_p, ctypes.c_bool]
tell = core["_ZN3c104warnERKNS_7WarningE"]
tell.argtypes = [ctypes.c_void_p]
class Location(ctypes.Structure):
    _fields_ = [("function", ctypes.c_char_p), ("file", ctypes.c_char_p), ("line", ctypes.c_uint32)]
class String(ctypes.Structure):
    _fields_ = [("text", ctypes.c_char_p), ("size", ctypes.c_size_t), ("own", ctypes.c_char * 16)]
def warn(text):
    warning, where = ctypes.create_string_buffer(512), Location(b"f", b"f.cpp", 1)
    string = String(text, len(text), b"")
    make(ctypes.addressof(warning), 0, ctypes.addressof(where), ctypes.addressof(string), True)
    tell(ctypes.addressof(warning))
warn(b"before")
with Muted():
    warn(b"inside")
    thread = __import__("threading").Thread(target=warn, args=(b"another",))
    thread.start()
    thread.join()
    # As if another thread had made its own at the same time: torch has the address of ours until the end.
    from _roofwatch_hook import muted
    ours, muted._warnings = weakref.ref(muted._warnings[0]), None
    gc.collect()
    assert ours() is not None
warn(b"after")
"""


def test_only_our_own_calls_of_torch_are_muted(jobs: Jobs) -> None:
    """A warning of torch's C++ is heard before, after, and from another thread meanwhile, but not from ours."""
    ended = jobs.end(jobs.start(WARNS, None, run=True))
    assert ended.code == 0, ended.err
    assert re.findall("before|inside|another|after", ended.err) == ["before", "another", "after"]
