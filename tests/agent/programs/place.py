"""A job as a container or a batch system starts it: joins control groups, says hello with words of its own, waits.

Arguments: socket, JSON of the hello, folders of control groups. Writes "ready" once it is welcome; ends with its stdin.
"""

import json
import os
import socket
import sys
from pathlib import Path

from roofwatch.hook import protocol

path, hello, *groups = sys.argv[1:]
for group in groups:
    (Path(group) / "cgroup.procs").write_text(str(os.getpid()))
sock = socket.socket(socket.AF_UNIX)
sock.settimeout(10)
sock.connect(path)
channel = protocol.job_side(sock)
channel.send({"type": "hello", "protocol": 1, "hook": "test", "pid": os.getpid(), **json.loads(hello)})
while not any(message["type"] == "welcome" for message, _ in channel.receive()):
    pass
print("ready", os.getpid(), flush=True)
sys.stdin.read()
