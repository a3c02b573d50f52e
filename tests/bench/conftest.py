"""The benchmarks' own modules: ``_rows``, and ``run`` by its file, since other folders of tests have a run.py, too."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.append(str(BENCH))  # the import mode leaves the path alone


@pytest.fixture(scope="session")
def bench() -> ModuleType:
    """bench/run.py."""
    spec = importlib.util.spec_from_file_location("bench_run", BENCH / "run.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module
