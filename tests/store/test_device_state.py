"""How a device ran during a window: kept as it came, unknown where nothing was read, refused where it cannot be."""

from __future__ import annotations

from dataclasses import replace

import pytest
from store_builders import GEMM, segment_of, stat, window_of

from roofwatch.model.record import DeviceState, Window
from roofwatch.proto.codec import WireError
from roofwatch.store.unpack import Unpacker

STATE = DeviceState(1.5e9, 1.98e9, 300.0, 700.0, 61.0, "power_cap,thermal", 13, 1)


def window(name: str, state: DeviceState | None) -> Window:
    """One with this state of its device."""
    made = window_of(name, [stat(GEMM, [1000])])
    return replace(made, devices=tuple(replace(device, state=state) for device in made.devices))


def test_every_figure_is_kept(db, keep) -> None:
    """In the order of the columns; an older agent's window and one without a reading tell nothing."""
    keep([window("a", STATE), window("b", None), window("c", replace(STATE, ecc_corrected=None, ecc_uncorrected=0))])
    names = "clock_hz, clock_max_hz, power_w, power_limit_w, temperature_c, throttle, ecc_corrected, ecc_uncorrected"
    with db.read() as connection:
        rows = connection.exec_driver_sql(f"SELECT {names} FROM window_devices").fetchall()  # noqa: S608 - names of ours
    told = (1.5e9, 1.98e9, 300.0, 700.0, 61.0, "power_cap,thermal")
    assert sorted(map(tuple, rows), key=str) == sorted([(*told, 13, 1), (None,) * 8, (*told, None, 0)], key=str)


@pytest.mark.parametrize("wrong", [{"ecc_corrected": -1}, {"ecc_uncorrected": 1 << 62}, {"power_w": -1.0}])
def test_what_cannot_be_is_refused(wrong) -> None:
    """With the reason."""
    with pytest.raises(WireError, match="device's"):
        Unpacker().unpack(segment_of([window("a", replace(STATE, **wrong))], 1))
