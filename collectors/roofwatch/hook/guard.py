"""The job's own profiler comes first: our window is gone before it starts, and none opens until it has ended."""

import functools
from typing import Any, Callable

from .bindings import Bindings
from .log import failure
from .protocol import OWN_PROFILER
from .window import Taker


def install(torch: Any, bindings: Bindings, taker: Taker) -> None:
    """Put the guard around torch's entry points to the profiler, wherever torch's own modules hold them."""
    autograd = torch._C._autograd
    _replace(torch, "_prepare_profiler", _starts(bindings.prepare, taker))
    _replace(torch, "_enable_profiler", _starts(bindings.enable, taker))
    _replace(torch, "_disable_profiler", _ends(bindings.disable, taker))
    for name in ("_prepare_profiler", "_enable_profiler", "_disable_profiler"):
        assert hasattr(autograd, name)  # noqa: S101 - attach stops here, before anything is half done


def _replace(torch: Any, name: str, function: Callable[..., Any]) -> None:
    for module in (torch._C._autograd, torch.autograd, torch.autograd.profiler):
        if hasattr(module, name):
            setattr(module, name, function)


def _starts(function: Any, taker: Taker) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            taker.job_profiler = 1
            taker.give_up(OWN_PROFILER)
        except Exception as error:
            failure("guard", error)
        return function(*args, **kwargs)

    return call


def _ends(function: Any, taker: Taker) -> Callable[..., Any]:
    @functools.wraps(function)
    def call(*args: Any, **kwargs: Any) -> Any:
        try:
            return function(*args, **kwargs)
        finally:
            taker.job_profiler = 0

    return call
