"""Nothing sensitive is collected: what a job has in its environment and arguments is in nothing that is left behind."""

from __future__ import annotations

import gzip
import sqlite3
import sys
from collections.abc import Iterator
from pathlib import Path

import in_process
from whole_path import TRAINING, wait_for

from roofwatch.agent import status
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb

# Before it trains, as jobs of the whole path do: a job that has secrets, and sets one more.
HAS_SECRETS = """
import os, sys
os.environ["LATE_SECRET"] = sys.argv[3]
key = os.environ["AWS_SECRET_ACCESS_KEY"]  # a job's own variable
"""
JOB = HAS_SECRETS + TRAINING
SECRETS = {
    "AWS_SECRET_ACCESS_KEY": "wJalrXUtnFEMI-in-a-variable",
    "HF_TOKEN": "hf_in-another-variable",
    "DATABASE_URL": "postgresql://u:pw-in-a-url@db/x",
    "MASTER_SECRET": "like-MASTER_ADDR-and-not-it",
    "ROOFWATCH_TOKEN_FILE": "/of-the-user/not-for-the-job",
}
ARGUMENTS = ("--password=typed-as-an-argument", "typed-and-set-later")
NEEDLES = [*SECRETS.values(), *ARGUMENTS, *SECRETS, "LATE_SECRET", "secret-folder"]


def contents(folder: Path) -> Iterator[tuple[str, bytes]]:
    """Every file as it lies there; what is compressed also as it was."""
    for path in sorted(folder.rglob("*")):
        if path.is_file():
            data = path.read_bytes()
            yield str(path), data
            if data[:2] == b"\x1f\x8b":
                yield f"{path} (inflated)", gzip.decompress(data)
    for spool in folder.rglob("spool.db"):
        with sqlite3.connect(spool) as database:
            for (envelope,) in database.execute("SELECT envelope FROM segment"):
                segment = codec.unseal(pb.SegmentEnvelope.FromString(envelope))
                yield f"{spool} (segment)", segment.SerializeToString()


def found(folder: Path) -> list[tuple[str, str]]:
    """Where what should be nowhere is."""
    return [(name, needle) for name, data in contents(folder) for needle in NEEDLES if needle.encode() in data]


def test_a_jobs_secrets_are_nowhere(node, monkeypatch) -> None:
    """A real job, its windows in the spool, then in the store, one trace kept: all files and logs are searched."""
    (node.folder / "secret-folder").mkdir()
    monkeypatch.chdir(node.folder / "secret-folder")
    agent = node.agent(interval=0.5)  # no store yet: windows lie in the spool
    run = (*node.program, "run", "--model", "a-model", "--", sys.executable, "-c", JOB, "110", *ARGUMENTS)
    job = node.start(*run, env=SECRETS)
    assert job.stdout.readline() == "ready\n"

    def spooled() -> bool:
        """Whether windows lie in the spool that tell of the job's ops."""
        return sum("(segment)" in name and b"aten::" in data for name, data in contents(node.folder)) >= 1

    wait_for(spooled, "windows lie in the spool")
    assert found(node.folder) == []
    agent.terminate()
    agent.wait(15)
    node.store()
    node.agent(interval=60)  # the job finds it by itself
    node.wait_for_windows(1)
    wait_for(lambda: status.request(str(node.socket))["processes"], "the job registers")
    taken = in_process.call("capture", "--model", "a-model", "--keep-trace", "--store", node.address, env=node.env)
    assert taken.returncode == 0, taken.stdout + taken.stderr
    assert node.windows()[0]["model"] == "a-model"  # what is collected is there
    searched = dict(contents(node.folder))
    assert {Path(name).name.partition(" ")[0] for name in searched} >= {"spool.db", "store.db", "store.db-wal", "0.err"}
    assert any("store.db" in name and b"a-model" in data for name, data in searched.items())
    assert any("(inflated)" in name and b"aten::" in data for name, data in searched.items()), "the kept trace"
    assert found(node.folder) == []
