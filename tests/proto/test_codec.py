"""Records over the wire and back; what is broken or hostile on the way is refused with a reason."""

from __future__ import annotations

import contextlib
import math
import zlib
from collections.abc import Callable
from dataclasses import replace

import pytest
import zstandard
from hypothesis import given, settings
from hypothesis import strategies as st

from roofwatch.model.histogram import Histogram
from roofwatch.model.kinds import Kind
from roofwatch.model.record import (
    Bound,
    BudgetState,
    Cause,
    Collective,
    Cost,
    Device,
    DeviceState,
    DeviceWindow,
    Evidence,
    Graph,
    IdleCause,
    KernelStat,
    Ledger,
    Node,
    Padding,
    Peak,
    Peaks,
    Phase,
    Process,
    ProcessState,
    Signature,
    Trigger,
    Vendor,
    Window,
)
from roofwatch.proto import codec
from roofwatch.proto.codec import WireError
from roofwatch.proto.v1 import roofwatch_pb2 as pb

# Text as a trace can hold it: any Unicode but lone surrogates, which are not UTF-8. Empty text and unknown are one.
text = st.text(st.characters(exclude_categories=["Cs"]), min_size=1, max_size=12)
maybe_text = st.none() | text
number = st.integers(0, (1 << 62) - 1)
maybe_number = st.none() | number
real = st.floats(0, 1e300, allow_nan=False)
mapping = st.dictionaries(text, text, max_size=3)

peaks = st.builds(
    Peaks,
    flops=st.dictionaries(st.tuples(text, text), st.builds(Peak, real, text), max_size=3),
    bandwidth=st.none() | st.builds(Peak, real, text),
)
devices = st.builds(
    Device,
    vendor=st.sampled_from(Vendor),
    model=st.text(st.characters(exclude_categories=["Cs"]), max_size=9),
    uuid=maybe_text,
    index=st.none() | st.integers(0, 64),
    memory_bytes=maybe_number,
    units=st.none() | st.integers(0, 1000),
    driver=maybe_text,
    inferred=st.booleans(),
    peaks=peaks,
)
processes = st.builds(
    Process,
    node=st.builds(Node, host=text, boot_id=st.just("") | text, labels=mapping),
    pid=st.integers(0, 1 << 22),
    start_unix_ns=maybe_number,
    user=maybe_text,
    job=maybe_text,
    container=maybe_text,
    rank=st.none() | st.integers(0, 9999),
    local_rank=st.none() | st.integers(0, 9),
    world_size=st.none() | st.integers(1, 9999),
    model=maybe_text,
    versions=mapping,
    labels=mapping,
)
signatures = st.builds(
    Signature,
    kernel=text,
    kind=st.sampled_from(Kind),
    op=maybe_text,
    phase=st.sampled_from(Phase),
    module=maybe_text,
    shapes=maybe_text,
    dtypes=maybe_text,
    arguments=maybe_text,
    flops=maybe_number,
    bytes=maybe_number,
    formula=maybe_text,
    precision=maybe_text,
    unit=maybe_text,
    flops_max=maybe_number,
)
causes = st.builds(
    IdleCause, st.sampled_from(Cause), number, number, number, maybe_text, number, number, maybe_number, maybe_text
)
lengths = st.lists(st.tuples(st.integers(0, (1 << 32) - 1), number), max_size=4).map(tuple)
shape = st.tuples(st.integers(0, (1 << 32) - 1), st.integers(0, (1 << 32) - 1), number)
shapes = st.lists(shape, max_size=4).map(tuple)
paddings = st.builds(Padding, number, number, number, number, number, lengths, shapes, number, number)
device_windows = st.builds(
    DeviceWindow,
    device=devices,
    span_ns=number,
    busy_ns=number,
    causes=st.lists(causes, max_size=3).map(tuple),
    exposed_copy_ns=number,
    exposed_communication_ns=number,
    memory_used_bytes=maybe_number,
    memory_peak_bytes=maybe_number,
    state=st.none() | st.builds(DeviceState, *(st.none() | st.floats(0, 1e12) for _ in range(5)), st.none() | text),
)
histograms = st.builds(Histogram, st.integers(0, 900), st.lists(number, max_size=5).map(tuple))
signed = st.none() | st.integers(-(1 << 62), 1 << 62)
costs = st.builds(
    Cost, text, number, number, number, number, number, maybe_number, maybe_number, signed, signed, maybe_number
)
ledgers = st.builds(
    Ledger, number, number, number, st.booleans(), number, number, number, number, number,
    st.dictionaries(text, number, max_size=3), number, number, number, number, number, number,
    maybe_number, maybe_number, maybe_number, maybe_number, maybe_number,
)  # fmt: skip
share = st.none() | st.floats(0, 1e6)
budgets = st.builds(
    BudgetState, text, share, share, share, signed, signed, st.none() | st.booleans(), maybe_number, maybe_number
)
states = st.builds(ProcessState, processes, number, number, budgets, st.dictionaries(text, number, max_size=3))


@st.composite
def windows(draw: st.DrawFn) -> Window:
    """A window with every field drawn."""
    on = tuple(draw(st.lists(device_windows, min_size=1, max_size=3)))
    stats = st.builds(
        KernelStat,
        signature=signatures,
        device=st.integers(0, len(on) - 1),
        calls=number,
        total_ns=number,
        min_ns=number,
        max_ns=number,
        histogram=histograms,
        bound=st.sampled_from(Bound),
        evidence=st.sampled_from(Evidence),
        roof_ns=st.none() | real,
        ridge=st.none() | real,
        step_calls=number,
        step_ns=number,
        formula_bound=st.none() | st.sampled_from(Bound),
    )
    collectives = st.builds(
        Collective, st.integers(0, len(on) - 1), text, text, number, number, st.none() | st.integers(0, 9999),
        maybe_number, maybe_number,
    )  # fmt: skip
    graphs = st.builds(
        Graph, st.integers(0, len(on) - 1), text, number, number, number, number, maybe_text, st.none() | real
    )
    return Window(
        first_step=draw(maybe_number),
        collectives=tuple(draw(st.lists(collectives, max_size=3))),
        graphs=tuple(draw(st.lists(graphs, max_size=3))),
        uid=draw(st.binary(min_size=16, max_size=16)).hex(),
        process=draw(processes),
        start_unix_ns=draw(number),
        duration_ns=draw(number),
        trigger=draw(st.sampled_from(Trigger)),
        collector=draw(text),
        devices=on,
        kernels=tuple(draw(st.lists(stats, max_size=4))),
        ledger=draw(ledgers),
        steps=draw(maybe_number),
        represents_ns=draw(maybe_number),
        shapes_recorded=draw(st.booleans()),
        cost=draw(st.none() | costs),
        padding=draw(st.none() | paddings),
        budget=draw(st.none() | budgets),
    )


@settings(deadline=None, max_examples=60)
@given(
    st.lists(windows(), max_size=3),
    st.dictionaries(text, number, max_size=2),
    st.lists(states, max_size=2),
    st.integers(1, (1 << 63) - 1),
)
def test_windows_survive_the_wire(
    sent: list[Window], drops: dict[str, int], stand: list[ProcessState], sequence: int
) -> None:
    """Every field of every window comes back as it was, unknown as unknown, with what else the agent tells."""
    envelope = codec.seal(codec.segment(sent, drops, stand), "agent", "boot", sequence)
    received = codec.unseal(pb.SegmentEnvelope.FromString(envelope.SerializeToString()))

    assert codec.windows(received) == sent
    assert codec.states(received) == stand
    assert dict(received.agent_drops) == drops
    assert (envelope.id.agent, envelope.id.boot, envelope.id.sequence) == ("agent", "boot", sequence)
    assert envelope.windows == len(sent)


def small_window(uid: str = "00" * 16) -> Window:
    """A window with one kernel on one device."""
    signature = Signature("kernel", Kind.MATMUL, op="aten::mm", flops=10, bytes=20)
    return Window(
        uid=uid,
        process=Process(Node("host"), 1),
        start_unix_ns=0,
        duration_ns=10,
        trigger=Trigger.PERIODIC,
        collector="kineto",
        devices=(DeviceWindow(Device(Vendor.CPU, "cpu"), 10, 5),),
        kernels=(KernelStat(signature, 0, 1, 5, 5, 5, Histogram(41, (1,)), Bound.MEMORY, Evidence.SHAPES),),
        ledger=Ledger(1, 1, 5, has_host_events=True),
    )


def test_repeated_things_travel_once() -> None:
    """Two windows of one process with the same kernel: one process, one device, one signature in the dictionary."""
    dictionary = codec.segment([small_window(), small_window("11" * 16)]).dictionary
    sizes = [len(x) for x in (dictionary.nodes, dictionary.processes, dictionary.devices, dictionary.signatures.id)]
    assert sizes == [1, 1, 1, 1]
    assert dictionary.strings[0] == ""


def sealed(change: Callable[[pb.Segment], object]) -> pb.SegmentEnvelope:
    """A segment that was changed before it was sealed: its checksum is right, its content is not."""
    message = codec.segment([small_window()])
    change(message)
    return codec.seal(message, "agent", "boot", 1)


BROKEN: dict[str, Callable[[pb.Segment], object]] = {
    "no strings": lambda m: m.dictionary.ClearField("strings"),
    "first string not empty": lambda m: m.dictionary.strings.__setitem__(0, "x"),
    "string index": lambda m: m.dictionary.signatures.kernel.__setitem__(0, 1 << 31),
    "missing column": lambda m: m.dictionary.signatures.ClearField("flops"),
    "signature id": lambda m: m.dictionary.signatures.id.__setitem__(0, 1),
    "unknown kind": lambda m: m.dictionary.signatures.kind.__setitem__(0, 0),
    "unknown vendor": lambda m: setattr(m.dictionary.devices[0], "vendor", "abacus"),
    "process without node": lambda m: setattr(m.dictionary.processes[0], "node", 9),
    "process": lambda m: setattr(m.windows[0], "process", 9),
    "device": lambda m: setattr(m.windows[0].devices[0], "device", 9),
    "trigger": lambda m: setattr(m.windows[0], "trigger", "whim"),
    "uid": lambda m: setattr(m.windows[0], "uid", b"short"),
    "signature index": lambda m: m.windows[0].kernels.signature.__setitem__(0, 5),
    "device of a kernel": lambda m: m.windows[0].kernels.device.__setitem__(0, 1),
    "short kernel column": lambda m: m.windows[0].kernels.ClearField("calls"),
    "histogram too short": lambda m: m.windows[0].kernels.histogram_length.__setitem__(0, 1 << 31),
    "bound": lambda m: m.windows[0].kernels.bound.__setitem__(0, 0),
    "cause": lambda m: m.windows[0].devices[0].causes.add(cause="boredom"),
}


@pytest.mark.parametrize("change", BROKEN.values(), ids=BROKEN.keys())
def test_broken_segment_is_refused(change: Callable[[pb.Segment], object]) -> None:
    """Whatever does not fit raises WireError, and nothing else."""
    with pytest.raises(WireError, match="damaged segment"):
        codec.windows(codec.unseal(sealed(change)))


def test_other_schema_says_what_to_do() -> None:
    """A segment of another schema says which side to upgrade."""
    with pytest.raises(WireError, match="segment schema 2 is not 1: bring the older"):
        codec.windows(codec.unseal(sealed(lambda m: setattr(m, "schema", 2))))


def envelope_of(payload: bytes, raw_bytes: int) -> pb.SegmentEnvelope:
    """An envelope whose checksum is right."""
    return pb.SegmentEnvelope(payload=payload, crc32=zlib.crc32(payload), raw_bytes=raw_bytes)


def test_flipped_bit_is_noticed() -> None:
    """The checksum covers the payload."""
    envelope = codec.seal(codec.segment([small_window()]), "agent", "boot", 1)
    damaged = bytearray(envelope.payload)
    damaged[len(damaged) // 2] ^= 1
    envelope.payload = bytes(damaged)
    with pytest.raises(WireError, match="checksum"):
        codec.unseal(envelope)


def test_not_zstd_not_protobuf() -> None:
    """Content that is no zstd, or no message, is damaged."""
    with pytest.raises(WireError, match="damaged segment"):
        codec.unseal(envelope_of(b"plainly not zstd", 16))
    with pytest.raises(WireError, match="not a protobuf message"):
        codec.unseal(envelope_of(zstandard.compress(b"\xff" * 50), 50))


def test_announced_size_is_checked() -> None:
    """A size above the limit is refused before anything is decompressed, a wrong one after."""
    message = codec.segment([small_window()]).SerializeToString()
    payload = zstandard.compress(message)
    with pytest.raises(WireError, match="the limit is"):
        codec.unseal(envelope_of(payload, codec.MAX_SEGMENT_BYTES + 1))
    with pytest.raises(WireError, match=f"{len(message)} bytes where {len(message) + 1} were announced"):
        codec.unseal(envelope_of(payload, len(message) + 1))


def test_bomb_is_not_unpacked() -> None:
    """A frame of a few bytes that announces a terabyte, or hides its size, is refused without allocating it.

    Frame header by RFC 8878: magic, descriptor 0xC0 (8-byte size, window byte present), window 0, size, empty block.
    """
    header = bytes.fromhex("28b52ffd") + b"\xc0\x00" + (1 << 40).to_bytes(8, "little")
    with pytest.raises(WireError, match="announces no size, or more"):
        codec.unseal(envelope_of(header + b"\x01\x00\x00", 100))
    hidden = zstandard.ZstdCompressor(write_content_size=False).compress(bytes(10_000))
    with pytest.raises(WireError, match="announces no size, or more"):
        codec.unseal(envelope_of(hidden, 10_000))


@settings(deadline=None, max_examples=200)
@given(st.binary(max_size=400), st.integers(0, 399), st.binary(min_size=1, max_size=8))
def test_random_bytes_never_escape(junk: bytes, at: int, patch: bytes) -> None:
    """Random messages, and a real one overwritten in places, give windows or WireError: no other exception."""
    real_message = bytearray(codec.segment([small_window()]).SerializeToString())
    real_message[at : at + len(patch)] = patch
    for raw in (junk, bytes(real_message)):
        with contextlib.suppress(WireError):
            codec.windows(codec.unseal(envelope_of(zstandard.compress(raw), len(raw))))


def test_unknown_is_not_zero_on_the_wire() -> None:
    """FLOPs, steps and roof unknown: -1 and NaN travel, as the .proto says, and come back as None."""
    window = small_window()
    message = codec.segment([window])
    assert message.windows[0].steps == -1
    assert math.isnan(message.windows[0].kernels.roof_ns[0])
    assert codec.windows(message)[0].kernels[0].roof_ns is None


def test_a_segment_of_the_first_version_is_understood() -> None:
    """An agent of the first version sends no column flops_max: its signatures keep their ids, and are exact."""
    signature = Signature("k", Kind.MATMUL, flops=5, bytes=7)
    assert signature.id != replace(signature, flops_max=9).id
    stats = KernelStat(signature, 0, 1, 1, 1, 1, Histogram(), Bound.COMPUTE, Evidence.SHAPES)
    window = Window(
        "0" * 32, Process(Node("n"), 1), 1, 1, Trigger.PERIODIC, "kineto",
        (DeviceWindow(Device(Vendor.CPU, "c"), 1, 1),), (stats,), Ledger(1, 1, 1, has_host_events=True),
    )  # fmt: skip
    message = codec.segment([window])
    message.dictionary.signatures.ClearField("flops_max")
    assert codec.windows(message) == [window]
    assert codec.states(message) == []  # nor any budget
    assert codec.windows(message)[0].budget is None
