"""How Ascend devices run: clock, power, temperature and errors of memory, by the driver's ``npu-smi``.

A machine without that program is normal: then nothing is read, and nothing is said but one line.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from roofwatch.agent.log import Log
from roofwatch.agent.readings import Read
from roofwatch.model.record import DeviceState

WITHIN_S = 5.0  # it usually takes a tenth of a second for each question
MAP_AGAIN_S = 60.0  # a device that is not in the map may be new
PLACES = ("/usr/local/bin/npu-smi", "/usr/local/sbin/npu-smi")
KEPT = ("PATH", "LD_LIBRARY_PATH")  # of the agent's environment
MOST = 1e15  # of any figure: what is more, infinite or no number is none that a record could hold
_LINE = re.compile(r"^\s*([^:]*\S)\s*:\s*(\S.*?)\s*$")
Chip = tuple[int, int]  # NPU ID, Chip ID


def mapped(text: str) -> dict[str, Chip]:
    """``npu-smi info -m``: the number in ``/dev/davinciN`` → the two ids that questions are asked with.

    That number is the chip's physical id, and where no such column is shown its logical one.
    """
    columns: list[str] = []
    found: dict[str, Chip] = {}
    for line in text.splitlines():
        if "NPU ID" in line:
            columns = re.split(r"\s{2,}", line.strip())
            continue
        words = line.split()
        if not columns or len(words) < len(columns):
            continue
        row = dict(zip(columns, words, strict=False))
        number = row.get("Chip Phy-ID") or row.get("Chip Logic ID") or "-"
        if number.isdecimal() and row.get("NPU ID", "").isdecimal() and row.get("Chip ID", "").isdecimal():
            found[number] = (int(row["NPU ID"]), int(row["Chip ID"]))
    return found


def values(text: str) -> dict[str, float]:
    """The figures of one chip: ``Key(Unit) : value`` a line, the first of a key, since the board's own come after."""
    told: dict[str, str] = {}
    for line in text.splitlines():
        if matched := _LINE.match(line):
            told.setdefault(matched[1], matched[2])
    found: dict[str, float] = {}
    for key, value in told.items():
        with suppress(ValueError):  # NA, OK, a name
            if abs(number := float(value)) < MOST:
                found[key] = number
    return found


def state_of(common: Mapping[str, float], ecc: Mapping[str, float]) -> DeviceState:
    """What ``-t common`` and ``-t ecc`` tell. Errors are of all memory that is told, since the device was started."""
    rated, now = common.get("Aicore Freq(MHZ)"), common.get("Aicore curFreq(MHZ)")
    return DeviceState(
        clock_hz=None if now is None else now * 1e6,
        clock_max_hz=None if rated is None else rated * 1e6,
        power_w=common.get("NPU Real-time Power(W)"),
        temperature_c=common.get("Temperature(C)"),
        ecc_corrected=_errors(ecc, "Single"),
        ecc_uncorrected=_errors(ecc, "Double"),
    )


def _errors(ecc: Mapping[str, float], bits: str) -> int | None:
    told = [ecc[name] for memory in ("HBM", "DDR") if (name := f"{memory} {bits} Bit Error Count") in ecc]
    return int(sum(told)) if told else None


class NpuSmi:
    """Asks the program, a device at a time."""

    def __init__(self, program: str, log: Log) -> None:
        self._program, self._log = program, log
        self._env = {name: os.environ[name] for name in KEPT if name in os.environ} | {"LC_ALL": "C"}
        self._chips: dict[str, Chip] = {}
        self._mapped_s = -MAP_AGAIN_S

    def read(self, number: str) -> DeviceState | None:
        """A device by its number."""
        now = time.monotonic()
        if number not in self._chips and now >= self._mapped_s + MAP_AGAIN_S:
            self._mapped_s = now
            self._chips = mapped(self._ask("-m"))
        if number not in self._chips:
            return None
        npu, chip = self._chips[number]
        where = ("-i", str(npu), "-c", str(chip))
        common = values(self._ask("-t", "common", *where))
        return state_of(common, values(self._ask("-t", "ecc", *where))) if common else None

    def _ask(self, *words: str) -> str:
        try:
            done = subprocess.run(  # noqa: S603 - the driver's program
                (self._program, "info", *words), capture_output=True, text=True, errors="replace", timeout=WITHIN_S,
                check=False, env=self._env, stdin=subprocess.DEVNULL,
            )  # fmt: skip
        except (OSError, subprocess.TimeoutExpired) as error:
            self._log.info("npu_smi_failed", asked=" ".join(words), detail=error)
            return ""
        if done.returncode:
            told = (done.stdout or done.stderr).strip().partition("\n")[0]
            self._log.info("npu_smi_failed", asked=" ".join(words), code=done.returncode, detail=told)
            return ""
        return done.stdout


def begin(log: Log) -> Read | None:
    """What reads a device by its number; None on a machine without the program."""
    program = shutil.which("npu-smi") or next((place for place in PLACES if os.access(place, os.X_OK)), None)
    if program is None:
        log.info("no_npu_smi")
        return None
    return NpuSmi(program, log).read
