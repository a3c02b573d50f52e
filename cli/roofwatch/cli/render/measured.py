"""Why there are no roofs: devices of which nobody knows what they can do, and the command that measures them."""

from __future__ import annotations

import textwrap
from collections.abc import Mapping
from typing import Any

from roofwatch.cli.render import text
from roofwatch.model.unmeasured import WORTH_A_WORD

CALIBRATE = "roofwatch devices calibrate"


def lines(answer: Mapping[str, Any], room: int) -> list[str]:
    """One or two lines on the model that lacks most; nothing where it is little, or an earlier store tells nothing."""
    told = [one for one in answer.get("unmeasured") or () if (one["share"] or 0.0) >= WORTH_A_WORD]
    if not told:
        return []
    first, named = told[0], text.clean(told[0]["model"] or "a device that its trace does not name")
    share = text.percent(first["share"])
    if first["measured_share"]:
        said = f"No roofs for {share} of device time: {named} was not measured then, or not with as many threads"
        return textwrap.wrap(said, room, break_on_hyphens=False)
    said = f"No roofs for {share} of device time: what {named} can do was never measured"
    if not first["model"]:
        return textwrap.wrap(said.replace("was never measured", "nobody knows"), room, break_on_hyphens=False)
    command = CALIBRATE if first["vendor"] == "cpu" else f"{CALIBRATE} --device DEVICE"
    return [*textwrap.wrap(said, room, break_on_hyphens=False), f"→ run on its node, for the windows after: {command}"]
