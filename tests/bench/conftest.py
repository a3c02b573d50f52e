"""The benchmarks' own modules: ``_rows`` by its name, scripts by their files."""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType

import pytest

BENCH = Path(__file__).parents[2] / "bench"
sys.path.append(str(BENCH))  # the import mode leaves the path alone


def _loaded(name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(f"bench_{name}", BENCH / f"{name}.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses look their module up
    spec.loader.exec_module(module)
    return module


@pytest.fixture(scope="session")
def loaded() -> Callable[[str], ModuleType]:
    """A benchmark as a module, by its file: other folders have modules of the same name."""
    return _loaded


@pytest.fixture(scope="session")
def bench() -> ModuleType:
    """bench/run.py."""
    return _loaded("run")
