"""Device graphs: a line for each, with how much of its time could be tied to ops and how sure that is."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.cli.render import text

MOST = 3  # lines; a model cut into pieces has dozens of graphs
Row = Mapping[str, Any]


def lines(graphs: Sequence[Row], device_time_ns: int, room: int) -> list[str]:
    """A line a graph, most device time first; of many the first few, and one line for the rest."""
    if not graphs or not device_time_ns:
        return []
    shown = graphs[:MOST] if len(graphs) > MOST + 1 else graphs
    result = [text.cut(text.clean(_line(graph, device_time_ns)), room) for graph in shown]
    rest = graphs[len(shown) :]
    if rest:
        total = sum(graph["total_ns"] for graph in rest)
        tied = sum(graph["attributed_ns"] for graph in rest)
        share = f"{text.percent_fine(total / device_time_ns)} of device time"
        result.append(text.cut(f"… and {len(rest)} more graphs: {share}, {_tied(tied, total)}", room))
    return result


def _line(graph: Row, device_time_ns: int) -> str:
    share = f"{text.percent_fine(graph['total_ns'] / device_time_ns)} of device time"
    often = f"{text.count(graph['launches'])} launch{'' if graph['launches'] == 1 else 'es'}"
    said = _tied(graph["attributed_ns"], graph["total_ns"])
    if graph["source"] is not None:
        said += f" ({graph['source']}, fit {text.percent_fine(graph['confidence'])})"
    return f"{graph['graph']}: {share}, {often}, {said}"


def _tied(tied_ns: int, total_ns: int) -> str:
    return f"{text.percent_fine(tied_ns / total_ns)} attributed" if tied_ns and total_ns else "unattributed"
