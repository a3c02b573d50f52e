"""The committed protobuf code is what the .proto says."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

from roofwatch.proto.v1 import roofwatch_pb2 as pb

ROOT = Path(__file__).resolve().parents[2]


def check(folder: Path) -> subprocess.CompletedProcess[str]:
    """Run the check of a copy of ``proto/``."""
    return subprocess.run(
        [sys.executable, str(folder / "generate.py"), "--check"], capture_output=True, text=True, check=False
    )


def test_generated_code_is_current() -> None:
    """``proto/generate.py --check`` finds nothing."""
    done = check(ROOT / "proto")
    assert (done.returncode, done.stderr) == (0, "")


def test_stale_code_is_noticed(tmp_path: Path) -> None:
    """A field added to the .proto and not generated: exit 1, and the files that are stale are named."""
    copy = tmp_path / "proto"
    shutil.copytree(ROOT / "proto", copy, ignore=shutil.ignore_patterns("__pycache__"))
    source = copy / "roofwatch/proto/v1/roofwatch.proto"
    source.write_text(source.read_text().replace("message Padding {", "message Padding {\n  sint64 extra = 99;"))
    done = check(copy)
    assert done.returncode == 1
    assert "roofwatch_pb2.py" in done.stderr
    assert "make proto" in done.stderr


def test_bytes_on_the_wire_are_the_released_ones() -> None:
    """Field numbers are for ever: an acknowledgement written by hand after the protobuf encoding.

    Ack{id{agent "a", boot "b", sequence 300}, status REJECTED, reason "no"}: field 1 (tag 0a) of 9 bytes holding
    0a 01 61, 12 01 62, 18 ac 02; field 2 (tag 10) = 3; field 3 (tag 1a) of 2 bytes.
    """
    ack = pb.Ack(id=pb.SegmentId(agent="a", boot="b", sequence=300), status=pb.REJECTED, reason="no")
    assert ack.SerializeToString().hex() == "0a090a016112016218ac0210031a026e6f"
