"""The ops of a graph capture, heard without changing them, and the replays of a window.

A CPU has no graphs: where capture and replay are needed, a class with their names stands in. The ops, the dispatch
mode that hears them, torch.compile, the hook, its socket and its messages are real.
"""

from __future__ import annotations

import json
import subprocess
import sys
import types
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from heard import heard, names
from torch import nn
from torch.nn import functional
from torch.profiler import ProfilerActivity, profile
from torch.utils._python_dispatch import _get_current_dispatch_mode_stack

from roofwatch.hook import oplog


@pytest.fixture(autouse=True)
def nothing_left() -> Iterator[None]:
    """No test leaves a mode behind."""
    yield
    assert _get_current_dispatch_mode_stack() == []


def block() -> Callable[[], Any]:
    """Ops of many kinds on small tensors: products, norms, lists, factories, scalars, casts."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(8, 16), nn.GELU(approximate="tanh"), nn.LayerNorm(16), nn.Linear(16, 4, bias=False))
    x, q = torch.randn(3, 8), torch.randn(1, 2, 4, 8)

    def work() -> None:
        y = model(x)
        torch.cat([y, y.t().contiguous().t()], 1).clamp_(0.1).sum(1, keepdim=True)
        functional.scaled_dot_product_attention(q, q, q, is_causal=True)
        x.to(torch.float16).mul(2.5)
        functional.conv2d(torch.ones(1, 1, 4, 4), torch.ones(2, 1, 3, 3), stride=2, padding=1)
        torch.where(x > 0, x, 0.0).topk(2)
        torch._foreach_add([x, x], 1.0)

    return work


# -- what is heard -----------------------------------------------------------------------------------------------------


def test_a_log_says_what_a_profile_says(tmp_path: Path) -> None:
    """Each call's four texts are, to the letter of their JSON, those of torch's own profile of the same work."""
    work = block()
    with torch.no_grad():
        log = heard(work)
        with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
            work()
    recorded.export_chrome_trace(str(tmp_path / "trace.json"))
    keys = ("Input Dims", "Input type", "Input Strides", "Concrete Inputs")
    told = {
        (event["name"], json.dumps([event["args"].get(key) for key in keys]))
        for event in json.loads((tmp_path / "trace.json").read_text())["traceEvents"]
        if event.get("cat") == "cpu_op"
    }
    factories = {"aten::ones"}  # a dtype that was not asked for is filled in below where a mode listens
    calls = [call for call in log["calls"] if call[0] not in factories]
    missing = [
        call for call in calls if (call[0], json.dumps([json.loads(text) for text in call[1:5]])) not in told
    ]  # fmt: skip
    assert missing == []
    assert {"aten::addmm", "aten::mm", "aten::gelu", "aten::native_layer_norm", "aten::cat", "aten::topk"} <= set(
        names(log)
    )
    assert {"aten::convolution", "aten::_foreach_add", "aten::_to_copy"} <= set(names(log))


def test_alike_calls_are_written_once() -> None:
    """Fifty calls of two kinds are two calls and an order of fifty; the same work has the same key, other work not."""
    a, b = torch.ones(2, 3), torch.ones(3, 2)
    with torch.no_grad():
        log = heard(lambda: [a @ b if i % 2 else b @ a for i in range(50)])
    assert names(log) == ["aten::mm"] * 50
    assert (len(log["calls"]), log["order"]) == (2, [0, 1] * 25)
    assert oplog.key_of(json.dumps(log)) != oplog.key_of(json.dumps(log | {"cut": True}))


def test_backward_is_marked(monkeypatch: pytest.MonkeyPatch) -> None:
    """With everything heard, ops inside a node of autograd carry a 1, the others a 0."""
    monkeypatch.setenv("ROOFWATCH_GRAPH_LOG", "all")
    w = torch.ones(3, 3, requires_grad=True)
    log = heard(lambda: (torch.ones(2, 3) @ w).square().sum().backward())
    assert [(call[0], call[6]) for call in log["calls"] if "mm" in call[0]] == [("aten::mm", 0), ("aten::mm", 1)]


def test_gradients_and_off_are_not_heard(monkeypatch: pytest.MonkeyPatch) -> None:
    """With gradients on, or told so, no mode is there at all."""
    seen: list[int] = []
    x = torch.ones(2)

    def work() -> None:
        seen.append(len(_get_current_dispatch_mode_stack()))
        x + x

    assert heard(work)["order"] == []
    monkeypatch.setenv("ROOFWATCH_GRAPH_LOG", "off")
    with torch.no_grad():
        assert heard(work)["order"] == []
    monkeypatch.delenv("ROOFWATCH_GRAPH_LOG")
    with torch.no_grad():
        assert names(heard(work)) == ["aten::add"]
    assert seen == [0, 0, 1]


def test_kernels_launched_by_name(monkeypatch: pytest.MonkeyPatch) -> None:
    """A Triton kernel is its own op, inside an op it is that op's; afterwards its class is as it was.

    There is no Triton without a device: a class of its name and form stands in.
    """

    class JITFunction:
        def __init__(self, name: str) -> None:
            self.__name__ = name

        def run(self, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> str:
            del args, grid, warmup, kwargs
            return "launched"

    module = types.ModuleType("triton.runtime.jit")
    module.JITFunction = JITFunction  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "triton.runtime.jit", module)
    before = JITFunction.__dict__["run"]
    kernel, x = JITFunction("my_kernel"), torch.ones(4)

    @torch.library.custom_op("roofwatch_test::outer", mutates_args=())
    def outer(x: torch.Tensor) -> torch.Tensor:
        kernel.run(x, 1, grid=(1,), warmup=False)
        return x.clone()

    def work() -> None:
        assert kernel.run(x, 7, grid=(1,), warmup=False) == "launched"
        kernel.run(x, grid=(1,), warmup=True)  # compiles only
        outer(x)

    with torch.no_grad():
        log = heard(work)
    assert JITFunction.__dict__["run"] is before
    told = [(log["calls"][i][0], log["calls"][i][1], log["calls"][i][5]) for i in log["order"]]
    assert told[0] == ("my_kernel", "[[4],[]]", "my_kernel")
    inside = [("roofwatch_test::outer", "[[4]]", None), ("roofwatch_test::outer", "[[4]]", "my_kernel")]
    assert told[1:3] == inside


# -- nothing is changed ------------------------------------------------------------------------------------------------


def leaves(work: Callable[[], Any], listened: bool) -> Counter[tuple[str, str]]:
    """How often each op that calls no other ran, with its shapes, by torch's own profiler."""
    with profile(activities=[ProfilerActivity.CPU], record_shapes=True) as recorded:
        if listened:
            heard(work)
        else:
            work()
    return Counter((e.name, str(e.input_shapes)) for e in recorded.events() if not e.cpu_children and _works(e.name))


def _works(name: str) -> bool:
    """Whether an op computes: views and allocations differ by whether a caller is heard, and launch nothing."""
    quiet = ("empty", "view", "as_strided", "resize_", "detach", "_reshape_alias", "alias", "expand", "t", "transpose")
    return name.startswith("aten::") and name[6:] not in quiet


def rotary() -> None:
    """Half of each head turned, as in the attention of most language models."""
    x = torch.ones(1, 2, 3, 4)
    torch.cat([-x[..., 2:], x[..., :2]], -1) * x.cos() + x.sin()


def indexing() -> None:
    """Rows put, filled and taken."""
    x = torch.ones(4, 4)
    x.index_put_((torch.tensor([1]),), x[:1] * 2)
    x.masked_fill(x > 1, 0.0).gather(1, torch.zeros(4, 1, dtype=torch.int64))


def loss() -> None:
    """Softmax and a loss."""
    functional.cross_entropy(torch.ones(3, 4).softmax(-1).log(), torch.arange(3))


def model(made: Callable[[], nn.Module], *sizes: int) -> Callable[[], Callable[[], Any]]:
    """A model in inference mode, on an input of ones."""

    def make() -> Callable[[], Any]:
        module, x = made().eval(), torch.ones(*sizes)
        return lambda: module(x)

    return make


INFERENCE: dict[str, Callable[[], Callable[[], Any]]] = {
    "block": block,
    "encoder": model(lambda: nn.TransformerEncoderLayer(8, 2, 16, batch_first=True), 2, 3, 8),
    "lstm": model(lambda: nn.LSTM(4, 4), 2, 1, 4),
    "convolution": model(lambda: nn.Sequential(nn.Conv2d(1, 2, 3), nn.BatchNorm2d(2), nn.MaxPool2d(2)), 1, 1, 8, 8),
    "rotary": lambda: rotary,
    "indexing": lambda: indexing,
    "loss": lambda: loss,
}


@pytest.mark.parametrize("name", INFERENCE)
def test_the_same_ops_run_whether_heard_or_not(name: str) -> None:
    """Without gradients every op that computes runs as often and on the same shapes with us as without."""
    with torch.no_grad():
        work = INFERENCE[name]()
        work()
        assert leaves(work, listened=True) == leaves(work, listened=False)


def test_compiled_code_runs_as_compiled() -> None:
    """A compiled function is neither compiled again nor left to eager where it is heard; what it calls is heard."""
    code = """
    import torch, sys
    from roofwatch.hook.listening import Listener
    assert "torch._dynamo" not in sys.modules
    with torch.no_grad():
        quiet = Listener(torch); torch.ones(2).add(1); quiet.stop()
    assert "torch._dynamo" not in sys.modules, "we import what the job does not use"
    from torch._dynamo.utils import counters
    graphs = []
    def backend(module, inputs):
        graphs.append(module)
        return module.forward
    function = torch.compile(lambda x: (x @ x).relu(), backend=backend)
    with torch.no_grad():
        function(torch.ones(3, 3))
        before = (len(graphs), counters["frames"]["total"])
        listener = Listener(torch)
        function(torch.ones(3, 3))
        listener.stop()
        assert (len(graphs), counters["frames"]["total"]) == before, "compiled again"
        listener = Listener(torch)
        fresh = torch.compile(lambda x: x.exp() + 1, backend=backend)
        fresh(torch.ones(3))
        listener.stop()
        assert len(graphs) == before[0] + 1, "left to eager"
    print(len(listener.log), counters["graph_break"])
    """
    lines = [line.removeprefix("    ") for line in code.splitlines()]
    done = subprocess.run([sys.executable, "-c", "\n".join(lines)], capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "3 Counter()\n"), done.stderr


def test_errors_of_the_job_are_the_jobs() -> None:
    """An op that fails fails as without us, and what follows is heard."""
    x = torch.ones(2, 3)

    def work() -> None:
        with pytest.raises(RuntimeError, match="cannot be multiplied"):
            x @ x
        x + 1

    with torch.no_grad():
        assert names(heard(work)) == ["aten::mm", "aten::add"]


def test_what_cannot_be_noted_is_let_pass(monkeypatch: pytest.MonkeyPatch) -> None:
    """A fault of ours ends the log and nothing else."""
    monkeypatch.setattr(oplog.OpLog, "op", lambda *_: 1 / 0)
    with torch.no_grad():
        found = []
        log = heard(lambda: found.append(torch.ones(2) + 1))
    assert found[0].tolist() == [2, 2]
    assert log["order"] == []


def test_tensors_of_other_kinds_are_named_only() -> None:
    """Of a call on a tensor subclass the sizes may not be the kernel's: name, no inputs."""
    with torch.no_grad():
        nested = torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(1, 3)], layout=torch.jagged)
        log = heard(nested.sin)
    assert [call[:2] for call in log["calls"] if call[0] == "aten::sin"] == [["aten::sin", "[]"]]


def test_numbers_that_are_equal_are_not_the_same_argument() -> None:
    """x.add(1), x.add(1.0) and x.add(True) are three calls with three texts; x.add(1) again is the first."""
    log = oplog.OpLog()
    numbers = [
        log.op("aten::add", "add", None, (value, [value]), {"alpha": value}, False) for value in (1, 1.0, True, 1)
    ]
    assert numbers == [0, 1, 2, 0]
    calls = json.loads(log.seal() or "")["calls"]
    assert [json.loads(call[4]) for call in calls] == [["1", "[1]"], ["1.", "[1.]"], ["True", "[True]"]]
