"""``roofwatch devices``: known devices and their peaks; measure this machine's."""

from __future__ import annotations

from typing import Any

import click

from roofwatch.cli import options
from roofwatch.cli.guessing import Guessing

GROUP_EPILOG = """\b
Examples:
  roofwatch devices list
  roofwatch devices calibrate
"""
LIST_EPILOG = """\b
Examples:
  roofwatch devices list
  roofwatch devices list --format json
\b
ridge  FLOP per byte from which compute is the limit, for bf16 on the matrix
       unit (where there is none: fp16, else fp32)
"""
CALIBRATE_EPILOG = """\b
Examples:
  roofwatch devices calibrate
  roofwatch devices calibrate --threads 1 --threads 4
  roofwatch devices calibrate --device cuda:0
\b
Takes some seconds of all the threads it is given, so never beside a job: it
would slow the job down and measure too little. Figures of a busy machine are
not kept, and a lower figure does not replace a higher one; --force does both.
Needs torch in this Python.
"""
KEYS = ("vendor", "model", "uuid", "index", "units", "memory_bytes", "inferred", "peaks", "uncertain")


@click.group("devices", cls=Guessing, epilog=GROUP_EPILOG)
def command() -> None:
    """Known devices and their peaks; measure this machine's."""


def _answer(query: dict[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    from roofwatch.model.answer import SCHEMA_VERSION  # noqa: PLC0415

    return {"schema_version": SCHEMA_VERSION, "query": query, "rows": rows}


@command.command("list", epilog=LIST_EPILOG)
@options.output
def list_(form: str) -> int:
    """Show the devices whose peaks are known, and where each figure is from.

    Datasheet figures, and what was measured on this machine.
    """
    from roofwatch.cli import errors, showing  # noqa: PLC0415  # --help must not pay for it
    from roofwatch.cli.calibrating import doubted, measured_cpus, repeat  # noqa: PLC0415
    from roofwatch.cli.render import listing  # noqa: PLC0415
    from roofwatch.cli.render.text import plural  # noqa: PLC0415
    from roofwatch.model import devices  # noqa: PLC0415
    from roofwatch.model.answer import device_json  # noqa: PLC0415
    from roofwatch.model.record import Device  # noqa: PLC0415

    known = [
        Device(
            e.vendor, e.model, units=e.units, memory_bytes=None if e.memory is None else round(e.memory), peaks=e.peaks
        )
        for e in devices.entries()
    ]
    doubts = [(cpu, doubted(cpu.units or 0)) for cpu in measured_cpus()]
    rows = [{**device_json(device), "uncertain": doubt} for device, doubt in [*doubts, *((one, None) for one in known)]]
    code = showing.show(
        _answer({"name": "devices list"}, rows), form, KEYS, listing.devices, empty="no device is known."
    )
    if again := [cpu.units for cpu, doubt in doubts if doubt and cpu.units]:
        told = "; ".join(f"{plural(cpu.units, 'thread')}: {doubt}" for cpu, doubt in doubts if doubt and cpu.units)
        errors.say(f"this CPU's figures marked ? may be too low ({told}); when nothing else runs: {repeat(again)}.")
    return code


@command.command("calibrate", epilog=CALIBRATE_EPILOG)
@click.option(
    "--threads",
    type=click.IntRange(1),
    multiple=True,
    metavar="N",
    help="Threads of the CPU jobs to judge; may be repeated.  [default: torch's]",
)
@click.option("--device", default="cpu", show_default=True, metavar="NAME", help="cpu, cuda or cuda:N.")
@click.option("--force", is_flag=True, help="Keep what is measured, whatever there was and however busy it is.")
@options.output
def calibrate(threads: tuple[int, ...], device: str, force: bool, form: str) -> int:
    """Measure a device of this machine and keep its peaks for later windows.

    A matrix product, arithmetic in cache, and a large copy, in two rounds; measured figures win over a datasheet's.
    """
    from roofwatch.cli import errors, showing  # noqa: PLC0415
    from roofwatch.cli.calibrating import calibrated  # noqa: PLC0415
    from roofwatch.cli.render import listing  # noqa: PLC0415
    from roofwatch.model.answer import device_json  # noqa: PLC0415

    results = [calibrated(each, device, force=force) for each in threads or (None,)]
    query = {"name": "devices calibrate", "device": device, "threads": list(threads) or None, "force": force}
    showing.show(
        _answer(query, [{**device_json(r.device), "uncertain": r.uncertain} for r in results]),
        form,
        KEYS,
        listing.devices,
        empty="no device is known.",
    )
    for sentence in (sentence for result in results for sentence in result.sentences):
        errors.say(sentence)
    return errors.DONE if all(result.kept for result in results) else errors.FAILED
