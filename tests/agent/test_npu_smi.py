"""How Ascend devices ran during a window, asked of a stand-in for ``npu-smi`` that prints what the manual shows."""

from __future__ import annotations

import queue
import sys
import time
from pathlib import Path

import pytest

from roofwatch.agent import npu_smi, readings
from roofwatch.agent.log import Log
from roofwatch.hook import npu_devices
from roofwatch.model.record import Device, DeviceState, Vendor
from roofwatch.proto import codec

STAND_IN = Path(__file__).parent / "programs" / "npu_smi_stand_in.py"
NPU = {"vendor": "ascend", "model": "Ascend910B3", "index": 0}


def tool(folder: Path) -> Path:
    """A folder with an ``npu-smi``."""
    folder.mkdir()
    program = folder / "npu-smi"
    program.write_text(f"#!{sys.executable} -IS\n{STAND_IN.read_text()}")
    program.chmod(0o755)
    return folder


def test_a_window_tells_how_its_device_ran(agents, job, wait, tmp_path):
    """Chip 1 of board 2 is /dev/davinci5: means, without the board's own figures, and the last count of errors."""
    agent = agents("--interval", "0.5", env={"PATH": str(tool(tmp_path / "bin"))})
    peer = job(agent.socket, devices=[{**NPU, "physical": 5}])
    request = peer.receive()
    asked = tmp_path / "bin" / "npu-smi.asked"
    wait(lambda: asked.exists() and len(asked.read_text().splitlines()) == 3, "it is asked when the window is")
    time.sleep(0.4)  # a window takes as long at least
    peer.answer(request)
    wait(lambda: len(asked.read_text().splitlines()) >= 5, "and when it arrived")
    wait(lambda: agent.status()["windows"].get("sealed"), "the window is sealed")
    agent.stop()
    assert asked.read_text().splitlines()[:3] == ["info -m", "info -t common -i 2 -c 1", "info -t ecc -i 2 -c 1"]
    windows = [w for segment in agent.segments() for w in codec.windows(segment)]
    state = windows[0].devices[0].state
    both = DeviceState(1.3e9, 1.8e9, 195.7, None, 52.0, None, 51, 2)
    first = DeviceState(0.8e9, 1.8e9, 195.7, None, None, None, 31, 2)
    assert state in {both, first}  # the second reading may take longer than it takes to read the window


@pytest.mark.parametrize("physical", [7, None], ids=["another device", "a process that does not tell"])
def test_a_device_that_is_not_known_stays_unknown(agents, job, wait, tmp_path, physical):
    """No state is better than another device's."""
    agent = agents("--interval", "0.5", env={"PATH": str(tool(tmp_path / "bin"))})
    peer = job(agent.socket, devices=[{**NPU, "physical": physical}])
    peer.answer(peer.receive())
    wait(lambda: agent.status()["windows"].get("sealed"), "the window is sealed")
    agent.stop()
    (window,) = (w for segment in agent.segments() for w in codec.windows(segment))
    assert window.devices[0].state is None


def test_a_machine_without_the_program_is_normal(tmp_path, monkeypatch, capsys):
    """One line in the log; where it may not be asked, one with its words."""
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setattr(npu_smi, "PLACES", ())
    assert npu_smi.begin(Log(sys.stderr)) is None
    assert "event=no_npu_smi" in capsys.readouterr().err
    folder = tool(tmp_path / "denied")
    monkeypatch.setenv("PATH", str(folder))
    read = npu_smi.begin(Log(sys.stderr))
    assert read is not None
    assert read("4") is None
    told = capsys.readouterr().err
    assert 'event=npu_smi_failed asked=-m code=1 detail="This user has no permission to access the device."' in told


def test_one_that_hangs_is_given_up(tmp_path, monkeypatch):
    """After a while; the agent's own thread waits for nobody."""
    monkeypatch.setattr(npu_smi, "WITHIN_S", 0.3)
    folder = tool(tmp_path / "hangs")
    monkeypatch.setenv("PATH", str(folder))
    assert npu_smi.NpuSmi(str(folder / "npu-smi"), Log()).read("4") is None


OLDER = """
\tNPU ID                         Chip ID                        Chip Logic ID                  Chip Name
\t0                              0                              0                              Ascend 910B3
\t0                              1                              -                              Mcu
\t1                              0                              1                              Ascend 910B3
"""
SLOTS = """
 Slot ID   NPU ID   Chip ID   Chip Phy-ID   Chip Name
 1         6        0         6             Ascend950
"""


def test_every_form_of_the_map():
    """By the physical number where it is told, else by the logical one; the board's controller has neither."""
    assert npu_smi.mapped(OLDER) == {"0": (0, 0), "1": (1, 0)}
    assert npu_smi.mapped(SLOTS) == {"6": (6, 0)}
    assert npu_smi.mapped("NPU ID  Chip ID\nx y\n") == {}
    assert npu_smi.mapped("npu-smi: command failed") == {}


def test_what_is_not_told_is_unknown():
    """Of older chips, of damaged answers, of none."""
    assert npu_smi.state_of({}, {}) == DeviceState()
    assert npu_smi.values("Temperature(C) : 40\nTemperature(C) : 48\nHealth : OK\nx\n: 1\n") == {"Temperature(C)": 40.0}
    odd = "".join(f"{name} Single Bit Error Count : {value}\n" for name, value in (("HBM", "inf"), ("DDR", "nan")))
    assert npu_smi.values(odd + "Temperature(C) : 1e300\nNPU Real-time Power(W) : -1\n") == {
        "NPU Real-time Power(W)": -1.0
    }
    assert npu_smi.state_of({}, {"DDR Double Bit Error Count": 3.0}) == DeviceState(ecc_uncorrected=3)


def test_a_device_that_is_told_often_is_read_once():
    """A job may say anything of its devices; each question costs the node a process."""
    asked, told = [], queue.SimpleQueue()
    reader = readings.Readings("tool", lambda _: lambda name: asked.append(name) or DeviceState(power_w=1.0), Log())
    reader.ask(["0"] * 64 + ["1"], told.put)
    assert told.get(timeout=10) == {"0": DeviceState(power_w=1.0), "1": DeviceState(power_w=1.0)}
    reader.stop()
    assert asked == ["0", "1"]


def test_a_profiles_own_word_stands():
    """The clock of an Ascend profile is of the window itself; power and errors come from the tool."""
    own, read = DeviceState(clock_hz=1.65e9), DeviceState(1.8e9, 1.8e9, 200.0, ecc_corrected=4)
    assert readings.filled(own, read) == DeviceState(1.65e9, 1.8e9, 200.0, ecc_corrected=4)
    assert readings.filled(None, read) == read
    assert readings.name_of(Device(Vendor.CPU, "x", uuid="u")) is None


def test_a_process_tells_the_number_that_the_tool_knows(tmp_path):
    """Of a container with two of eight devices, of a process that chose some, of one that chose what is not there."""
    for name in ("davinci4", "davinci10", "davinci_manager", "null"):
        (tmp_path / name).touch()
    folder = str(tmp_path)
    assert [npu_devices.physical(i, {}, folder) for i in (0, 1, 2)] == [4, 10, None]
    chosen = {"ASCEND_RT_VISIBLE_DEVICES": "1, 0"}
    assert [npu_devices.physical(i, chosen, folder) for i in (0, 1, 2)] == [10, 4, None]
    assert npu_devices.physical(0, {"ASCEND_RT_VISIBLE_DEVICES": "all"}, folder) is None
    assert npu_devices.physical(0, {}, str(tmp_path / "nowhere")) is None
