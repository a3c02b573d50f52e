"""``whatif`` of a store and of a file: real SQLite, a real trace, and mistakes."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from store_builders import H100, MI300, stat, window_of

from roofwatch.model.answer_rows import sums_of
from roofwatch.model.kinds import Kind
from roofwatch.model.record import Bound, Evidence, Signature, Window
from roofwatch.model.whatif import Change, replay
from roofwatch.model.whatif_report import report, time_of
from roofwatch.store.database import Database
from roofwatch.store.filter import Filter
from roofwatch.store.queries import Queries

Keep = Callable[[list[Window]], None]
Program = Callable[..., Any]

# One token of a product with 4096 × 4096 weights: 33,570,816 bytes at 3.35e12 bytes/s, at the roof.
PRODUCT = Signature(
    "gemm", Kind.MATMUL, "aten::mm", shapes="[[1,4096],[4096,4096]]", dtypes='["bf16","bf16"]', flops=2 * 4096**2,
    bytes=2 * (4096 + 4096**2 + 4096), precision="bf16", unit="matrix",
)  # fmt: skip
ROOF_NS = PRODUCT.bytes / 3.35e12 * 1e9  # type: ignore[operator]
LATE = Signature("tiny", Kind.ELEMENTWISE, "aten::add", flops=10, bytes=80)


def window() -> Window:
    """Two calls of the product of 10,021 ns, 5000 ns latency bound, 1000 unknown; two steps in 40 µs."""
    product = stat(PRODUCT, [round(ROOF_NS)] * 2, bound=Bound.MEMORY, roof_ns=ROOF_NS, ridge=989e12 / 3.35e12)
    late = stat(LATE, [5000], bound=Bound.LATENCY, roof_ns=0.1, ridge=10.0)
    unknown = stat(Signature("x", Kind.OTHER), [1000], bound=Bound.UNKNOWN, evidence=Evidence.NONE)
    return window_of("a", [product, late, unknown], span_ns=40_000, represents_ns=80_000, steps=2, device=H100)


def test_store_and_file_answer_alike(db: Database, keep: Keep) -> None:
    """One window: the answer of the store is that of the window itself."""
    keep([window()])
    found = Queries(db).run("whatif", Filter(), 0, options={"weights": "int4"})
    expected = report(replay(sums_of(window()), Change(weights="int4")), time_of(window()), 0)
    assert found["rows"] == expected["rows"]
    assert {key: found[key] for key in expected} == expected
    assert found["query"]["weights"] == "int4"
    assert found["prediction"]["step_ns"] == 20_000


def test_the_step_by_hand(db: Database, keep: Keep) -> None:
    """Of two calls of 10,021 ns int4 leaves (2·8192 + 4096²/2) bytes at 3.35e12 a second, 2,509 ns; a step has one."""
    keep([window()])
    found = Queries(db).run("whatif", Filter(), 1, options={"weights": "int4"})
    then = (2 * 2 * 4096 + 4096**2 / 2) / 3.35e12 * 1e9
    saved = 2 * (round(ROOF_NS) - then * round(ROOF_NS) / ROOF_NS)
    assert found["prediction"]["step_new_ns"] == pytest.approx(20_000 - saved / 2, abs=1)
    assert found["rows"][0]["kernel"] == "gemm"
    whole = 2 * round(ROOF_NS) + 6000
    assert found["touched"]["changed_share"] == pytest.approx(2 * round(ROOF_NS) / whole)
    assert found["touched"]["latency_share"] == pytest.approx(5000 / whole)
    assert found["touched"]["unknown_share"] == pytest.approx(1000 / whole)


def test_the_command_shows_it(db: Database, keep: Keep, roofwatch: Program, tmp_path: Path) -> None:
    """In 80 columns, with what stays and what is taken for granted; JSON and CSV have the rows."""
    del db
    keep([window()])
    where = ("--db", f"sqlite:///{tmp_path}/store.db", "--since", "all")
    shown = roofwatch("whatif", *where, "--weights", "int4")
    assert (shown.returncode, shown.stderr) == (0, "")
    assert max(map(len, shown.stdout.splitlines())) <= 80
    assert "What if: weights in int4" in shown.stdout
    assert "Span for each step: 20.0 µs, then 12.5 µs (38 % less, 1.60 × as fast)" in shown.stdout
    assert "19 % latency bound, 3.8 % of" in shown.stdout
    assert "Taken for granted" in shown.stdout
    told = json.loads(roofwatch("whatif", *where, "--weights", "int4", "--format", "json").stdout)
    assert told["rows"][0]["new_ns"] < told["rows"][0]["est_ns"]
    assert told["change"] == {"weights": "int4", "kv": None, "peak_compute": 1.0, "bandwidth": 1.0, "device": None}
    assert roofwatch("whatif", *where, "--kv", "int8", "--format", "csv").stdout.startswith("kernel,kind,op,")
    unchanged = roofwatch("whatif", *where, "--peak-compute", "2x")
    assert "(no change)" in unchanged.stdout
    assert "No kernel takes another time." in unchanged.stdout
    other = roofwatch("whatif", *where, "--device", "H200", "--on-device", "h100", "--bandwidth", "0.5x")
    assert "the ceilings of NVIDIA H200 SXM 141 GB, 0.50 × the bandwidth" in other.stdout
    assert roofwatch("whatif", *where, "--weights", "int4", "--on-device", "mi300").returncode == 4


def test_another_device_of_several_is_refused(db: Database, keep: Keep, roofwatch: Program, tmp_path: Path) -> None:
    """Kernels of an H100 and an MI300X on an H200: one sentence names both; not so of one."""
    del db
    other = stat(PRODUCT, [20_000], bound=Bound.MEMORY, roof_ns=10_000.0, ridge=200.0)
    keep([window(), window_of("b", [other], device=MI300)])
    where = ("--db", f"sqlite:///{tmp_path}/store.db", "--since", "all")
    done = roofwatch("whatif", *where, "--device", "H200")
    assert done.returncode == 2
    assert f"the selection holds {MI300.model}, {H100.model}: choose with --on-device" in done.stderr
    assert roofwatch("whatif", *where, "--device", "H200", "--on-device", "mi300").returncode == 0
    both = " ".join(roofwatch("whatif", *where, "--bandwidth", "2x").stdout.split())
    assert f"kernels of {MI300.model}, {H100.model} are added up: --on-device takes one" in both


def test_a_bound_or_nothing_where_much_is_unknown(db: Database, keep: Keep, roofwatch: Program, tmp_path: Path) -> None:
    """Of 20,042 ns at a roof 5,000 more of unknown roof make 20 %: at least; 30,000 60 %: no answer, no speedup."""
    del db
    where = ("--db", f"sqlite:///{tmp_path}/store.db", "--since", "all", "--bandwidth", "2x")
    for name, unknown_ns in (("a", 5_000), ("b", 30_000)):
        product = stat(PRODUCT, [round(ROOF_NS)] * 2, bound=Bound.MEMORY, roof_ns=ROOF_NS, ridge=989e12 / 3.35e12)
        unknown = stat(Signature("x", Kind.OTHER), [unknown_ns], bound=Bound.UNKNOWN, evidence=Evidence.NONE)
        device = dataclasses.replace(H100, model=f"device {name}")
        keep([window_of(name, [product, unknown], span_ns=100_000, represents_ns=100_000, steps=1, device=device)])
    few, most = (roofwatch("whatif", *where, "--on-device", f"device {name}") for name in "ab")
    # the product takes half: 10,021 of 25,042 and of 100,000
    assert "Kernels: 25.0 µs, then 15.0 µs (at least 40 % less" in few.stdout
    assert "At least: 20 % of the device time may change, too" in few.stdout
    assert "Cannot say: what 60 % of the device time would take is not known" in most.stdout
    assert "Kernels of known roof: 20.0 µs, then 10.0 µs (50 % less)" in most.stdout
    told = json.loads(roofwatch("whatif", *where, "--on-device", "device b", "--format", "json").stdout)["prediction"]
    assert (told["certainty"], told["speedup"], told["span_new_ns"]) == ("cannot_say", None, None)
    assert told["open_share"] == pytest.approx(30_000 / 50_042)


def test_a_real_trace(roofwatch: Program, traces: Path) -> None:
    """A Qwen's prefill on an H100: four times the bandwidth helps and int4 does not; on the H200 it is faster."""
    file = str(traces / "kineto" / "h100_Qwen_Qwen1.5-0.5B-Chat.json.gz")

    def speedup(*arguments: str) -> float:
        done = roofwatch("whatif", file, *arguments, "--format", "json")
        assert done.returncode == 0
        told = json.loads(done.stdout)
        touched = {key: value for key, value in told["touched"].items() if key.split("_")[0] not in {"weights", "kv"}}
        assert sum(touched.values()) == pytest.approx(1.0)
        return float(told["prediction"]["speedup"])

    assert speedup("--weights", "int4") == pytest.approx(1.0, abs=0.01)
    # 4.8 against 3.35 TB/s with the same FLOP/s: between nothing and 4.8 ÷ 3.35
    assert 1.1 < speedup("--device", "H200") < 4.8 / 3.35


WRONG = [
    ((), 2, "nothing is to change"),
    (("--weights", "int3"), 2, "int3"),
    (("--peak-compute", "fast"), 2, "'fast' is no factor: write it as 2x or 1.4x"),
    (("--device", "H100"), 2, "say which"),
    (("--device", "H20O"), 2, "did you mean"),
    (("x.json", "--weights", "int4", "--model", "m"), 2, "--model is for a store"),
    (("--weights", "int4", "--here"), 2, "--here says how a FILE is read"),
    (("none.json", "--weights", "int4"), 1, "none.json cannot be opened"),
]


@pytest.mark.parametrize(("arguments", "code", "said"), WRONG)
def test_mistakes_get_one_sentence(roofwatch: Program, arguments: tuple[str, ...], code: int, said: str) -> None:
    """What is wrong, and what to do."""
    done = roofwatch("whatif", *arguments)
    assert done.returncode == code
    assert said in done.stderr
    assert "Traceback" not in done.stderr
