"""Kernels of a window as one block; sums of hours and days; what windows sum up to over their devices."""

from itertools import groupby
from typing import Any

import numpy as np
import sqlalchemy as sa
from alembic import op

from roofwatch.store.blocks import pack
from roofwatch.store.histograms import Histograms
from roofwatch.store.identity import devices_id

revision = "0007"
down_revision = "0006"
branch_labels = None
depends_on = None

KEY = sa.BigInteger().with_variant(sa.Integer(), "sqlite")
PIECE = ("grain", "bucket_unix_ns", "process_id")
HOUR_NS, DAY_NS = 3600 * 10**9, 86_400 * 10**9
ADDED = (
    "windows", "device_records", "device_time_ns", "backlog_ns", "classifiable_ns", "classified_ns", "named_ns",
    "model_known_ns", "model_flops_high", "model_flops_low", "compared_ns", "disagreed_ns", "layout_of_ns",
    "host_device_time_ns", "linked_ns", "sampled_ns", "represented_ns", "graph_ns", "graph_attributed_ns",
    "mfu_peak_ns", "mfu_span_ns", "mfu_model_ns", "mfu_known_ns", "mfu_left_out_ns", "cost_windows", "early_windows",
    "shapeless_windows", "opless_windows", "events_read",
)  # fmt: skip
IF_KNOWN = (
    "steps", "layout_ns", "lost_ns", "cost_represented_ns", "python_events", "waits", "wait_ns", "padding_batches",
    "padding_real_tokens", "padding_padded_tokens", "padding_real_squared", "padding_padded_squared", "last_unix_ns",
    "longest_wait_ns",
)  # fmt: skip
TIMES = ("span_ns", "busy_ns", "exposed_copy_ns", "exposed_communication_ns")
NO_KERNELS = (4, 5)  # the codes of communication and copy


def _key(*names: str) -> "list[sa.Column[int]]":
    return [sa.Column(name, KEY, primary_key=True, autoincrement=False, nullable=False) for name in names]


def _numbers(*names: str, null: bool = False) -> "list[sa.Column[int]]":
    return [sa.Column(name, sa.BigInteger(), nullable=null) for name in names]


def _word(name: str) -> "sa.Column[str]":
    return sa.Column(name, sa.String(), primary_key=True, nullable=False)


def _blob(name: str) -> "sa.Column[bytes]":
    return sa.Column(name, sa.LargeBinary(), nullable=False)


def upgrade() -> None:
    """Make the tables and turn the kernels that are there into blocks; their hours are summed up later."""
    for name in ("devices_id", "span_ns", "est_span_ns", "graph_ns", "graph_attributed_ns"):
        op.add_column("windows", sa.Column(name, sa.BigInteger(), nullable=False, server_default="0"))
    op.create_table("device_sets", *_key("id", "device_id"), sqlite_with_rowid=False)
    op.create_table("kernel_blocks", *_key("window_id"), *_numbers("rows"), _blob("facts"), _blob("histograms"))
    flags: list[sa.Column[bool]] = [sa.Column(name, sa.Boolean(), nullable=False) for name in ("stale", "finer")]
    op.create_table("rollups", *_key(*PIECE), *flags, sqlite_with_rowid=False)
    op.create_index("rollups_due", "rollups", ["stale", "grain", "finer", "bucket_unix_ns"])
    op.create_index("segments_received", "segments", ["received_unix_ns"])
    op.create_table("kernel_sums", *_key(*PIECE, "device_id"), *_numbers("rows"), _blob("sums"), _blob("histograms"))
    op.create_table(
        "window_sums", *_key(*PIECE, "devices_id"), *_numbers(*ADDED), *_numbers(*IF_KNOWN, null=True),
        sqlite_with_rowid=False,
    )  # fmt: skip
    op.create_table(
        "drop_sums", *_key(*PIECE, "devices_id"), _word("reason"), *_numbers("count"), sqlite_with_rowid=False
    )
    times = [f"{prefix}{name}" for name in TIMES for prefix in ("", "est_")]
    op.create_table("device_sums", *_key(*PIECE, "device_id"), *_numbers("windows", *times), sqlite_with_rowid=False)
    op.create_table(
        "cause_sums",
        *_key(*PIECE, "device_id"),
        _word("cause"),
        *_numbers("total_ns", "est_ns", "count", "longest_ns"),
        sa.Column("example", sa.String(), nullable=True),
        *_numbers("startup_ns", "startup_est_ns", "startup_count", "steady_longest_ns"),
        sa.Column("steady_example", sa.String(), nullable=True),
        sqlite_with_rowid=False,
    )
    connection = op.get_bind()
    _over_devices(connection)
    _blocks(connection)
    for grain, length in ((3600, HOUR_NS), (86_400, DAY_NS)):
        connection.execute(
            sa.text(
                "INSERT INTO rollups (grain, bucket_unix_ns, process_id, stale, finer) SELECT DISTINCT :grain, "
                "start_unix_ns - start_unix_ns % :length, process_id, true, true FROM windows"
            ),
            {"grain": grain, "length": length},
        )
    op.drop_table("kernel_stats")


def _over_devices(connection: sa.Connection) -> None:
    """Fill the new columns of windows, and the sets of devices."""
    weighted = "CASE WHEN w.represents_ns > 0 AND d.span_ns > 0 THEN w.represents_ns ELSE d.span_ns END"
    rows = connection.execute(
        sa.text(f"SELECT w.id, d.device_id, d.span_ns, {weighted} FROM windows w "  # noqa: S608 - our own words
                "JOIN window_devices d ON d.window_id = w.id ORDER BY w.id")
    ).all()  # fmt: skip
    sets: dict[int, list[int]] = {}
    found = []
    for window, of in groupby(rows, lambda row: row[0]):
        told = list(of)
        devices = [row[1] for row in told]
        identity = devices_id(devices)
        sets[identity] = sorted(set(devices))
        found.append({"w": window, "i": identity, "s": sum(r[2] for r in told), "e": sum(r[3] for r in told)})
    if found:
        connection.execute(
            sa.text("UPDATE windows SET devices_id = :i, span_ns = :s, est_span_ns = :e WHERE id = :w"), found
        )
        connection.execute(
            sa.text("INSERT INTO device_sets (id, device_id) VALUES (:i, :d)"),
            [{"i": i, "d": d} for i, of_set in sets.items() for d in of_set],
        )
    for name, column in (("graph_ns", "total_ns"), ("graph_attributed_ns", "attributed_ns")):
        connection.execute(
            sa.text(f"UPDATE windows SET {name} = coalesce((SELECT sum({column}) FROM graphs "  # noqa: S608 - our own
                    "WHERE graphs.window_id = windows.id), 0)")
        )  # fmt: skip


def _blocks(connection: sa.Connection) -> None:
    columns = (
        "k.window_id, signature_id, total_ns, min_ns, max_ns, step_ns, calls, step_calls, k.device, evidence, bound, "
        "coalesce(formula_bound, -1), coalesce(s.kernel_id, 0), v.model, histogram"
    )
    last = -1
    while True:
        windows = connection.scalars(
            sa.text("SELECT DISTINCT window_id FROM kernel_stats WHERE window_id > :last ORDER BY window_id LIMIT 200"),
            {"last": last},
        ).all()
        if not windows:
            return
        rows = connection.execute(
            sa.text(f"SELECT {columns} FROM kernel_stats k "  # noqa: S608 - our own words
                    "LEFT JOIN window_devices d ON d.window_id = k.window_id AND d.position = k.device "
                    "LEFT JOIN devices v ON v.id = d.device_id LEFT JOIN signatures s ON s.id = k.signature_id "
                    "WHERE k.window_id BETWEEN :first AND :last ORDER BY k.window_id"),
            {"first": windows[0], "last": windows[-1]},
        ).all()  # fmt: skip
        blocks = [_block(window, list(of)) for window, of in groupby(rows, lambda row: row[0])]
        connection.execute(
            sa.text("INSERT INTO kernel_blocks (window_id, rows, facts, histograms) VALUES (:w, :n, :f, :h)"), blocks
        )
        last = windows[-1]


def _block(window: int, rows: list[Any]) -> dict[str, Any]:
    seen: set[tuple[Any, Any]] = set()
    first = []
    for row in rows:
        kernel = (row[12], row[13])
        first.append(int(row[10] not in NO_KERNELS and kernel not in seen))
        if first[-1]:
            seen.add(kernel)
    facts = np.array([[*row[1:12], mark] for row, mark in zip(rows, first, strict=True)], np.int64).T
    told = [_histogram(row[14]) for row in rows]
    counts = [n for _, part in told for n in part]
    histograms = Histograms(
        np.array([low for low, _ in told], np.int64),
        np.array([len(part) for _, part in told], np.int64),
        np.array(counts, np.int64),
    )
    return {"w": window, "n": len(rows), "f": pack(np.ascontiguousarray(facts)), "h": histograms.pack()}


def _histogram(blob: bytes) -> tuple[int, list[int]]:
    """What was stored before: two bytes for the lowest bucket, LEB128 counts, a run of zeros as 0 and its length."""
    if len(blob) < 2:
        return 0, []
    counts: list[int] = []
    value = shift = 0
    run = False
    for byte in blob[2:]:
        value |= (byte & 0x7F) << shift
        if byte & 0x80:
            shift += 7
            continue
        if run:
            counts += [0] * value
        elif value:
            counts.append(value)
        run = not run and not value
        value = shift = 0
    return blob[0] | blob[1] << 8, counts
