"""Whether the savings that ``roofwatch padding`` foretells are those that come: a small transformer on this CPU.

Recorded padded, the command says what buckets and padding-free execution would save; then the same layers run so: each
batch split into its buckets, and without padding (linear layers over the tokens of all sequences, attention a sequence
at a time). TOLERANCE is how far foretold and measured shares of the time may lie apart. On one thread, by CPU time: of
several threads those that wait for another spin, and on a busy machine that would be most of what is measured.

    python bench/padding.py [--rounds N]
"""

from __future__ import annotations

import argparse
import json
import random
import tempfile
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

from _rows import row, say

from roofwatch.cli.files import Origin, recorded_on, window_of
from roofwatch.model.answer_rows import sums_of
from roofwatch.model.padding import PaddingSum, of_batches
from roofwatch.model.padding_report import report
from roofwatch.model.padding_schemes import Seen
from roofwatch.model.padding_split import Batches
from roofwatch.model.padding_time import device_time

TOLERANCE = 0.10
LAYERS, BATCH, LONGEST = 4, 16, 384


def foretold(run: Callable[[], None], lengths: Sequence[int]) -> dict[str, Any]:
    """The answer of ``roofwatch padding`` about a recording of the padded batch."""
    import torch  # noqa: PLC0415 - as below

    with tempfile.TemporaryDirectory() as folder:
        file = Path(folder) / "trace.json"
        with torch.profiler.profile(record_shapes=True) as recorded:
            for _ in range(3):
                run()
        recorded.export_chrome_trace(str(file))
        window, problem = window_of(file, Origin(cpu=recorded_on(here=True, threads=1)))
    assert problem is None
    told = PaddingSum()
    told.add(of_batches([lengths]))
    return report(Seen(told, device_time(sums_of(window), Batches(told.shapes))))


def measured(runs: dict[str, Callable[[], None]], rounds: int) -> dict[str, float]:
    """The least CPU time of each, in turns, so that a busy machine is busy for all of them."""
    least = dict.fromkeys(runs, float("inf"))
    for _ in range(rounds):
        for name, run in runs.items():
            begin = time.process_time()
            run()
            least[name] = min(least[name], time.process_time() - begin)
    return least


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=12)
    given = parser.parse_args()
    import torch  # noqa: PLC0415 - it takes two seconds, which --help need not wait for
    from _padding_net import Layer, packed, padded, split  # noqa: PLC0415

    torch.set_num_threads(1)
    torch.manual_seed(0)
    rng = random.Random(0)
    lengths = sorted(min(LONGEST, max(8, int(rng.lognormvariate(4.5, 0.8)))) for _ in range(BATCH - 1))
    lengths.append(LONGEST)
    with torch.inference_mode():
        layers = [Layer().eval() for _ in range(LAYERS)]
        run = padded(layers, lengths, LONGEST)
        run()
        answer = foretold(run, lengths)
        told = {str(one["buckets"] or one["scheme"]): one for one in answer["rows"]}
        runs = {"static": run, "padding_free": packed(layers, lengths)}
        runs |= {k: split(layers, lengths, told[k]["boundaries"]) for k in ("2", "4")}
        took = measured(runs, given.rounds)
    say(json.dumps({"split": answer["split"], "utilisation": answer["utilisation"]}))
    for name, label in {"2": "2 buckets, split,", "4": "4 buckets, split,", "padding_free": "padding-free"}.items():
        real = 1 - took[name] / took["static"]
        row(f"padding: share of the time that {label} saves", real, within=(told[name]["saved_share"], TOLERANCE))


if __name__ == "__main__":
    main()
