"""Frames of ours that torch.compile must never look into."""

from typing import Any


def skip_in_dynamo(torch: Any, function: Any, within: bool = True) -> None:
    """Have dynamo never compile this frame, nor (``within``) what it calls, by whatever name this torch offers that."""
    try:
        frames = torch._C._dynamo.eval_frame
        if hasattr(frames, "set_code_exec_strategy"):
            action = frames._FrameAction
            strategy = frames._FrameExecStrategy(action.SKIP, action.SKIP if within else action.DEFAULT)
            frames.set_code_exec_strategy(function.__code__, strategy)
        elif hasattr(frames, "skip_code"):
            frames.skip_code(function.__code__)
    except AttributeError:
        pass
