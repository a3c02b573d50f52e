"""Why a rank is late, in sentences with figures."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from roofwatch.cli.render import text
from roofwatch.cli.render.bars import words
from roofwatch.cli.render.diagnosis import wrapped
from roofwatch.model import ranks_why as why

Row = Mapping[str, Any]


def told(late: Row, unit: str, room: int) -> list[str]:
    """The explanation, and the kernels that are slower, a line or two each."""
    share = "" if late["explained_share"] is None else f" ({text.percent(late['explained_share'])} of what is slower)"
    by = _AGAINST.get(late["explanation"], _several)(late, unit, share)
    return [
        *wrapped(f"Why: {by}.", room),
        *(line for kernel in late["kernels"] for line in _kernel(kernel, unit, room)),
    ]


def clock(hz: float | None) -> str:
    """As "1.98 GHz"."""
    return text.rate(hz, "Hz")


def _longer(late: Row, what: str, unit: str) -> str:
    return f"{text.duration(late['excess'][f'{what}_ns'])} a {unit} longer"


def _compute(late: Row, unit: str, share: str) -> str:
    return f"Its compute takes {_longer(late, 'compute', unit)} than its peers'{share}"


def _chip(late: Row, unit: str, share: str) -> str:
    chip, said = late["chip"], []
    if chip["other_device"]:
        said.append("it is another device than its peers'")
    if chip["clock_hz"] and chip["peers_clock_hz"]:
        said.append(f"its clock ran at {clock(chip['clock_hz'])}, its peers' at {clock(chip['peers_clock_hz'])}")
    if chip["throttle"]:
        often = text.percent(chip["throttled_share"])
        said.append(f"held down by {text.clean(chip['throttle'])} in {often} of its windows")
    if chip["common_explains"]:
        factor, of = chip["common_factor"], text.plural(chip["common_kernels"], "kernel")
        said.append(f"of {of}, three quarters of the time are {text.percent(factor - 1)} slower or more")
    said += [] if chip["clock_hz"] else ["its clock was not read"]
    return f"the chip. {_compute(late, unit, share)}: {'; '.join(said)}"


def _kernels(late: Row, unit: str, share: str) -> str:
    return f"kernels. {_compute(late, unit, share)}, and not all kernels alike"


def _input(late: Row, unit: str, share: str) -> str:
    return f"input. It waits {_longer(late, 'input', unit)} for its data loader than its peers{share}"


def _copies(late: Row, unit: str, share: str) -> str:
    return f"copies. They hold it up {_longer(late, 'copies', unit)} than its peers{share}"


def _host(late: Row, unit: str, share: str) -> str:
    beside = {why.INPUT, "copy"}
    causes = sorted((-ns, cause) for cause, ns in late["idle_excess"].items() if ns > 0 and cause not in beside)
    idle = ", ".join(f"{words(cause)} +{text.duration(-ns)}" for ns, cause in causes)
    return f"its host. The device idles {_longer(late, 'host', unit)} than its peers'{share}: {idle}"


def _network(late: Row, unit: str, share: str) -> str:
    return f"the network. Moving bytes takes it {_longer(late, 'network', unit)} than its peers{share}"


def _several(late: Row, unit: str, _share: str) -> str:
    slower = sorted((-ns, key.removesuffix("_ns")) for key, ns in late["excess"].items() if ns and ns > 0)
    parts = ", ".join(f"{name} +{text.duration(-ns)}" for ns, name in slower)
    return f"nothing is half of what is slower: {parts} a {unit}" if parts else "not known"


_AGAINST = {
    why.CHIP: _chip,
    why.KERNELS: _kernels,
    why.INPUT: _input,
    why.COPIES: _copies,
    why.HOST: _host,
    why.NETWORK: _network,
}


def _kernel(kernel: Row, unit: str, room: int) -> list[str]:
    calls = f"{text.plain(kernel['calls'])} calls a {unit}"
    if not kernel["peers_calls"]:
        beside = f"{calls}, its peers make none"
    else:
        mean, usual = text.duration(kernel["mean_ns"]), text.duration(kernel["peers_mean_ns"])
        beside = f"{mean} a call, its peers {usual}; {calls}, its peers {text.plain(kernel['peers_calls'])}"
    name, shapes = text.cut_middle(text.kernel(kernel["kernel"]), 40), text.shapes(kernel["shapes"])
    what = name if shapes == text.UNKNOWN else f"{name} {shapes}"
    first, *rest = wrapped(f"{what}: +{text.duration(kernel['excess_ns'])} a {unit}: {beside}", room - 4)
    return [f"  - {first}", *(f"    {line}" for line in rest)]
