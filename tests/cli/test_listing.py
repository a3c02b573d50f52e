"""Nodes, processes, windows, devices and the doctor's lines, in 80 columns, against text written by hand."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest

from roofwatch.cli.render import listing, text

NOW = 1_770_000_000_000_000_000  # 2026-02-02 02:40:00 UTC
S = 1_000_000_000

NEARLY = (
    "\n≈ 0: below zero, or within twice what windows of the process vary by for nothing\n"
    "(JSON: lost_ns, lost_noise_ns)\n"
)

NODE: dict[str, Any] = {
    "node": "gpu-07", "last_seen_unix_ns": NOW - 12 * S, "processes": 8, "devices": 8,
    "device": "NVIDIA H100 SXM5 80 GB", "windows": 1_234, "device_time_ns": 5_400 * S, "busy_share": 0.613, "mfu": None,
    "mfu_known_share": None,
    "versions": ["0.1.0"], "agent_drops": {},
}  # fmt: skip
PROCESS: dict[str, Any] = {
    "process": "00000000000004d2", "node": "gpu-07", "pid": 4711, "model": "llama-7b", "user": "ada", "job": None,
    "container": None, "rank": 3, "world_size": 8, "device": "NVIDIA H100 SXM5 80 GB", "devices": 1, "windows": 48,
    "last_window_unix_ns": NOW - 125 * S, "steps": 96, "device_time_ns": 3 * S, "busy_share": 0.613, "mfu": 0.413,
    "mfu_known_share": 0.96,
    "lost_ns": 1, "lost_noise_ns": None, "represented_ns": 1000, "lost_share": 0.0012, "versions": {}, "labels": {},
}  # fmt: skip
WINDOW: dict[str, Any] = {
    "uid": "0" * 32, "start_unix_ns": NOW, "process": "00000000000004d2", "node": "gpu-07", "pid": 4711,
    "model": "llama-7b", "device": "NVIDIA H100 SXM5 80 GB", "duration_ns": 182_400_000, "steps": 2,
    "represents_ns": 60 * S, "trigger": "periodic", "collector": "kineto", "shapes_recorded": True, "events_read": 9,
    "device_records": 12_345, "device_time_ns": 150_000_000, "busy_ns": 111_264_000, "span_ns": 182_400_000,
    "linked_share": 0.998, "classified_share": 0.978, "mfu": 0.382, "mfu_known_share": 1.0, "close_path": "native",
    "lost_ns": 21_300_000, "lost_noise_ns": None,
    "dropped": {},
}  # fmt: skip


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Local times are shown; here they are UTC."""
    with monkeypatch.context() as patch:
        patch.setenv("TZ", "UTC")
        time.tzset()
        yield
    time.tzset()


def test_nodes() -> None:
    """Two reasons of drops add up; what was never busy is unknown, not 0; device time has no room in 80 columns.

    It is there in 120: 5,400 s are 1.50 h.
    """
    idle = {
        **NODE, "node": "a-node-with-a-long-name.cluster.example", "last_seen_unix_ns": NOW - 3 * 86_400 * S,
        "device": None, "devices": 1, "processes": 1, "windows": 1, "busy_share": None, "device_time_ns": 0,
        "agent_drops": {"spool_bytes": 2, "parse_error": 1_500},
    }  # fmt: skip
    assert listing.nodes({"rows": [NODE, idle]}, 80, NOW) == (
        "node                device               seen processes windows busy MFU dropped\n"
        "gpu-07              8 × NVIDIA H100 SXM… 12 s         8   1,234 61 %   –       0\n"
        "a-node-with-a-long… 1 × unnamed device    3 d         1       1    –   –   1,502\n"
    )
    assert listing.nodes({"rows": [NODE]}, 120, NOW).splitlines()[1].split()[-4:] == ["–", "1.50", "h", "0"]


def test_processes() -> None:
    """125 s are 2 min; a rank without a world size keeps its number; a cost is unknown, or below 0 and so noise."""
    other = {**PROCESS, "pid": 99, "model": None, "rank": None, "steps": None, "lost_share": None, "windows": 1}
    other["mfu"] = None
    lone = {**PROCESS, "pid": 100, "rank": 0, "world_size": None, "lost_share": -0.0041}
    assert listing.processes({"rows": [PROCESS, other, lone]}, 80, NOW) == (
        "node    pid model    rank device             seen windows steps busy  MFU   cost\n"
        "gpu-07 4711 llama-7b  3/8 1 × NVIDIA H100…  2 min      48    96 61 % 41 % 0.12 %\n"
        "gpu-07   99 –           – 1 × NVIDIA H100…  2 min       1     – 61 %    –      –\n"
        "gpu-07  100 llama-7b  0/? 1 × NVIDIA H100…  2 min      48    96 61 % 41 %  ≈ 0 %\n" + NEARLY
    )


def test_windows() -> None:
    """Busy is 111.264 of 182.4 ms; the model (drop 3), then the node (drop 2) have no room in 80 columns."""
    other = {**WINDOW, "steps": None, "linked_share": None, "classified_share": None, "lost_ns": None, "span_ns": 0}
    other["mfu"] = None
    noise = {**WINDOW, "lost_ns": -56_700_000}
    assert listing.windows({"rows": [WINDOW, noise, {**other, "close_path": None}]}, 80, NOW) == (
        "start           pid steps length records busy  MFU linked judged    lost close\n"
        "02-02 02:40:00 4711     2 182 ms  12,345 61 % 38 %  100 %   98 % 21.3 ms native\n"
        "02-02 02:40:00 4711     2 182 ms  12,345 61 % 38 %  100 %   98 %     ≈ 0 native\n"
        "02-02 02:40:00 4711     – 182 ms  12,345    –    –      –      –       – –\n" + NEARLY
    )


BUDGET: dict[str, Any] = {
    "interval_reason": "budget", "budget_share": 0.005, "hard_stop_share": 0.01, "spent_share": 0.0049,
    "balance_ns": -200_000_000, "charged_ns": 21_300_000, "charge_measured": False, "interval_ns": 90 * S,
    "event_cap": 12_000,
}  # fmt: skip


def test_budget_of_processes_and_windows() -> None:
    """In wider terminals and with ``wide``; 0 and unknown are told apart; a process without windows is there too.

    A store or agent of an earlier version tells nothing of it.
    """
    place = {"user": "ada", "job": "slurm:7.0", "container": "0123456789abcdef" * 4, "pod": "train-0",
             "namespace": "ml", "labels": {"process.vpid": "12"}}  # fmt: skip
    paid = {**PROCESS, **BUDGET, **place, "skipped": {"busy": 1, "own_profiler": 3}, "told_unix_ns": NOW}
    waiting = {
        **paid, "pid": 12, "windows": 0, "last_window_unix_ns": None, "device": None, "devices": None, "steps": None,
        "busy_share": None, "mfu": None, "lost_share": None, "spent_share": 0.0, "interval_reason": "cold_start",
        "skipped": {}, "balance_ns": 0, "pod": None, "namespace": None, "container": None, "labels": {},
    }  # fmt: skip
    head, *lines = listing.processes({"rows": [paid, waiting, PROCESS]}, 80, NOW, wide=True).splitlines()
    names = " ".join(head.split("cost")[1].split())
    assert names == "spent every why budget balance cap user own pid job pod container not taken"
    tails = [" ".join(line.split()) for line in lines]
    assert tails[0].partition("0.12 % ")[2] == (
        "0.49 % 1.50 min budget 0.50 % -200 ms 12,000 ada 12 slurm:7.0 ml/train-0 0123456789ab own_profiler 3, busy 1"
    )
    assert tails[1] == (
        "gpu-07 12 llama-7b 3/8 – 0 s 0 – – – – 0 % 1.50 min cold_start 0.50 % 0 s 12,000 ada – slurm:7.0 – – 0"
    )
    assert tails[2].endswith("0.12 % – – – – – – ada – – – – –")
    shown = listing.processes({"rows": [paid, PROCESS]}, 120, NOW).splitlines()
    assert [line.split()[-4:] for line in shown[1:]] == [["%", "1.50", "min", "budget"], ["%", "–", "–", "–"]]
    window = {**WINDOW, **BUDGET}
    rows = [window, {**window, "charge_measured": True, "balance_ns": 5_000_000, "charged_ns": -3}, WINDOW]
    head, *lines = listing.windows({"rows": rows}, 80, NOW, wide=True).splitlines()
    assert head.split()[-9:] == ["close", "spent", "every", "why", "charged", "budget", "balance", "cap", "window"]
    tails = [" ".join(line.split()).partition("native ")[2] for line in lines]
    assert tails == [
        f"0.49 % 1.50 min budget about 21.3 ms 0.50 % -200 ms 12,000 {'0' * 32}",
        f"0.49 % 1.50 min budget ≈ 0 0.50 % 5.00 ms 12,000 {'0' * 32}",
        f"– – – – – – – {'0' * 32}",
    ]


def test_an_mfu_that_is_a_lower_bound_says_so() -> None:
    """Known for 96 % of the kernels it is as good as exact, for 94 % at least that; at least 0.1 % is none."""
    for draw, row in ((listing.nodes, NODE), (listing.processes, PROCESS), (listing.windows, WINDOW)):
        cells = [
            draw({"rows": [{**row, "mfu": mfu, "mfu_known_share": known}]}, 150, NOW).splitlines()[1]
            for mfu, known in ((0.413, 0.96), (0.413, 0.94), (0.0009, 0.94))
        ]
        assert [" 41 % " in cells[0], " ≥ 41 % " in cells[0]] == [True, False]
        assert " ≥ 41 % " in cells[1]
        assert "≥" not in cells[2]


def test_devices() -> None:
    """A100: 312e12 / 2.039e12 = 153; T4: no bf16, fp16 65e12 / 320e9 = 203; a device without peaks is all unknown."""
    a100 = {
        "vendor": "nvidia", "model": "NVIDIA A100", "units": 108, "uncertain": None,
        "peaks": {
            "flops": {
                "bf16/matrix": {"value": 312e12, "source": "datasheet"},
                "fp32/vector": {"value": 19.5e12, "source": "measured"},
            },
            "bandwidth": {"value": 2.039e12, "source": "datasheet"},
        },
    }  # fmt: skip
    t4 = {
        "vendor": "nvidia", "model": "NVIDIA T4", "units": 40, "uncertain": None,
        "peaks": {
            "flops": {"fp16/matrix": {"value": 65e12, "source": "datasheet"}},
            "bandwidth": {"value": 320e9, "source": "datasheet"},
        },
    }  # fmt: skip
    cpu = {"vendor": "cpu", "model": "EPYC", "units": 1, "uncertain": "busy", "peaks": {"flops": {}, "bandwidth": None}}
    assert listing.devices({"rows": [a100, t4, cpu]}, 80) == (
        "device           bandwidth   fp32  bf16   fp16 tf32 ridge source\n"
        "NVIDIA A100         2.04 T 19.5 T 312 T      –    –   153 datasheet+measured\n"
        "NVIDIA T4            320 G      –     – 65.0 T    –   203 datasheet\n"
        "1 thread of EPYC         –      –     –      –    –     – – ?\n"
        "\n"
        "bandwidth in bytes/s, peaks in FLOP/s: fp32 vector, the others matrix unit\n"
    )


def test_doctor() -> None:
    """Advice stands under what it is for."""
    rows = [
        {"check": "python", "status": "ok", "detail": "3.11.7 runs this program", "advice": None},
        {"check": "agent", "status": "fail", "detail": "none listens on /x", "advice": "start one: roofwatch agent"},
    ]
    assert listing.checks({"rows": rows}, 80) == (
        "ok    python       3.11.7 runs this program\n"
        "fail  agent        none listens on /x\n"
        "                   → start one: roofwatch agent\n"
    )


@pytest.mark.parametrize(
    ("seconds", "shown"),
    [(-5, "0 s"), (0, "0 s"), (119, "119 s"), (120, "2 min"), (7_199, "119 min"), (7_200, "2 h"), (172_800, "2 d")],
)
def test_ago(seconds: int, shown: str) -> None:
    """The largest unit of which there are two; a clock that is ahead is no negative time."""
    assert listing.ago(NOW - seconds * S, NOW) == shown


def test_a_device_without_a_name() -> None:
    """Beside one with a name, alone, and where there is none."""
    names = [listing.nodes({"rows": [{**NODE, "device": name}]}, 120, NOW).splitlines()[1] for name in ("", ", A100")]
    assert ["8 × unnamed device " in names[0], "8 × unnamed device, A100 " in names[1]] == [True, True]


def test_how_many_devices_may_be_unknown() -> None:
    """Three imported traces of one GPU each do not tell whether it was the same one."""
    assert "? × NVIDIA H100" in listing.nodes({"rows": [{**NODE, "devices": None}]}, 120, NOW)


def test_a_window_of_another_year_says_which() -> None:
    """All of a table carry the year then, so that they stand under each other."""
    old = {**WINDOW, "start_unix_ns": NOW - 4 * 365 * 86_400 * S}
    lines = listing.windows({"rows": [WINDOW, old, {**WINDOW, "start_unix_ns": None}]}, 80, NOW).splitlines()[1:]
    assert [line[:19] for line in lines[:2]] == ["2026-02-02 02:40:00", "2022-02-03 02:40:00"]
    assert lines[2].startswith("– ")
    assert listing.windows({"rows": [WINDOW]}, 80, NOW + 400 * 86_400 * S).splitlines()[1].startswith("2026-02-02")


def test_nothing_is_no_table() -> None:
    """Without rows there is no header either."""
    assert listing.nodes({"rows": []}, 80, NOW) == listing.windows({"rows": []}, 80, NOW) == ""


def test_costs_within_their_noise_are_about_nothing() -> None:
    """21.3 ms lost where windows vary by 10.65: two deviations are no noise; by a nanosecond more they are."""
    note = (
        "\n≈ 0: below zero, or within twice what windows of the process vary by for\n"
        "nothing, here up to 21.3 ms (JSON: lost_ns, lost_noise_ns)\n"
    )
    for noise_ns, shown, end in ((10_650_000, "21.3 ms", "native\n"), (10_650_001, "≈ 0", note)):
        drawn = listing.windows({"rows": [{**WINDOW, "lost_noise_ns": noise_ns}]}, 80, NOW)
        assert f" {shown} native" in drawn
        assert drawn.endswith(end)
    for noise_ns, shown in ((0, "0.12 %"), (1, "≈ 0 %")):
        drawn = listing.processes({"rows": [{**PROCESS, "lost_noise_ns": noise_ns}]}, 80, NOW)
        assert drawn.split("\n\n")[0].rstrip("\n").endswith(f" {shown}")
        assert ("≈ 0: below zero" in drawn) == (noise_ns == 1)
    cost = {"windows": 4, "of_windows": 4, "share": 0.0012, "lost_ns": 100, "represented_ns": 9, "steps": 10}
    for more, shown in (({"noise_ns": 50}, "0.12 %"), ({"noise_ns": 51}, "≈ 0 %"), ({"noise_ns": 1, "steps": 9}, "–")):
        assert text.cost({**cost, **more}) == shown
    assert text.cost({"share": 0.0012, "lost_ns": 1}) == "0.12 %"  # a store of an earlier version


def test_a_process_left_alone_is_told_below_the_table() -> None:
    """80 columns have no room for why: the note says it; of many, three by pid."""
    left = {**PROCESS, "interval_reason": "residue"}
    table, _, note = listing.processes({"rows": [left, PROCESS]}, 80, NOW).rpartition("\n\n")
    assert table.count("4711") == 2
    assert note == (
        "pid 4711: left alone for an hour (residue), since steps stayed slower after\n"
        "windows; then tried again.\n"
    )  # fmt: skip
    many = [{**left, "pid": pid} for pid in range(1, 6)]
    assert "pid 1, 2, 3 and 2 more: left alone" in listing.processes({"rows": many}, 80, NOW)
    assert "left alone" not in listing.processes({"rows": [PROCESS]}, 80, NOW)
    unable = [left, {**PROCESS, "pid": 7, "interval_reason": "unsupported"}]
    assert listing.processes({"rows": unable}, 80, NOW).endswith(
        "\n\npid 7: its torch gives no windows as it runs (unsupported): 'roofwatch doctor'\nsays what it can.\n"
    )


def test_a_process_was_seen_when_its_agent_last_told_of_it() -> None:
    """Or when it gave a window, whichever is later."""
    for told_ago_s, shown in ((12, "12 s"), (900, "125 s")):
        row = {**PROCESS, "last_window_unix_ns": NOW - 125 * S, "told_unix_ns": NOW - told_ago_s * S}
        assert (" 12 s " in listing.processes({"rows": [row]}, 80, NOW)) is (shown == "12 s")
