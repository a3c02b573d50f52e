"""A job that closes every descriptor keeps its numbers to itself: the hook neither writes, reads nor closes there."""

from __future__ import annotations

import contextlib

from hook_jobs import TRAIN, Jobs
from little_agent import LittleAgent

from roofwatch.hook import protocol

# Closes all it does not know, opens sockets and files of its own on the numbers that became free, and looks at them
# after a window was asked for on the old connection and the hook has had time to connect again.
CLOSES = (
    TRAIN
    + """
import os, socket, tempfile, time
def hooks():
    found = []
    for fd in os.listdir("/proc/self/fd"):
        try:
            if os.readlink("/proc/self/fd/" + fd).startswith("socket:"):
                found.append(int(fd))
        except OSError:
            pass
    return found
while not hooks():
    step()
end = time.monotonic() + 1
while time.monotonic() < end:
    step()
print(min(hooks()) >= 512, flush=True)
os.closerange(3, 1024)
pairs = [socket.socketpair() for _ in range(260)]
ends = [end for pair in pairs for end in pair]
before = [(end.fileno(), os.fstat(end.fileno()).st_ino) for end in ends]
input()  # the test has asked for a window
end = time.monotonic() + 7
while time.monotonic() < end:
    step()
for end in ends:
    end.setblocking(False)
heard = 0
for end in ends:
    try:
        heard += len(end.recv(4096)) or 1
    except BlockingIOError:
        pass
after = [(end.fileno(), os.fstat(end.fileno()).st_ino) for end in ends]
print(heard, before == after, flush=True)
"""
)


def test_a_job_that_closes_all_descriptors(jobs: Jobs, agent: LittleAgent) -> None:
    """520 sockets on the freed numbers, the hook's among them: nothing arrives, nothing is closed, windows go on."""
    job = jobs.start(CLOSES, agent.path, run=True)
    first = agent.accept()
    assert first.take()[0]["type"] == protocol.WINDOW
    assert job.stdout is not None
    assert job.stdin is not None
    assert job.stdout.readline() == "True\n"
    with contextlib.suppress(OSError):  # the job has closed the connection: that is how the agent sees it
        first.ask()
    job.stdin.write("\n")
    job.stdin.flush()
    again = agent.accept()
    assert again.take()[0]["type"] == protocol.WINDOW
    assert job.stdout.readline() == "0 True\n"
    assert jobs.end(job) == (0, "", "")
