"""Ingest over gRPC, end to end, against SQLite's own best: the same rows by multi-VALUES at the same durability.

Both in turns, best of three; what competes for the cores hits both. Then what the rows take on disk, and two queries.
It is what ``roofwatch store bench`` measures, with the project's limits beside it.
"""

from __future__ import annotations

import json
import tempfile
from pathlib import Path

from roofwatch.cli.fleet import bench


def show(name: str, value: float, unit: str, *, least: float | None = None, most: float | None = None) -> None:
    """One row of the table, with its limit where there is one."""
    limit = f"≥ {least:g} {unit}" if least is not None else f"≤ {most:g} {unit}" if most is not None else "–"
    ok = value >= least if least is not None else value <= most if most is not None else None
    print(json.dumps({"name": f"store: {name}", "value": value, "unit": unit, "limit": limit, "ok": ok}))


def main() -> None:
    """Measure and print."""
    with tempfile.TemporaryDirectory() as name:
        found = bench.run(bench.fleet_of(), Path(name))
    show("ingest over gRPC, acknowledged on disk", found.rows / found.ingest_s, "rows/s")
    show("the same rows by multi-VALUES alone", found.rows / found.raw_s, "rows/s")
    show("ingest over gRPC against multi-VALUES", found.share * 100, "%", least=28)
    show("processor time a row", found.cpu_s_per_row * 1e6, "µs")
    show("99th percentile of an acknowledgement", found.ack_p99_s, "s")
    show("bytes a row, everything included", found.row_bytes, "B", most=55)
    show("bytes a row of the fact alone", found.raw_row_bytes, "B")
    show(f"top 20 of one node of {bench.AGENTS}, {found.rows:,} rows in all", found.node_s * 1000, "ms")
    show("top 20 of all nodes", found.all_s * 1000, "ms")
    show("largest resident memory of the store", found.memory_bytes / 2**20, "MiB")


if __name__ == "__main__":
    main()
