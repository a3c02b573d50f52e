"""A window of the store as a folder for MindStudio Insight."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from roofwatch.cli.asking import ask
from roofwatch.cli.insight_files import Exported, of_window
from roofwatch.model import insight
from roofwatch.model.errors import RoofwatchError
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Collective, Phase, Signature, Vendor
from roofwatch.store.filter import Filter

NOTE = (
    "the lengths of calls are real, their beginnings are not: a store keeps sums, so each kernel's calls are laid end "
    "to end"
)


def of_stored(uid: str, out: Path, *, store: str | None, db: str | None) -> Exported:
    """Writes the window whose uid begins so.

    Raises:
        UsageError: there is none, or there are several.
        RoofwatchError: it is of no Ascend device, its kernels are no longer kept, or it cannot be written.
    """
    answer = ask("window", Filter(), 0, store=store, db=db, options={"uid": uid})
    window, devices = answer["window"], answer["devices"]
    if not any(device["vendor"] == Vendor.ASCEND for device in devices):
        model = devices[0]["model"] if devices else "no device"
        raise RoofwatchError(f"window {uid} is of {model}: MindStudio Insight is for Ascend devices.")
    if not answer["rows"]:
        raise RoofwatchError(f"window {uid} has no kernels: none ran, or the store keeps them no longer.")
    places = {device["model"]: place for place, device in reversed(list(enumerate(devices)))}
    calls = insight.calls_of(
        window["start_unix_ns"] or 0,
        [_summed(row, places) for row in answer["rows"]],
        [Collective(**one) for one in answer["collectives"]],
        [device["index"] for device in devices],
    )
    done = of_window(f"window_{window['uid'][:12]}", calls, window["rank"], out)
    whole = sum(row["calls"] for row in answer["rows"])
    left = f", and only {insight.MAX_CALLS} of {whole} calls" if whole > insight.MAX_CALLS else ""
    return Exported(done.folder, done.files, (f"{NOTE}{left}",))


def _summed(row: Mapping[str, Any], places: Mapping[str, int]) -> insight.Summed:
    signature = Signature(
        row["kernel"], Kind(row["kind"]), row["op"], Phase(row["phase"]), row["module"], row["shapes"], row["dtypes"],
        row["arguments"], row["flops"], row["bytes"], row["formula"], row["precision"], row["unit"], row["flops_max"],
    )  # fmt: skip
    return insight.Summed(
        signature, places.get(row["device"], 0), row["calls"], row["total_ns"], row["min_ns"], row["max_ns"]
    )
