"""What a hostile job says comes out as a record that fits the wire, or as nothing."""

from __future__ import annotations

import json

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.agent import messages
from roofwatch.model.record import Device, Ledger, Node, Process, Trigger, Vendor, Window
from roofwatch.proto import codec
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.store.checks import check_window

ANYTHING = st.recursive(
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats()
    | st.text()
    | st.sampled_from(["\ud800", "cpu", "nvidia", "native"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=8,
)
HELLO_KEYS = ("protocol", "pid", "model", "job", "container", "rank", "local_rank", "world_size", "labels", "versions",
              "devices", "close_path", "hook")  # fmt: skip
WINDOW_KEYS = ("format", "steps", "shapes", "cost", "padding", "steps_seen")


def some(keys):
    """A message with some of these keys holding anything."""
    return st.fixed_dictionaries({}, optional=dict.fromkeys(keys, ANYTHING))


@settings(max_examples=150, deadline=None)
@given(some(HELLO_KEYS), some(WINDOW_KEYS))
def test_whatever_a_job_says_fits_the_wire(said, shown):
    """Any JSON in any field: a hello that is understood gives a process, and a window a cost, that can be encoded."""
    hello = messages.hello_of({**said, "protocol": 1})
    window = messages.window_of({**shown, "request": 1, "start_unix_ns": 1, "duration_ns": 1, "size": 1})
    process = Process(
        Node("h"), 1, None, "u", hello.job, hello.container, hello.rank, hello.local_rank, hello.world_size,
        hello.model, hello.versions, hello.labels,
    )  # fmt: skip
    record = Window(
        uid="00" * 16, process=process, start_unix_ns=window.start_unix_ns, duration_ns=window.duration_ns,
        trigger=Trigger.PERIODIC, collector="c", devices=(), kernels=(), steps=window.steps,
        ledger=Ledger(0, 0, 0, has_host_events=False), cost=window.cost, padding=window.padding,
    )  # fmt: skip

    sent = codec.segment([record]).SerializeToString()

    assert codec.windows(pb.Segment.FromString(sent)) == [record]


def test_a_hello_as_the_hook_says_it():
    """Every field lands where it belongs; numbers of versions become text; a device of no known vendor is left out."""
    hello = messages.hello_of(
        {
            "protocol": 1, "pid": 7, "model": "llama", "labels": {"git": "abc", "n": 3}, "rank": 0, "local_rank": 0,
            "world_size": 8, "job": "slurm:1", "container": None, "versions": {"torch": "2.13.0", "bad": None},
            "devices": [{"vendor": "nvidia", "model": "H100", "uuid": "GPU-1", "index": 0, "memory_bytes": 80 << 30,
                         "units": 132, "driver": "550"}, {"vendor": "acme"}, 5],
            "close_path": "native",
        }
    )  # fmt: skip

    assert (hello.pid, hello.model, hello.rank, hello.world_size, hello.job) == (7, "llama", 0, 8, "slurm:1")
    assert hello.container is None
    assert (hello.labels, hello.versions) == ({"git": "abc", "n": "3"}, {"torch": "2.13.0"})
    assert hello.devices == (Device(Vendor.NVIDIA, "H100", "GPU-1", 0, 80 << 30, 132, "550"),)
    assert hello.close_path == "native"


def test_an_npu_tells_its_vector_cores():
    """Beside its cube cores; what is no count is unknown."""
    npu = {"vendor": "ascend", "model": "Ascend910B2", "units": 24}
    devices = [{**npu, "vector_units": told} for told in (48, None, "48", -1)]
    hello = messages.hello_of({"protocol": 1, "devices": devices})
    assert [(d.units, d.vector_units) for d in hello.devices] == [(24, 48), (24, None), (24, None), (24, None)]


def test_unknown_stays_unknown():
    """Numbers of the wrong type, sign or size are None, never 0; too long texts are cut; half a cost is none."""
    hello = messages.hello_of(
        {"protocol": 1, "rank": True, "world_size": -1, "local_rank": 1 << 40, "model": "m" * 999}
    )

    assert (hello.rank, hello.world_size, hello.local_rank) == (None, None, None)
    assert hello.model == "m" * messages.MAX_TEXT
    window = {"request": 1, "start_unix_ns": 2, "duration_ns": 3, "size": 4}
    cost = {
        "close_path": "native",
        "open_ns": 1,
        "quiesce_ns": 2,
        "close_ns": 3,
        "save_ns": 4,
        "free_ns": 5,
        "lost_in_ns": -6,
    }
    whole = messages.window_of({**window, "cost": cost})
    assert (whole.cost.free_ns, whole.cost.lost_in_ns, whole.cost.base_step_ns, whole.steps) == (5, -6, None, None)
    backwards = messages.window_of({**window, "cost": {**cost, "base_step_ns": -5, "longest_step_ns": -1}}).cost
    assert (backwards.base_step_ns, backwards.longest_step_ns) == (None, None)  # no step is shorter than nothing
    del cost["save_ns"]
    assert messages.window_of({**window, "cost": cost}).cost is None
    for needed in window:
        with pytest.raises(messages.BadMessage, match=needed):
            messages.window_of({k: v for k, v in window.items() if k != needed})


def test_surrogates_from_json_do_not_reach_the_wire():
    """JSON may spell half a character; protobuf cannot."""
    hello = messages.hello_of(json.loads('{"protocol": 1, "model": "\\ud800x", "labels": {"a": "\\udfff"}}'))

    assert (hello.model, hello.labels) == ("?x", {"a": "?"})


@pytest.mark.parametrize("number", [1 << 31, (1 << 50) - 1, 1 << 50, (1 << 62) - 1, 1 << 62, (1 << 63) - 1])
def test_no_number_of_one_job_costs_the_windows_of_another(number):
    """A segment holds windows of several jobs: what a store refuses a segment for does not get into one."""
    costs = ("open_ns", "quiesce_ns", "close_ns", "save_ns", "free_ns", "base_step_ns", "longest_step_ns",
             "lost_in_ns", "lost_after_ns", "parse_cpu_ns")  # fmt: skip
    sums = ("batches", "real_tokens", "padded_tokens", "real_squared", "padded_squared", "coarsened", "unread")
    base = {"request": 1, "start_unix_ns": 2, "duration_ns": 3, "size": 4}
    for sign in (1, -1):
        said = {
            "steps": sign * number, "first_step": sign * number,
            "cost": {"close_path": "native", **dict.fromkeys(costs[:5], 1), **dict.fromkeys(costs[5:], sign * number)},
            "padding": {**dict.fromkeys(sums, sign * number), "lengths": [[number, number]],
                        "shapes": [[number, number, number]]},
        }  # fmt: skip
        for each in (said, {**said, "cost": {**said["cost"], **dict.fromkeys(costs, sign * number)}}):
            told = messages.window_of({**base, **each})
            check_window(
                Window(
                    uid="00" * 16, process=Process(Node("h"), 1), start_unix_ns=2, duration_ns=3,
                    trigger=Trigger.PERIODIC, collector="c", devices=(), kernels=(), steps=told.steps,
                    ledger=Ledger(0, 0, 0, has_host_events=False), cost=told.cost, padding=told.padding,
                    first_step=told.first_step,
                )
            )  # fmt: skip
