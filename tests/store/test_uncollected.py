"""The collector of cycles is off while answers are made, and never for long."""

from __future__ import annotations

import gc
import threading

import pytest

from roofwatch.store.queries import uncollected as module
from roofwatch.store.queries.uncollected import uncollected


def test_off_inside_and_as_before_outside() -> None:
    """Also where an answer fails, inside another, and where it was off anyway."""
    assert gc.isenabled()

    def failing() -> None:
        with uncollected(), uncollected():
            assert not gc.isenabled()
            raise ValueError("failed")

    with pytest.raises(ValueError, match="failed"):
        failing()
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()


def test_answers_that_overlap_do_not_keep_it_off(monkeypatch: pytest.MonkeyPatch) -> None:
    """One thread's is not over when another's begins: on again once that has lasted too long, until both are over."""
    monkeypatch.setattr(module, "MOST_S", 0.0)
    begun, over = threading.Event(), threading.Event()

    def answer() -> None:
        with uncollected():
            begun.set()
            over.wait(10)

    thread = threading.Thread(target=answer)
    thread.start()
    assert begun.wait(10)
    assert not gc.isenabled()
    with uncollected():
        assert gc.isenabled()
    over.set()
    thread.join()
    assert gc.isenabled()
