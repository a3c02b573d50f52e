"""Commands that ask a store need none of what the store is made of: they stay quick to start."""

from __future__ import annotations

import subprocess
import sys

from store_builders import GEMM, RunningStore, segment_of, send, stat, window_of

HEAVY = ("sqlalchemy", "alembic", "numpy", "pyarrow", "torch", "roofwatch.agent", "roofwatch.collectors")
ASKED = (
    "nodes", "processes", "windows", "top", "top --by op", "top --by kernel --every 1h", "roofline", "timeline",
    "diagnose", "export --format csv -o -", "export --format json -o -",
)  # fmt: skip
PROGRAM = f"""
import sys
from roofwatch.cli.main import main
for words in {ASKED}:
    try:
        main([*words.split(), "--store", sys.argv[1], "--since", "all"])
    except SystemExit as left:
        assert not left.code, (words, left.code)
    found = [name for name in {HEAVY} if any(f"{{one}}.".startswith(f"{{name}}.") for one in sys.modules)]
    assert not found, (words, found)
"""


def test_who_asks_a_store_imports_no_database_and_no_reader(store: RunningStore) -> None:
    """Every answer is drawn without them, records are exported without them; all in one process, one after another."""
    send(store.address, [segment_of([window_of("a", [stat(GEMM, [1000, 3000])], steps=1)], 1)], 1)
    done = subprocess.run([sys.executable, "-c", PROGRAM, store.address], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (0, ""), done.stderr[-2000:]
    assert done.stdout.count(GEMM.kernel[:12]) >= 6  # they did answer: as tables, and as records
