"""``devices`` and ``doctor`` on this machine."""

from __future__ import annotations

import json
import os
import socket
import subprocess
import sys
from collections.abc import Callable
from dataclasses import fields
from importlib import metadata
from pathlib import Path

import pytest

from roofwatch.agent import counters, status
from roofwatch.agent.config import Config
from roofwatch.cli import calibrating, doctor, doctor_agent
from roofwatch.collectors import calibrate
from roofwatch.model import devices
from roofwatch.model.record import Device, Peak, Peaks, Vendor

Roofwatch = Callable[..., "subprocess.CompletedProcess[str]"]


def test_known_devices_have_their_datasheet_figures(roofwatch: Roofwatch) -> None:
    """The A100 SXM 80 GB: 312 TFLOP/s in bf16 and 2.039 TB/s, so a ridge of 153 in the table; the source is named."""
    done = roofwatch("devices", "list", "--format", "json")
    assert done.returncode == 0
    a100 = next(row for row in json.loads(done.stdout)["rows"] if row["model"] == "NVIDIA A100 SXM4 80 GB")
    assert a100["peaks"]["flops"]["bf16/matrix"] == {"value": 312e12, "source": "datasheet"}
    assert a100["peaks"]["bandwidth"] == {"value": 2.039e12, "source": "datasheet"}
    line = next(line for line in roofwatch("devices", "list").stdout.splitlines() if "A100 SXM4 80" in line)
    assert line.split()[-2:] == ["153", "datasheet"]
    assert "2.04 T" in line


@pytest.mark.timeout(240)
def test_a_calibration_is_kept_and_found(started: Roofwatch, roofwatch: Roofwatch, tmp_path: Path) -> None:
    """Measured with one thread: plausible figures, in the cache, in the list, and the doctor's line turns to ok.

    With --force, since this machine may be busy; the doctor then says that the figures may be too low.
    """
    done = started("devices", "calibrate", "--threads", "1", "--format", "json", "--force", timeout=110)
    assert done.returncode == 0, done.stderr
    row = json.loads(done.stdout)["rows"][0]
    assert (row["vendor"], row["units"]) == ("cpu", 1)
    assert 1e9 < row["peaks"]["flops"]["fp32/matrix"]["value"] < 1e13
    assert 5e8 < row["peaks"]["bandwidth"]["value"] < 1e12
    assert {peak["source"] for peak in row["peaks"]["flops"].values()} == {"measured"}
    assert (tmp_path / "cache" / "roofwatch" / "peaks.json").exists()
    first = json.loads(roofwatch("devices", "list", "--format", "json").stdout)["rows"][0]
    assert first["peaks"] == row["peaks"]
    lines = started("doctor", "--threads", "1").stdout.splitlines()
    told = "warn  calibration" if first["uncertain"] else "ok    calibration"
    assert [line[:17] for line in lines if line[6:].startswith("calibration")] == [told]


HIGH = Peaks({("fp32", "matrix"): Peak(9e15, "measured")}, Peak(9e15, "measured"))


def measured_as(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, peaks: Peaks, trouble: str | None) -> Path:
    """A cache of its own that knows high peaks for three threads, and a measurement that is known in advance."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    key = devices.calibration_key(calibrate.device_of(3))
    devices.save_peaks(devices.calibration_file(), key, HIGH)
    monkeypatch.setattr(calibrate, "measure_watched", lambda *_: calibrate.Measurement(peaks, trouble))
    return devices.calibration_file()


def kept(file: Path) -> Peaks | None:
    """What the file holds for three threads."""
    return devices.load_peaks([file], devices.calibration_key(calibrate.device_of(3)))


LOW = Peaks({("fp32", "matrix"): Peak(1e9, "measured")}, Peak(9.9e15, "measured"))


def test_a_lower_figure_does_not_replace_a_higher_one(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The product is far lower than before and stays, with a word; the copy is higher and comes; --force takes both."""
    file = measured_as(monkeypatch, tmp_path, LOW, None)
    found = calibrating.calibrated(3, "cpu", force=False)
    assert kept(file) == found.device.peaks == Peaks(HIGH.flops, LOW.bandwidth)
    assert found.sentences == ["fp32/matrix: lower than measured before, so the higher stays; --force replaces it."]
    assert calibrating.calibrated(3, "cpu", force=True).sentences == []
    assert kept(file) == LOW


def test_a_busy_machine_is_told_and_its_figures_are_not_kept(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """They are shown and the exit code is 1; --force keeps them, and says that they may be too low."""
    file = measured_as(monkeypatch, tmp_path, LOW, "others took 1.6 of the 2 cores")
    found = calibrating.calibrated(3, "cpu", force=False)
    assert (found.kept, found.device.peaks, kept(file)) == (False, LOW, HIGH)
    assert "too low (others took 1.6 of the 2 cores); they are not kept" in found.sentences[0]
    assert calibrating.calibrated(3, "cpu", force=True).kept
    assert kept(file) == LOW


def test_figures_of_a_busy_machine_stay_marked(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Kept by --force they stay uncertain, with the reason, and the doctor says so, until a calm measurement."""
    file = measured_as(monkeypatch, tmp_path, LOW, "other processes took 1.6 of the 2 cores")
    found = calibrating.calibrated(3, "cpu", force=True)
    assert found.uncertain == "other processes took 1.6 of the 2 cores"
    key = devices.calibration_key(calibrate.device_of(3))
    assert devices.load_uncertain(file, key) == found.uncertain
    check = doctor.calibration(doctor.Asked(sys.executable, "/nowhere/a.sock", "127.0.0.1:1", 3))
    assert (check.status, check.detail, check.advice) == (
        "warn",
        "may be too low with 3 threads: other processes took 1.6 of the 2 cores",
        "when nothing else runs: roofwatch devices calibrate --threads 3",
    )
    monkeypatch.setattr(calibrate, "measure_watched", lambda *_: calibrate.Measurement(HIGH, None))
    calibrating.calibrated(3, "cpu", force=False)
    assert devices.load_uncertain(file, key) is None
    assert doctor.calibration(doctor.Asked(sys.executable, "/nowhere/a.sock", "127.0.0.1:1", 3)).status == "ok"


def test_more_threads_that_reach_less_are_a_contradiction(
    roofwatch: Roofwatch, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """168 GFLOP/s with one thread and 145 with two cannot be: one sentence with the command, from list and doctor."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path / "cache"))
    monkeypatch.setattr(os, "cpu_count", lambda: 2)
    for threads, flops in ((1, 168e9), (2, 145e9)):
        key = devices.calibration_key(Device(Vendor.CPU, devices.cpu_model(), units=threads))
        peaks = Peaks({("fp32", "matrix"): Peak(flops, "measured")}, Peak(1e10, "measured"))
        devices.save_peaks(devices.calibration_file(), key, peaks)
    check = doctor.calibration(doctor.Asked(sys.executable, "/nowhere/a.sock", "127.0.0.1:1", 2))
    assert (check.status, check.advice) == ("warn", "when nothing else runs: roofwatch devices calibrate --threads 2")
    assert check.detail == "may be too low with 2 threads: 1 thread had more in fp32/matrix"
    assert doctor.calibration(doctor.Asked(sys.executable, "/nowhere/a.sock", "127.0.0.1:1", 1)).status == "ok"
    done = roofwatch("devices", "list")
    assert done.stderr == (
        "roofwatch: this CPU's figures marked ? may be too low (2 threads: 1 thread had more in fp32/matrix); "
        "when nothing else runs: roofwatch devices calibrate --threads 2.\n"
    )
    assert [line.endswith(" measured ?") for line in done.stdout.splitlines()[1:3]] == [False, True]
    rows = json.loads(roofwatch("devices", "list", "--format", "json").stdout)["rows"]
    assert [row["uncertain"] for row in rows[:2]] == [None, "1 thread had more in fp32/matrix"]


@pytest.mark.timeout(200)
def test_beside_a_busy_process_nothing_is_kept(started: Roofwatch, tmp_path: Path) -> None:
    """A spinning process on the one core that both may use: exit 1, one sentence that says why, no file."""
    allowed = os.sched_getaffinity(0)
    os.sched_setaffinity(0, {min(allowed)})  # of this thread, and of what it starts
    spin = "import os; os.nice(5)\nwhile True: pass"  # a quarter of the core: a tenth would be enough
    try:
        with subprocess.Popen([sys.executable, "-c", spin]) as spinning:
            try:
                done = started("devices", "calibrate", "--threads", "1", timeout=180)
            finally:
                spinning.kill()
    finally:
        os.sched_setaffinity(0, allowed)
    assert done.returncode == 1
    assert "of the 1 cores" in done.stderr
    assert "other processes took" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    assert done.stdout.startswith("device ")
    assert not (tmp_path / "cache" / "roofwatch" / "peaks.json").exists()


def test_an_unwritable_cache_is_told(roofwatch: Roofwatch) -> None:
    """One sentence with the path, exit 1, before anything is measured."""
    done = roofwatch("devices", "calibrate", "--threads", "1", env={"XDG_CACHE_HOME": "/proc/nowhere"})
    assert (done.returncode, done.stdout) == (1, "")
    assert "/proc/nowhere" in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_a_device_that_is_not_there(roofwatch: Roofwatch) -> None:
    """A name that is none: usage, exit 2, one sentence."""
    done = roofwatch("devices", "calibrate", "--device", "abacus")
    assert (done.returncode, done.stdout) == (2, "")
    assert "abacus" in done.stderr


def asked(python: str = sys.executable, socket_path: str = "/nowhere/a.sock") -> doctor.Asked:
    """What is checked, with nothing there."""
    return doctor.Asked(python, socket_path, "127.0.0.1:1", 1)


def test_the_jobs_python_is_asked_itself() -> None:
    """This one has torch 2.13, whose close is proved on a CPU's build; no Python, or none with torch, is told."""
    found = doctor.torch(asked())
    cpu = "2.13.0+cpu" in found.detail
    assert (found.status, found.check) == ("ok" if cpu else "warn", "torch")
    assert "2.13.0" in found.detail
    assert ("native" if cpu else "plain") in found.detail
    assert doctor.torch(asked("no-such-python")).status == "fail"
    assert doctor.torch(asked("true")).status == "fail"


def test_a_python_without_torch_is_a_warning(tmp_path: Path) -> None:
    """A bare interpreter (-I -S: nothing installed) says that torch is missing."""
    bare = tmp_path / "python"
    bare.write_text(f'#!/bin/sh\nexec {sys.executable} -I -S "$@"\n')
    bare.chmod(0o755)
    found = doctor.torch(asked(str(bare)))
    assert found.status == "warn"
    assert "No module named 'torch'" in found.detail


def test_the_sockets_folder(tmp_path: Path) -> None:
    """Private is ok; not there yet is a warning; writable for others is a failure that says how to mend it."""
    private = tmp_path / "private"
    private.mkdir(mode=0o700)
    assert doctor.socket_folder(asked(socket_path=str(private / "a.sock"))).status == "ok"
    assert doctor.socket_folder(asked(socket_path=str(tmp_path / "none" / "a.sock"))).status == "warn"
    private.chmod(0o777)
    found = doctor.socket_folder(asked(socket_path=str(private / "a.sock")))
    assert found.status == "fail"
    assert found.advice == f"chmod go-w {private}"


def test_nobody_is_there() -> None:
    """No agent, no store: a failure each, with the command that starts one."""
    assert doctor_agent.agent("/nowhere/a.sock")[::2] == ("fail", "start one: roofwatch agent")
    assert doctor_agent.store("127.0.0.1:1", "/nowhere/a.sock")[::2] == ("fail", "start one: roofwatch store serve")


def test_an_address_that_is_none_is_told() -> None:
    """Nothing to start: the address is wrong."""
    found = doctor_agent.store("1.2.3.4", "/nowhere/a.sock")
    assert found == ("fail", "'1.2.3.4' is not an address", "give HOST:PORT with --store or ROOFWATCH_STORE")


def test_every_way_to_lose_a_window_has_words() -> None:
    """One text a reason that the agent counts, none more, and the flags that the texts name are the agent's."""
    reasons = {value for name, value in vars(counters).items() if name.isupper() and isinstance(value, str)}
    assert set(doctor_agent.LOST) == reasons
    flags = {word for text in doctor_agent.LOST.values() for word in text.split() if word.startswith("--")}
    assert flags <= {"--" + field.name.replace("_", "-") for field in fields(Config)}


def test_what_the_agent_recorded_and_lost(monkeypatch: pytest.MonkeyPatch) -> None:
    """Those requested or sealed are not counted beside those recorded; a loss is told with its reason in words."""
    told = {
        "processes": 2, "uptime_s": 33.4, "drops": {"parse_memory": 3, "stopping": 0},
        "windows": {"requested": 12, "recorded": 8, "sealed": 8, "stored": 7},
    }  # fmt: skip
    monkeypatch.setattr(status, "request", lambda _: told)
    state, detail, advice = doctor_agent.agent("")
    assert state == "warn"
    assert detail == (
        "2 processes, windows: 8 recorded, 7 in the store, up 33 s; "
        "lost: 3 parse_memory (reading met --worker-memory-mb)"
    )
    assert "window_lost" in str(advice)


def test_a_job_left_alone_is_told(monkeypatch: pytest.MonkeyPatch) -> None:
    """Which takes no window for an hour; nothing else is wrong."""
    told = {
        "processes": 1, "uptime_s": 4000.0, "drops": {}, "windows": {"recorded": 8, "stored": 8},
        "version": metadata.version("roofwatch"), "reasons": {"residue": 1},
        "process_list": [{"pid": 4711, "budget": {"reason": "residue"}}],
    }  # fmt: skip
    monkeypatch.setattr(status, "request", lambda _: told)
    state, detail, _ = doctor_agent.agent("")
    assert state == "warn"
    assert detail == (
        "1 process, windows: 8 recorded, 8 in the store, up 4000 s; "
        "1 process (pid 4711) left alone for an hour: steps stayed slower after windows"
    )


def test_a_spool_says_shortly_why_the_store_is_away(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Of gRPC's words about a connection the last; 1 window, not 1 windows."""
    error = (
        "UNAVAILABLE: failed to connect to all addresses; last error: UNKNOWN: ipv4:127.0.0.1:17431: "
        "Failed to connect to remote host: connect: Connection refused (111)"
    )
    told = {
        "spool": {"path": str(tmp_path / "spool"), "windows": 1, "bytes": 20_000},
        "uplink": {"store": "127.0.0.1:17431", "connected": False, "last_error": error},
    }
    monkeypatch.setattr(status, "request", lambda _: told)
    monkeypatch.setattr(doctor_agent, "LOW_DISK_BYTES", 0)
    detail = f"1 window, 0.0 MB waits in {tmp_path}/spool; the agent does not reach 127.0.0.1:17431: "
    assert doctor_agent.spool("") == ("warn", f"{detail}Connection refused (111)", "look at the store below")


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ("127.0.0.1:7431", "127.0.0.1:7431", True),
        ("localhost:7431", "127.0.0.1:7431", True),
        ("[::1]:7431", "127.0.0.1:7431", True),
        ("127.0.0.1:17431", "127.0.0.1:17432", False),
        ("10.0.0.1:7431", "10.0.0.2:7431", False),
        ("nobody.invalid:7431", "10.0.0.2:7431", False),
    ],
)
def test_whether_two_addresses_are_one_store(one: str, other: str, same: bool) -> None:
    """The port counts, and the machine whatever it is called."""
    assert doctor_agent.same_store(one, other) is same


def test_the_calibration_of_what_a_job_takes_by_default(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """The job's Python is asked how many threads its torch takes."""
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv("OMP_NUM_THREADS", "2")
    doctor.probed.cache_clear()
    found = doctor.calibration(doctor.Asked(sys.executable, "/nowhere/a.sock", "127.0.0.1:1", None))
    doctor.probed.cache_clear()
    assert (found.status, found.detail) == ("warn", "none of this CPU with 2 threads, what a job takes by default here")
    assert found.advice == "before CPU jobs run: roofwatch devices calibrate --threads 2"


def test_an_agent_that_says_nothing_is_none(tmp_path: Path) -> None:
    """Somebody listens and hangs up: told as no agent, without waiting for ever."""
    path = tmp_path / "a.sock"
    with socket.socket(socket.AF_UNIX) as server:
        server.bind(str(path))
        server.listen()
        program = f"import socket; s = socket.socket(fileno={server.fileno()}); c, _ = s.accept(); c.close()"
        with subprocess.Popen([sys.executable, "-c", program], pass_fds=[server.fileno()]):
            assert doctor_agent.agent(str(path))[0] == "fail"


def test_the_doctors_json(started: Roofwatch) -> None:
    """Every check is there once, in order; without agent and store the exit code is 1."""
    done = started("doctor", "--format", "json", "--store", "127.0.0.1:1")
    assert done.returncode == 1
    rows = json.loads(done.stdout)["rows"]
    assert [row["check"] for row in rows] == [
        "python", "torch", "hook", "socket", "container", "agent", "spool", "store", "trust", "clock", "skew",
        "settings", "profilers", "nvidia", "ascend", "sandbox", "limits", "calibration",
    ]  # fmt: skip
    assert all(row["advice"] for row in rows if row["status"] != "ok")
