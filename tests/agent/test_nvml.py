"""How NVIDIA devices ran during a window, asked of a driver's library that a test compiles."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from roofwatch.agent.nvml import throttle_of
from roofwatch.agent.readings import together
from roofwatch.model.record import DeviceState
from roofwatch.proto import codec

SOURCE = Path(__file__).parent / "programs" / "nvml_stand_in.c"
DEVICE = {"vendor": "nvidia", "model": "NVIDIA H100 80GB HBM3", "uuid": "aaaa", "index": 0}


@pytest.fixture(scope="module")
def driver(tmp_path_factory) -> str:
    """The folder of a library that the bindings take for the driver's."""
    if shutil.which("cc") is None:
        pytest.skip("no C compiler to make the stand-in of the driver's library with")
    folder = tmp_path_factory.mktemp("driver")
    subprocess.run(["cc", "-shared", "-fPIC", "-o", folder / "libnvidia-ml.so.1", SOURCE], check=True)
    return str(folder)


def window_of(agent, peer, wait):
    """The device of the one window that a registered process gives, once the agent has stopped."""
    peer.answer(peer.receive())
    wait(lambda: agent.status()["windows"].get("sealed"), "the window is sealed")
    agent.stop()
    (window,) = (w for segment in agent.segments() for w in codec.windows(segment))
    return window.devices[0]


def test_a_window_tells_how_its_device_ran(agents, job, wait, driver):
    """Read when the window is asked for and when it arrives: means, and both reasons; what is not told is unknown."""
    agent = agents("--interval", "0.5", env={"LD_LIBRARY_PATH": driver})
    peer = job(agent.socket, devices=[DEVICE])
    found = window_of(agent, peer, wait)
    assert found.device.uuid == "aaaa"
    assert found.state == DeviceState(1.5e9, 1.98e9, 300.0, None, 61.0, "power_cap,thermal", 13, 1)


@pytest.mark.parametrize("uuid", ["bbbb", None], ids=["another device", "a process that does not tell"])
def test_a_device_the_driver_does_not_know_stays_unknown(agents, job, wait, driver, uuid):
    """No state is better than another device's."""
    agent = agents("--interval", "0.5", env={"LD_LIBRARY_PATH": driver})
    peer = job(agent.socket, devices=[{**DEVICE, "uuid": uuid}])
    assert window_of(agent, peer, wait).state is None


def test_a_machine_without_the_library_is_normal(agents, job, wait):
    """One line in the log, and windows as ever."""
    agent = agents("--interval", "0.5")
    peer = job(agent.socket, devices=[DEVICE])
    assert window_of(agent, peer, wait).state is None
    assert agent.log.read_text().count("event=no_nvml") == 1


def test_a_driver_that_hangs_holds_nobody_up(agents, job, wait, driver):
    """Windows come and go, and the agent stops in time."""
    agent = agents("--interval", "0.5", env={"LD_LIBRARY_PATH": driver, "NVML_STAND_IN_HANGS": "1"})
    peer = job(agent.socket, devices=[DEVICE])
    assert window_of(agent, peer, wait).state is None
    assert agent.process.poll() == 0


def test_reasons_have_names():
    """Bits of nvml.h; idle is none, and two sorts of heat are one."""
    assert throttle_of(0) == ""
    assert throttle_of(0x1) == ""
    assert throttle_of(0x4 | 0x20 | 0x40 | 0x80) == "power_cap,thermal,power_brake"


def test_what_was_read_once_counts_alone():
    """A mean is of what was read; nothing read is unknown, not 0 and not "nothing held it down"."""
    found = together([{"a": DeviceState(clock_hz=1e9)}, {"a": DeviceState(power_w=300.0), "b": DeviceState()}])
    assert found == {"a": DeviceState(clock_hz=1e9, power_w=300.0), "b": DeviceState()}
