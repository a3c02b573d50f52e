"""What ``doctor`` finds out about a machine, on folders that look like one, and on this one."""

from __future__ import annotations

import resource
import subprocess
import sys
from pathlib import Path

import pytest

from roofwatch.cli import doctor_node
from roofwatch.cli.fleet.local import local_store

SECOND = 1_000_000_000


def test_another_profiler_is_named(tmp_path: Path) -> None:
    """By the variable that attaches it, and by the process that runs; each with what it does."""
    proc = tmp_path / "proc"
    for pid, name in ((7, "bash"), (8, "dynolog"), (9, "nsys")):
        (proc / str(pid)).mkdir(parents=True)
        (proc / str(pid) / "comm").write_text(f"{name}\n")
    (proc / "self").mkdir()
    assert doctor_node.profilers({}, tmp_path / "proc" / "self") == ("ok", "no other profiler here", None)
    status, detail, advice = doctor_node.profilers({"CUDA_INJECTION64_PATH": "/opt/x.so"}, proc)
    assert status == "warn"
    assert detail.startswith("CUDA_INJECTION64_PATH is set: CUPTI is taken")
    assert detail.endswith("dynolog runs; nsys runs")
    assert "own_profiler" in str(advice)


def test_the_sandbox_is_tried(monkeypatch: pytest.MonkeyPatch) -> None:
    """On this kernel it is what the worker takes; where the program says less, what is missing is told."""
    taken = subprocess.run(
        [sys.executable, "-c", doctor_node._CONFINE], capture_output=True, text=True, check=True
    ).stdout.strip()
    status, detail, _ = doctor_node.sandbox()
    assert (status == "ok") == (taken == "landlock,seccomp")
    assert all(word in detail for word in taken.split(",") if word)
    monkeypatch.setattr(doctor_node, "_CONFINE", "print('seccomp')")
    status, detail, advice = doctor_node.sandbox()
    assert (status, detail) == ("warn", "traces are read without landlock, under limits only")
    assert "Linux 5.13" in str(advice)


def test_few_descriptors_are_told() -> None:
    """In a process that may have a hundred."""
    program = (
        "import resource; resource.setrlimit(resource.RLIMIT_NOFILE, (100, 100))\n"
        "from roofwatch.cli import doctor_node; print(doctor_node.limits())"
    )
    told = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True).stdout
    assert "('warn', '100 open files at most', 'allow 4096" in told
    hard = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
    assert doctor_node.limits()[0] == ("ok" if hard == resource.RLIM_INFINITY or hard >= 4096 else "warn")


def test_a_container_wants_the_agents_socket(tmp_path: Path) -> None:
    """Told by the file or the variable that a runtime leaves; with the socket there it is well."""
    socket, nothing = tmp_path / "agent.sock", tmp_path / "root"
    nothing.mkdir()
    assert doctor_node.container(str(socket), {}, nothing)[:2] == ("ok", "not in a container")
    kubernetes = {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}
    assert doctor_node.container(str(socket), kubernetes, nothing)[0] == "warn"
    socket.touch()
    (nothing / ".dockerenv").touch()
    assert doctor_node.container(str(socket), {}, nothing) == ("ok", f"in a container, with {socket} mounted", None)


def test_drivers_that_are_not_there_are_normal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """No driver: well. A driver without what tells of it: a warning, with what to mount."""
    monkeypatch.setenv("PATH", str(tmp_path))
    assert doctor_node.ascend(tmp_path) == ("ok", "no Ascend driver here", None)
    (tmp_path / "davinci0").touch()
    (tmp_path / "davinci_manager").touch()
    assert doctor_node.ascend(tmp_path)[:2] == ("warn", "1 devices, and no npu-smi")
    program = tmp_path / "npu-smi"
    program.write_text("#!/bin/sh\necho 'This user has no permission.'\nexit 1\n")
    program.chmod(0o755)
    assert doctor_node.ascend(tmp_path)[:2] == ("warn", f"{program}: This user has no permission.")
    program.write_text("#!/bin/sh\necho '  NPU ID   Chip ID   Chip Logic ID   Chip Name'\n")
    assert doctor_node.ascend(tmp_path) == ("ok", f"1 devices, {program}", None)
    if doctor_node.nvidia()[1] == "no NVIDIA driver here":
        (tmp_path / "driver" / "nvidia").mkdir(parents=True)
        status, detail, advice = doctor_node.nvidia(tmp_path)
        assert (status, detail.startswith("NVML: "), "utility" in str(advice)) == ("warn", True, True)


def test_settings_that_cannot_be_read_are_told(tmp_path: Path) -> None:
    """A file with a mistake, a variable that is none, and neither."""
    file = tmp_path / "c.toml"
    file.write_text("[store]\nlisten = '1.2.3.4:1'\ntls-cert = 'x.pem'\n")
    file.chmod(0o644)
    environ = {"ROOFWATCH_CONFIG": str(file)}
    status, detail, _ = doctor_node.settings(environ)
    assert (status, detail) == ("fail", "--tls-cert and --tls-key belong together: give both, or none")
    file.write_text("[agent]\nsteps = 3\n")
    assert doctor_node.settings(environ) == ("ok", f"from {file}", None)
    status, detail, _ = doctor_node.settings({**environ, "ROOFWATCH_AGENT_STEP": "3"})
    assert (status, "did you mean 'ROOFWATCH_AGENT_STEPS'?" in detail) == ("warn", True)


@pytest.mark.parametrize(
    ("off_s", "there_ns", "inside_ns", "back_ns"), [(3, 0, 0, 0), (-3, 10**6, 5 * 10**6, 10**6), (0, 0, 10**9, 0)]
)
def test_two_clocks_are_laid_side_by_side(off_s: int, there_ns: int, inside_ns: int, back_ns: int) -> None:
    """A way that takes as long there as back tells the difference exactly; the store's own time does not count."""
    received = 1000 * SECOND + there_ns + off_s * SECOND
    took = there_ns + inside_ns + back_ns
    found = doctor_node.between(1000 * SECOND, took, received, received + inside_ns)
    assert found is not None
    assert found == pytest.approx(((there_ns + back_ns) / 1e9, off_s), abs=1e-9)


def test_an_uneven_way_errs_by_half_of_it() -> None:
    """All of 0.2 s on the way there: half of it, which is what is told as open. An older store tells nothing."""
    found = doctor_node.between(0, SECOND // 5, SECOND // 5, SECOND // 5)
    assert found == pytest.approx((0.2, 0.1))
    assert doctor_node.between(0, 1, 0, 0) is None


def test_this_machines_clock_is_its_own(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Against a real store here: well, within what the way leaves open. What is far off is a failure."""
    with local_store(tmp_path) as store:
        status, detail, advice = doctor_node.skew(store.address)
        assert (status, advice) == ("ok", None)
        assert "± 0." in detail
    for off, expected in ((0.5, "warn"), (-90.0, "fail")):
        monkeypatch.setattr(doctor_node, "_asked", lambda _, off=off: (0.01, off))
        status, detail, advice = doctor_node.skew("x:1")
        assert (status, "NTP" in str(advice)) == (expected, True)
        assert ("ahead" in detail) == (off > 0)
    monkeypatch.setattr(doctor_node, "_asked", lambda _: None)
    assert doctor_node.skew("x:1")[0] == "ok"


def test_an_agent_of_another_version_is_told() -> None:
    """The same is nothing to tell."""
    assert doctor_node.version({"version": "1.2.3"}, "1.2.3") is None
    assert "it is of version 1.1.0, this is 1.2.3" in str(doctor_node.version({"version": "1.1.0"}, "1.2.3"))
