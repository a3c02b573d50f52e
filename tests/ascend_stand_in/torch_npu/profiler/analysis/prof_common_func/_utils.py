"""Exceptions end here."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

from torch_npu.profiler.analysis.prof_common_func._constant import print_error_msg


def no_exception_func(default_ret: Any = None) -> Callable[..., Any]:
    """A decorator: an exception becomes a printed line and ``default_ret``."""

    def decorator(func: Callable[..., Any]) -> Callable[..., Any]:
        @functools.wraps(func)
        def wrapper(*args: Any, **kwargs: Any) -> Any:
            try:
                return func(*args, **kwargs)
            except Exception as error:  # noqa: BLE001 - that is what the real one does
                print_error_msg(f"Call {func.__name__} failed. Exception: {error}")
                return default_ret

        return wrapper

    return decorator
