"""Questions that nobody means, sent straight to a store or past the command line: each is refused in a sentence."""

from __future__ import annotations

import json
from collections.abc import Iterator

import grpc
import pytest
from store_builders import CPU, GEMM, H100, process_of, running_store, segment_of, send, stat, window_of

from roofwatch.model.errors import UsageError
from roofwatch.proto.v1 import roofwatch_pb2 as pb
from roofwatch.proto.v1 import roofwatch_pb2_grpc as rpc
from roofwatch.store.filter import Asked, Filter

START_NS = 2_000_000_000_000_000_000


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Iterator[rpc.QueryStub]:
    """A store with two windows of one process that begin at the same moment, on different devices."""
    with running_store(tmp_path_factory.mktemp("store")) as running:
        windows = [
            window_of("of a GPU", [stat(GEMM, [1000], roof_ns=500.0)], start_unix_ns=START_NS, device=H100),
            window_of("of a CPU", [stat(GEMM, [7, 8])], start_unix_ns=START_NS, device=CPU),
            window_of("another", [stat(GEMM, [7, 8])], start_unix_ns=START_NS, process=process_of(pid=5)),
        ]
        send(running.address, [segment_of(windows, 1)], 1)
        with grpc.insecure_channel(running.address) as channel:
            yield rpc.QueryStub(channel)


@pytest.mark.parametrize(
    "options",
    ['{"x":NaN}', '{"x":1e999}', '{"x":-Infinity}', "[" * 100_000, "[1]", "{", '{"x":' + "9" * 5000 + "}", "1"],
)
def test_options_that_are_none(store: rpc.QueryStub, options: str) -> None:
    """No answer holds what JSON cannot: the store refuses the question and stays as it is."""
    sides = {"filter": pb.Filter(process="100", vendor="nvidia"), "other": pb.Filter(process="5")}
    with pytest.raises(grpc.RpcError) as caught:
        store.Run(pb.QueryRequest(query="compare", options=options, **sides))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert "options" in caught.value.details()


def test_options_cannot_rename_the_question(store: rpc.QueryStub) -> None:
    """What an answer says was asked is what was asked."""
    options = json.dumps({"name": "top", "node": "elsewhere", "bandwidth": 2})
    answer = json.loads(store.Run(pb.QueryRequest(query="whatif", options=options)).answer)
    assert (answer["query"]["name"], answer["query"]["node"], answer["query"]["bandwidth"]) == ("whatif", None, 2)


@pytest.mark.parametrize("factor", [1e-300, 1e7, 10**400, 0, -1, True, "2x", [2]])
def test_factors_that_are_none(store: rpc.QueryStub, factor: object) -> None:
    """Nothing is foretold to take for ever, or no time."""
    with pytest.raises(grpc.RpcError) as caught:
        store.Run(pb.QueryRequest(query="whatif", options=json.dumps({"bandwidth": factor})))
    assert caught.value.code() is grpc.StatusCode.INVALID_ARGUMENT


@pytest.mark.parametrize(
    "given",
    [
        {"process": "f" * 16},
        {"process": "-" + "f" * 15},
        {"since_unix_ns": -(1 << 63), "until_unix_ns": -(1 << 63) + 1},
        {"node": "'; DROP TABLE windows;--"},
        {"labels": {"": ""}},
        {"device": "%"},
    ],
)
def test_filters_that_match_nothing(store: rpc.QueryStub, given: dict[str, object]) -> None:
    """They are answered with nothing."""
    answer = json.loads(store.Run(pb.QueryRequest(query="top", filter=pb.Filter(**given))).answer)
    assert (answer["rows"], answer["coverage"]["windows"]) == ([], 0)


def test_the_earliest_time_there_is(store: rpc.QueryStub) -> None:
    """The beginning of an hour before it is no number of 64 bits."""
    answer = json.loads(store.Run(pb.QueryRequest(query="top", filter=pb.Filter(since_unix_ns=-(1 << 63)))).answer)
    assert answer["coverage"]["windows"] == 3


@pytest.mark.parametrize("given", [{"labels": {f"k{i}": "v" for i in range(101)}}, {"node": "caf\udce9"}])
def test_filters_that_no_statement_takes(given: dict[str, object]) -> None:
    """More labels than a statement may nest, and arguments of bytes that are no text."""
    with pytest.raises(UsageError):
        Asked(Filter(**given))  # type: ignore[arg-type]


def test_a_window_is_not_its_twin(store: rpc.QueryStub) -> None:
    """Two windows of one process that begin at the same moment (files without a clock): each is exported alone."""
    uids = [row["uid"] for row in json.loads(store.Run(pb.QueryRequest(query="windows")).answer)["rows"]]
    told = [json.loads(store.Run(pb.QueryRequest(query="window", options=json.dumps({"uid": u}))).answer) for u in uids]
    calls = {answer["devices"][0]["model"]: [row["calls"] for row in answer["rows"]] for answer in told[1:]}
    assert calls == {H100.model: [1], CPU.model: [2]}
    assert [len(answer["devices"]) for answer in told] == [1, 1, 1]
