"""Input that is made to hurt: it ends, and stays small."""

from __future__ import annotations

import gzip
import json
import subprocess
import sys
import time

import pytest

from roofwatch.collectors.base import Limits


def test_size_limit(read_bytes, trace) -> None:
    """Beyond the limit on bytes nothing is read, and that is told and counted."""
    for index in range(3000):
        trace.kernel("k", 10 * index, 1, index)

    profile = read_bytes(gzip.compress(trace.text()), Limits(max_bytes=300_000))
    assert 0 < sum(g.calls for g in profile.groups) < 3000
    assert profile.dropped["over_size_limit"] == 1
    assert "first 300000 bytes" in (profile.problem or "")


def test_a_thread_and_a_device_for_each_record(read_bytes, trace) -> None:
    """20,000 kernels on as many devices, launched from as many threads: all there, in seconds."""
    for index in range(20_000):
        trace.op("aten::mm", 10 * index, 5, tid=index).call("cudaLaunchKernel", 10 * index + 1, 1, index, tid=index)
        trace.kernel("k", 10 * index + 3, 1, index, device=index)
    start = time.process_time()

    profile = read_bytes(json.dumps(trace.document()).encode())

    assert time.process_time() - start < 10
    assert sum(g.calls for g in profile.groups if g.linked) == 20_000
    assert len(profile.devices) <= 257
    for device in profile.devices:
        assert device.span_ns - device.busy_ns == sum(c.total_ns for c in device.causes)


HOSTILE = {
    "bomb of blanks": "gzip_of(b' ' * (1 << 20), 400)",
    "bomb of a list": "gzip_of(b'[' + b'1,' * (1 << 19), 200)",
    "endless string": 'gzip_of(b\'{"traceEvents": [{"ph": "X", "name": "\' + b\'a\' * (1 << 20), 200)',
    "endless key before the events": "gzip_of(b'{\"' + b'a' * (1 << 20), 200)",
    "numbers before the events": "gzip_of(b'{\"a\": [' + b'1,' * (1 << 19), 60)",
    "keys before the events": "gzip_of(b'{' + b'\"a\":1,' * (1 << 18), 40)",
    "empty objects": "gzip_of(b'{\"traceEvents\": [' + b'{},' * (1 << 18), 40)",
    "tiny events": 'gzip_of(b\'{"traceEvents": [\' + b\'{"ph":"X"},\' * (1 << 16), 40)',
    "braces": "gzip_of(b'{\"traceEvents\": [' + b'}, {' * (1 << 18), 10)",
    "quotes": "gzip_of(b'{\"traceEvents\": [{\"' + b'\"\\\\' * (1 << 18), 10)",
    "deep": "gzip_of(b'{\"traceEvents\": [' + b'{\"a\":[' * (1 << 17), 20)",
}
MAKE_AND_READ = """
import io, sys, zlib
from roofwatch.collectors.base import Limits
from roofwatch.collectors.registry import read
from roofwatch.model.errors import RoofwatchError

def gzip_of(text, times):
    z = zlib.compressobj(1, wbits=31)
    return b"".join([z.compress(text), *(z.compress(text[8:]) for _ in range(times)), z.flush()])

data = io.BytesIO(eval(sys.argv[1]))
try:
    read(data, Limits())
except RoofwatchError as error:
    print(error)
# Not ru_maxrss: that begins with the peak of the process that started this one.
print(next(int(line.split()[1]) >> 10 for line in open("/proc/self/status") if line.startswith("VmHWM")))
"""


@pytest.mark.parametrize("name", HOSTILE)
def test_hostile_input_stays_small_and_ends(name: str) -> None:
    """Hundreds of megabytes made to hurt: a sentence within 40 s of CPU and 500 MB (usually a tenth of both)."""
    done = subprocess.run(
        [sys.executable, "-c", MAKE_AND_READ, HOSTILE[name]], capture_output=True, text=True, timeout=60, check=False
    )

    assert done.returncode == 0, done.stderr[-500:]
    sentence, peak = done.stdout.splitlines()
    assert sentence.startswith("the trace ")
    assert int(peak) < 500
