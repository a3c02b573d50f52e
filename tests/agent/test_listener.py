"""One agent a socket, nothing stale in the way, one sentence when it cannot be."""

from __future__ import annotations

import os
import socket
import stat
import subprocess
import sys

import pytest

from roofwatch.agent import identity
from roofwatch.agent.listener import ListenError, listen


def test_folder_and_socket_are_private_and_gone_afterwards(short):
    """0700 and 0600 whatever the umask; after close neither socket nor lock is left."""
    before = os.umask(0)
    try:
        listener = listen(str(short / "run" / "a.sock"), system=False)
    finally:
        os.umask(before)

    assert stat.S_IMODE((short / "run").stat().st_mode) == 0o700
    assert stat.S_IMODE((short / "run" / "a.sock").stat().st_mode) == 0o600
    listener.close()
    assert list((short / "run").iterdir()) == []


def test_a_second_listener_is_told_and_the_first_stays(short):
    """In this process or another: one sentence; the first still accepts."""
    path = str(short / "a.sock")
    first = listen(path, system=False)

    with pytest.raises(ListenError, match=f"another agent already listens on {path}; stop it, or"):
        listen(path, system=False)

    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(path)
        first.sock.accept()[0].close()
    first.close()


def test_a_socket_of_a_dead_agent_is_replaced(short):
    """The file of a process that was killed has nobody behind it."""
    path = short / "a.sock"
    with socket.socket(socket.AF_UNIX) as dead:
        dead.bind(str(path))
    assert path.exists()

    listener = listen(str(path), system=False)
    with socket.socket(socket.AF_UNIX) as peer:
        peer.connect(str(path))
    listener.close()


def test_a_live_socket_of_another_program_is_left_alone(short):
    """Somebody listens there without our lock: told, and the file stays."""
    path = short / "a.sock"
    with socket.socket(socket.AF_UNIX) as other:
        other.bind(str(path))
        other.listen(1)
        with pytest.raises(ListenError, match="another program already listens"):
            listen(str(path), system=False)
        assert path.exists()
    path.unlink()


def test_a_file_that_is_no_socket_is_left_alone(short):
    """A user's file is not removed."""
    path = short / "a.sock"
    path.write_text("mine")

    with pytest.raises(ListenError, match=r"exists and is not a socket; remove it, or choose another with --socket"):
        listen(str(path), system=False)

    assert path.read_text() == "mine"


@pytest.mark.parametrize("where", ["file/a.sock", "x" * 200, "y" * 90 + "/a.sock"])
def test_a_path_that_cannot_be_is_one_sentence(short, where):
    """Below a file, too long a name, too long a path for a socket."""
    (short / "file").write_text("")

    with pytest.raises(ListenError, match="choose another") as error:
        listen(str(short / where), system=False)

    assert "\n" not in str(error.value)


def test_a_folder_that_others_may_change_is_refused(short):
    """Whoever may write there could take the socket's place; a sticky folder such as /tmp is fine."""
    folder = short / "open"
    folder.mkdir()
    folder.chmod(0o777)
    with pytest.raises(ListenError, match="can be changed by other users"):
        listen(str(folder / "a.sock"), system=False)

    folder.chmod(0o1777)
    listen(str(folder / "a.sock"), system=False).close()


@pytest.mark.skipif(os.getuid() != 0, reason="root is needed to act as a user without rights")
def test_an_unwritable_folder_is_one_sentence(short):
    """As a user who may not write there; in a child, because user rights cannot be given back."""
    (short / "no").mkdir(mode=0o755)
    short.chmod(0o755)
    child = os.fork()
    if child == 0:
        code = 3
        try:
            os.setuid(65534)
            listen(str(short / "no" / "a.sock"), system=False)
        except ListenError as error:
            code = 0 if str(error).endswith("Permission denied; choose another socket with --socket") else 1
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_start_time_is_read_behind_any_name(tmp_path):
    """A process may be called ') 1 (': fields count from the last parenthesis. 1,000 s + 250 ticks are 1,002.5 s."""
    (tmp_path / "77").mkdir()
    (tmp_path / "77" / "stat").write_text("77 () 1 () S " + " ".join(["0"] * 18) + " 250 0 0")

    assert os.sysconf("SC_CLK_TCK") == 100
    assert identity.start_unix_ns(77, 1000, tmp_path) == 1_002_500_000_000
    assert identity.start_unix_ns(78, 1000, tmp_path) is None
    assert identity.start_unix_ns(77, None, tmp_path) is None


def test_the_start_time_of_a_real_child():
    """Between the moments before and after it was started, to a tick and the boot time's second."""
    import time  # noqa: PLC0415 - beside its use

    before = time.time()
    with subprocess.Popen([sys.executable, "-c", "input()"], stdin=subprocess.PIPE) as child:
        start = identity.start_unix_ns(child.pid, identity.boot_time_s())
        child.stdin.close()

    assert before - 1.1 < start / 1e9 < time.time() + 1.1
