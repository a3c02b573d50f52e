"""Which op, phase, module and step a record belongs to, on small traces where the answer is plain to see."""

from __future__ import annotations

import pytest

from roofwatch.collectors.base import Category, Limits
from roofwatch.model.record import Phase

MAIN = 100  # the thread whose id is the process id


def only(profile):
    """The one group of a profile."""
    (group,) = profile.groups
    return group


def test_external_id_is_never_used(trace, read_trace) -> None:
    """In old traces the kernel's External id equals its correlation, here 5, which is another op's External id."""
    trace.op("aten::wrong", 0, 10, **{"External id": 5}).op("aten::right", 20, 10, **{"External id": 6})
    trace.call("cudaLaunchKernel", 22, 3, 5, **{"External id": 5}).kernel("k", 40, 10, 5, **{"External id": 5})

    assert only(read_trace(trace)).op == "aten::right"


def test_innermost_op_with_inputs(trace, read_trace) -> None:
    """Op linear > addmm > (launch): the innermost one with its own texts, as the source wrote them."""
    trace.op("aten::linear", 0, 50, shapes=[[4, 8], [16, 8], [16]])
    trace.op("aten::addmm", 10, 30, shapes=[[16], [4, 8], [8, 16]], **{
        "Input Strides": [[1], [8, 1], [1, 8]], "Concrete Inputs": ["", "", "", "1", "1"],
    })  # fmt: skip
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("gemm", 40, 10, 1, grid=[4, 2, 3])

    group = only(read_trace(trace))
    assert group.op == "aten::addmm"
    assert "".join((group.shapes or "").split()) == "[[16],[4,8],[8,16]]"
    assert "".join((group.dtypes or "").split()) == '["float","float","float"]'
    assert "".join((group.strides or "").split()) == "[[1],[8,1],[1,8]]"
    assert "".join((group.concrete or "").split()) == '["","","","1","1"]'
    assert (group.linked, group.backlog, group.blocks, group.category) == (True, False, 24, Category.KERNEL)


@pytest.mark.parametrize("name", ["CompiledFunction", "record_param_comms", "autograd::engine::evaluate_function: X"])
def test_op_without_inputs_borrows_the_one_around_it(trace, read_trace, name) -> None:
    """An op without shapes says nothing about the work; the nearest op around it that has some does."""
    trace.op("outer", 0, 90, shapes=[[1]]).op("c10d::allreduce_", 5, 80, shapes=[[7]]).op(name, 10, 60)
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("k", 40, 10, 1)

    group = only(read_trace(trace))
    assert (group.op, "".join((group.shapes or "").split())) == ("c10d::allreduce_", "[[7]]")


def test_without_any_shapes_the_innermost_op_counts(trace, read_trace) -> None:
    """A window without shapes names the innermost op, and has no inputs."""
    trace.op("aten::linear", 0, 50).op("aten::addmm", 10, 30)
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("gemm", 40, 10, 1)

    profile = read_trace(trace)
    assert (only(profile).op, only(profile).shapes, profile.shapes_recorded) == ("aten::addmm", None, False)


def test_an_op_that_ended_does_not_count(trace, read_trace) -> None:
    """A launch after the inner op ended belongs to the outer one; on another thread to none."""
    trace.op("outer", 0, 50).op("inner", 10, 5)
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("a", 40, 10, 1)
    trace.call("cudaLaunchKernel", 20, 3, 2, tid=9).kernel("b", 50, 10, 2)

    found = {g.kernel: (g.op, g.linked, g.backlog) for g in read_trace(trace).groups}
    assert found == {"a": ("outer", True, False), "b": (None, False, False)}


def test_backlog(trace, read_trace) -> None:
    """A record whose call is not in the window was launched before it, provided that there are launches at all."""
    trace.op("aten::mm", 0, 50).call("cudaLaunchKernel", 20, 3, 10).kernel("a", 40, 10, 10).kernel("old", 5, 10, 3)
    with_launch = {g.kernel: (g.backlog, g.linked, g.phase) for g in read_trace(trace).groups}
    trace.events = [e for e in trace.events if e["cat"] == "kernel"]
    alone = read_trace(trace)

    assert with_launch == {"a": (False, True, Phase.FORWARD), "old": (True, False, Phase.NONE)}
    assert not any(g.backlog or g.linked for g in alone.groups)
    assert not alone.has_host_events


def test_records_and_calls_without_an_id_have_nothing_in_common(trace, read_trace) -> None:
    """A call without a correlation launched nothing that is known, nor did a record without one come from it."""
    trace.op("aten::mm", 0, 50).call("cudaLaunchKernel", 20, 3, None).kernel("a", 40, 10, None)
    assert [(g.op, g.linked, g.backlog) for g in read_trace(trace).groups] == [(None, False, False)]


def test_of_two_calls_with_one_id_the_first_launched(trace, read_trace) -> None:
    """The later one, in whatever order they are written, only shares its number."""
    trace.op("later", 100, 20).op("first", 0, 20).call("cudaLaunchKernel", 105, 3, 1)
    trace.call("cudaLaunchKernel", 5, 3, 1).kernel("a", 200, 10, 1)
    assert only(read_trace(trace)).op == "first"


def test_without_a_launch_in_the_window_nothing_is_backlog(trace, read_trace) -> None:
    """A trace that has only waits of the host does not record launches, so that none was before it."""
    trace.op("aten::mm", 0, 50).call("cudaDeviceSynchronize", 20, 3, 7).kernel("a", 40, 10, 3)
    assert not only(read_trace(trace)).backlog


def test_graph_launch_links_all_its_kernels(trace, read_trace) -> None:
    """Three kernels of one graph launch share its correlation; the op around that is not what they do."""
    trace.op("replay", 0, 50).call("cudaGraphLaunch", 20, 3, 10)
    for at in (40, 50, 60):
        trace.kernel("node", at, 5, 10)

    group = only(read_trace(trace))
    assert (group.op, group.calls, group.total_ns) == ("graph 1, unattributed", 3, 15_000)
    assert (group.linked, group.graph) == (True, 0)


def test_calls_of_the_op(trace, read_trace) -> None:
    """Two calls of one op launch the same kernel three times and once: four records of two op calls."""
    trace.op("aten::mm", 0, 50).op("aten::mm", 100, 50)
    for correlation, launched in ((1, 10), (2, 20), (3, 30), (4, 110)):
        trace.call("cudaLaunchKernel", launched, 1, correlation).kernel("k", 10 * launched, 1, correlation)
    trace.kernel("without op", 2000, 1, 99)

    found = {g.kernel: (g.calls, g.op_calls) for g in read_trace(trace).groups}
    assert found == {"k": (4, 2), "without op": (1, None)}


def test_launches_without_a_record_are_unfinished(trace, read_trace) -> None:
    """Two launches and a memset without a record; an event query is no launch."""
    trace.op("aten::mm", 0, 50).call("cudaLaunchKernel", 20, 3, 10).kernel("a", 40, 10, 10)
    trace.call("cudaLaunchKernel", 30, 3, 11).call("hipExtModuleLaunchKernel", 34, 3, 12).call(
        "cudaMemsetAsync", 38, 3, 13
    )
    trace.call("cudaEventQuery", 45, 3, 14)

    assert read_trace(trace).dropped == {"unfinished": 3}


def test_phases(trace, read_trace) -> None:
    """Backward inside an autograd node or on an autograd thread, optimizer inside its annotation, forward elsewhere."""
    trace.op("aten::mm", 0, 10, tid=MAIN).call("cudaLaunchKernel", 2, 1, 1, tid=MAIN).kernel("fwd", 5, 1, 1)
    node = "autograd::engine::evaluate_function: MmBackward0"
    trace.op(node, 20, 10, tid=7).op("MmBackward0", 21, 8, tid=7).op("aten::mm", 22, 5, tid=7)
    trace.call("cudaLaunchKernel", 23, 1, 2, tid=7).kernel("bwd", 26, 1, 2)
    trace.call("cudaLaunchKernel", 31, 1, 3, tid=7).kernel("hook", 35, 1, 3)
    trace.op("XBackward1", 36, 3, tid=MAIN).call("cudaLaunchKernel", 37, 1, 4, tid=MAIN).kernel("same thread", 40, 1, 4)
    trace.note("Optimizer.step#SGD.step", 50, 20, tid=MAIN).op("aten::_foreach_add_", 55, 10, tid=MAIN)
    trace.call("cudaLaunchKernel", 56, 1, 5, tid=MAIN).kernel("opt", 60, 1, 5)
    trace.note("Optimizer.zero_grad#SGD.zero_grad", 80, 20, tid=MAIN)
    trace.call("cudaMemsetAsync", 85, 1, 6, tid=MAIN).kernel("zero", 90, 1, 6)

    assert {g.kernel: g.phase.value for g in read_trace(trace).groups} == {
        "fwd": "forward", "bwd": "backward", "hook": "backward", "same thread": "backward", "opt": "optimizer",
        "zero": "optimizer",
    }  # fmt: skip


def test_main_thread_that_mostly_runs_backward_is_no_autograd_thread(trace, read_trace) -> None:
    """On the caller's thread a forward launch between many autograd nodes stays forward."""
    for at in range(100, 120):
        trace.op("autograd::engine::evaluate_function: AccumulateGrad", at, 0.5, tid=MAIN)
    trace.call("cudaLaunchKernel", 90, 1, 1, tid=MAIN).kernel("k", 95, 1, 1)

    assert only(read_trace(trace)).phase is Phase.FORWARD


def test_modules(trace, read_trace) -> None:
    """The path of modules around the launch, numbers taken off so that layers alike are one."""
    for layer in range(2):
        at = 100 * layer
        trace.add("python_function", f"nn.Module: Block_{layer}", at, 90)
        trace.add("python_function", f"nn.Module: Linear_{3 * layer}", at + 10, 30)
        trace.add("python_function", "torch/nn/modules/linear.py(1): forward", at + 12, 20)
        trace.op("aten::mm", at + 15, 10).call("cudaLaunchKernel", at + 20, 1, 2 * layer).kernel(
            "gemm", at + 30, 1, 2 * layer
        )
        trace.op("aten::add", at + 50, 10).call("cudaLaunchKernel", at + 52, 1, 2 * layer + 1)
        trace.kernel("add", at + 60, 1, 2 * layer + 1)

    assert {(g.kernel, g.module, g.calls) for g in read_trace(trace).groups} == {
        ("gemm", "Block.Linear", 2), ("add", "Block", 2),
    }  # fmt: skip


def test_annotations_stand_in_for_modules(trace, read_trace) -> None:
    """Without a module around the launch the innermost annotation, numbers taken off; a profiler's step is none."""
    for step in range(2):
        at = 100 * step
        trace.note(f"ProfilerStep#{step}", at, 90).note(f"batch {step} of 2", at + 1, 80)
        trace.op("aten::mm", at + 2, 10).call("cudaLaunchKernel", at + 3, 1, 3 * step).kernel("a", at + 5, 1, 3 * step)
        trace.add("python_function", "nn.Module: Block_0", at + 20, 10).op("aten::mm", at + 22, 5)
        trace.call("cudaLaunchKernel", at + 23, 1, 3 * step + 1).kernel("b", at + 25, 1, 3 * step + 1)
        trace.op("aten::mm", at + 85, 2).call("cudaLaunchKernel", at + 86, 1, 3 * step + 2)
        trace.kernel("c", at + 87, 1, 3 * step + 2)

    assert {(g.kernel, g.module, g.calls) for g in read_trace(trace).groups} == {
        ("a", "batch # of #", 2), ("b", "Block", 2), ("c", None, 2),
    }  # fmt: skip


def test_the_names_of_parts_are_bounded(trace, read_trace) -> None:
    """Annotations that are named anew each time and a path deeper than any model."""
    for i in range(200):
        note = "".join(chr(ord("a") + int(digit)) for digit in str(i))
        trace.note(note, 10 * i, 9).op("aten::mm", 10 * i, 9).call("cudaLaunchKernel", 10 * i + 1, 1, i)
        trace.kernel("k", 10 * i + 2, 1, i)
    for depth in range(100):
        trace.add("python_function", f"nn.Module: M_{depth}", 5000 + depth, 1000 - 2 * depth)
    trace.op("aten::mm", 5200, 9).call("cudaLaunchKernel", 5201, 1, 999).kernel("deep", 5202, 1, 999)

    groups = read_trace(trace).groups
    assert len({g.module for g in groups if g.kernel == "k"}) == 65  # 64 and none
    assert [g.module for g in groups if g.kernel == "deep"] == [".".join("M" * 8)]


def texts(group) -> tuple[str | None, str | None]:
    """Op and shapes without blanks."""
    return group.op, group.shapes and "".join(group.shapes.split())


def test_an_inner_op_without_formula_is_part_of_the_product_around_it(trace, read_trace) -> None:
    """Op mm launches its kernel inside an op of a library; beside an add of its own that kernel's work is open."""
    trace.op("aten::mm", 0, 50, shapes=[[4, 8], [8, 2]]).op("lib::gemm", 10, 20, shapes=[[3]])
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("alone", 40, 10, 1)
    trace.op("aten::mm", 100, 50, shapes=[[4, 8], [8, 2]]).op("lib::gemm", 110, 20, shapes=[[3]])
    trace.op("aten::add", 135, 5, shapes=[[4, 2], [4, 2]])
    trace.call("cudaLaunchKernel", 120, 3, 2).kernel("beside", 140, 10, 2)

    assert {g.kernel: texts(g) for g in read_trace(trace).groups} == {
        "alone": ("aten::mm", "[[4,8],[8,2]]"), "beside": ("lib::gemm", "[[3]]"),
    }  # fmt: skip


@pytest.mark.parametrize(
    ("name", "end", "op"),
    [
        ("lib::gemm", 15, "lib::gemm"),  # a record of the call that follows
        ("aten::empty", 15, "region"),  # an op of aten's own launches what it does itself
        ("lib::gemm", 13, "region"),  # it launched something itself
        ("lib::gemm", -60, "region"),  # too long ago
    ],
)
def test_the_record_just_before_a_launch(trace, read_trace, name, end, op) -> None:
    """Nothing around the launch has shapes: the record of the call that ended just before may have, for one launch."""
    trace.op("region", -100, 200).op(name, end - 5, 5, shapes=[[7]])
    if end == 13:
        trace.call("cudaLaunchKernel", 9, 1, 5).kernel("own", 30, 1, 5)
    trace.call("cudaLaunchKernel", 20, 3, 1).kernel("first", 40, 10, 1)
    trace.call("cudaLaunchKernel", 30, 3, 2).kernel("second", 60, 10, 2)

    found = {g.kernel: g.op for g in read_trace(trace).groups}
    assert (found["first"], found["second"]) == (op, "region")


def test_a_node_of_autograd_has_the_inputs_of_its_forward_op(trace, read_trace) -> None:
    """A kernel that the node itself launched: the forward op of the same number and name tells its inputs.

    Not the op of another name with that number, nor one of two calls with different inputs.
    """
    trace.op("lib::linear", 0, 9, shapes=[[4, 8], [2, 8]], **{"Sequence number": 5})
    trace.op("aten::t", 1, 1, shapes=[[2, 8]], **{"Sequence number": 5})
    for at in (20, 30):
        trace.op("Twice", at, 9, shapes=[[at]], **{"Sequence number": 6})
    node = "autograd::engine::evaluate_function: "
    for at, name, number in ((50, "LinearBackward", 5), (70, "TwiceBackward", 6), (90, "LinearBackward", 7)):
        trace.op(node + name, at, 15, tid=7, **{"Sequence number": number})
        trace.op(name, at + 1, 12, tid=7, shapes=[[1]], **{"Sequence number": number})
        trace.call("cudaLaunchKernel", at + 2, 1, at, tid=7).kernel(f"{name}{number}", at + 5, 1, at)

    assert {g.kernel: texts(g) for g in read_trace(trace).groups} == {
        "LinearBackward5": ("LinearBackward", "[[4,8],[2,8]]"), "TwiceBackward6": ("TwiceBackward", "[[1]]"),
        "LinearBackward7": ("LinearBackward", "[[1]]"),
    }  # fmt: skip


def test_steps(trace, read_trace) -> None:
    """Launched inside a step counts, from whatever thread and whenever it ran; launched between steps does not."""
    trace.note("ProfilerStep#7", 0, 100, tid=MAIN).note("ProfilerStep#8", 110, 90, tid=MAIN)
    trace.op("aten::mm", 10, 10).call("cudaLaunchKernel", 12, 1, 1).kernel("k", 105, 3, 1)
    trace.op("aten::mm", 102, 6).call("cudaLaunchKernel", 104, 1, 2).kernel("k", 120, 4, 2)
    trace.op("aten::mm", 150, 10).call("cudaLaunchKernel", 152, 1, 3).kernel("k", 155, 5, 3)

    profile = read_trace(trace)
    group = only(profile)
    assert (profile.steps, group.calls, group.total_ns) == (2, 3, 12_000)
    assert (group.step_calls, group.step_ns) == (2, 8_000)


def test_times_to_the_nanosecond(trace, read_trace) -> None:
    """Absolute microseconds with nanosecond digits, as text: 1712195498123456.001 + 1.234, where floats are 250 ns."""
    trace.fields = {}
    trace.add("kernel", "k", "1712195498123456.001", "1.234", device=0, correlation=1)
    trace.add("kernel", "k", "1712195498123457.236", "0.001", device=0, correlation=2)

    profile = read_trace(trace)
    assert (only(profile).total_ns, only(profile).min_ns, only(profile).max_ns) == (1235, 1, 1234)
    assert profile.devices[0].span_ns == 1236
    assert profile.start_unix_ns == 1712195498123456001


def test_relative_times_count_from_the_base(trace, read_trace) -> None:
    """The sum baseTimeNanoseconds + ts is Unix time."""
    trace.kernel("k", 2.5, 1, 1)

    assert read_trace(trace).start_unix_ns == 1_700_000_000_000_002_500


def test_copies_tell_their_bytes(trace, read_trace) -> None:
    """Bytes of a group are summed; where one record does not tell, the sum is not known."""
    trace.copy("told", 0, 1, 1, bytes=100).copy("told", 2, 1, 2, bytes=28)
    trace.copy("half told", 4, 1, 3, bytes=100).copy("half told", 6, 1, 4)

    assert {g.kernel: g.moved_bytes for g in read_trace(trace).groups} == {"told": 128, "half told": None}


def test_cpu_window_has_self_times(trace, read_trace) -> None:
    """Op linear 0-100 > addmm 10-90 > copy 20-30 and copy 40-45: 20 + 65 + 15 = 100, nothing twice."""
    trace.op("aten::linear", 0, 100, shapes=[[2, 3]]).op("aten::addmm", 10, 80, shapes=[[4]])
    trace.op("aten::copy_", 20, 10).op("aten::copy_", 40, 5)

    profile = read_trace(trace)
    found = {g.op: (g.kernel, g.calls, g.total_ns // 1000, g.shapes is None) for g in profile.groups}
    assert found == {
        "aten::linear": ("aten::linear", 1, 20, False),
        "aten::addmm": ("aten::addmm", 1, 65, False),
        "aten::copy_": ("aten::copy_", 2, 15, True),
    }
    assert {(g.category, g.linked, g.backlog) for g in profile.groups} == {(Category.CPU_OP, True, False)}
    assert [d.vendor for d in profile.devices] == ["cpu"]
    assert profile.devices[0].busy_ns == 100_000


def test_too_many_groups_are_folded_not_lost(trace, read_trace) -> None:
    """Of five kernels the two with the most time keep their names; the rest is one group with the rest of the time."""
    for index in range(5):
        trace.kernel(f"k{index}", 100 * index, index + 1, index)

    profile = read_trace(trace, Limits(max_groups=2))
    assert {(g.kernel, g.calls, g.total_ns) for g in profile.groups} == {
        ("k4", 1, 5000), ("k3", 1, 4000), ("(other)", 3, 6000),
    }  # fmt: skip
    assert profile.dropped == {"over_group_limit": 3}


def test_long_names_are_cut(trace, read_trace) -> None:
    """Names beyond the limit are cut, and those that are then the same are one."""
    trace.kernel("a" * 50 + "x", 0, 1, 1).kernel("a" * 50 + "y", 5, 1, 2)

    assert only(read_trace(trace, Limits(max_name=50))).kernel == "a" * 50


def test_events_beyond_the_limit_are_counted(trace, read_trace) -> None:
    """Of ten kernels four are kept; six are dropped, counted and told."""
    for index in range(10):
        trace.kernel("k", 10 * index, 1, index)

    profile = read_trace(trace, Limits(max_events=4))
    assert (only(profile).calls, profile.events_read, profile.dropped) == (4, 4, {"over_event_limit": 6})
    assert "only the first 4 events" in (profile.problem or "")


@pytest.mark.parametrize("category", ["xpu_runtime", "privateuse1_runtime", "mtia_runtime"])
def test_launches_of_other_runtimes(trace, read_trace, category) -> None:
    """Kineto names the calls of other devices' runtimes after these: they link as CUDA's do."""
    trace.op("aten::mm", 0, 50).add(category, "urEnqueueKernelLaunch", 20, 3, correlation=4).kernel("gemm", 40, 10, 4)
    assert only(read_trace(trace)).op == "aten::mm"
