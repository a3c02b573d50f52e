"""Whether a thread of the job is loading a model or writing a checkpoint, seen in what it is calling right now.

Nothing of the job is wrapped: the stacks of its threads are read, on the hook's thread, before a window opens and now
and then while it is open. A window in there would tell of files, and make what nobody waits for gladly longer.
"""

import functools
import sys
import threading
from typing import Any, Optional

from .log import failure
from .protocol import CHECKPOINT, MODEL_LOAD

MOST_FRAMES = 200  # of a thread, from the innermost
_EVERY = ("",)

# Part of a file's name → functions (their beginnings) in which a checkpoint is written, and a model is loaded.
# What users write themselves calls these.
_FILES = (
    ("/torch/serialization.py", ("save", "_save", "_legacy_save"), ("load", "_load", "_legacy_load")),
    ("/torch/nn/modules/module.py", (), ("load_state_dict",)),
    ("/torch/optim/optimizer.py", (), ("load_state_dict",)),
    ("/torch/jit/_serialization.py", ("save",), ("load",)),
    ("/torch/distributed/checkpoint/state_dict_saver.py", _EVERY, ()),
    ("/torch/distributed/checkpoint/state_dict_loader.py", (), _EVERY),
    ("/torch/distributed/checkpoint/filesystem.py", ("_write", "write"), ("read",)),
    ("/safetensors/torch.py", ("save",), ("load",)),
    ("/transformers/modeling_utils.py", ("save_pretrained",), ("from_pretrained", "_load", "load_")),
    ("/diffusers/models/modeling_utils.py", ("save_pretrained",), ("from_pretrained", "_load", "load_")),
    ("/accelerate/utils/modeling.py", (), ("load_",)),
    ("/deepspeed/runtime/engine.py", ("save_checkpoint", "_save"), ("load_checkpoint", "_load")),
    ("/vllm/model_executor/model_loader/", (), _EVERY),
    ("/sglang/srt/model_loader/", (), _EVERY),
    ("/megatron/training/checkpointing.py", ("save_",), ("load_",)),
)


def alone() -> bool:
    """Whether the main thread and this one are the only ones that run Python. Raises nothing."""
    try:
        return set(sys._current_frames()) <= {threading.get_ident(), threading.main_thread().ident}
    except Exception as error:  # as below
        failure("alone", error)
        return False


def stage() -> Optional[str]:
    """``checkpoint`` or ``model_load`` where a thread other than this one is in the middle of it. Raises nothing."""
    me = threading.get_ident()
    try:
        frames = sys._current_frames()
    except Exception as error:  # an audit hook of the job may forbid it, also while a window is open
        failure("stage", error)
        return None
    try:
        for ident, innermost in frames.items():
            found = None if ident == me else _within(innermost)
            if found is not None:
                return found
        return None
    finally:
        frames.clear()  # a frame that is held keeps its function's variables alive


def _within(innermost: Any) -> Optional[str]:
    """The outermost that is told: a checkpoint that is loaded to be written again is a checkpoint."""
    found, frame = None, innermost
    for _ in range(MOST_FRAMES):
        if frame is None:
            break
        found = named(frame.f_code.co_filename, frame.f_code.co_name) or found
        frame = frame.f_back
    return found


@functools.lru_cache(maxsize=4096)
def named(file: str, function: str) -> Optional[str]:
    """What a function of this name in this file does, None for most."""
    for part, saves, loads in _FILES:
        if part in file:
            if function.startswith(saves):
                return CHECKPOINT
            if function.startswith(loads):
                return MODEL_LOAD
    return None
