"""What a job says of where it runs: an allow-list of its environment, and nothing else of it."""

from __future__ import annotations

import pytest

from roofwatch.hook import identity


def test_place_of_the_environment() -> None:
    """The downward API's variables and OpenTelemetry's, under its names; what ``roofwatch run`` names stands above."""
    environ = {
        "POD_NAME": "train-0", "POD_NAMESPACE": "ml", "POD_UID": "", "CONTAINER_NAME": "c", "SECRET": "hidden",
        "OTEL_SERVICE_NAME": "trainer", "ROOFWATCH_LABELS": '{"git": "abc", "service.name": "mine"}',
        "OTEL_RESOURCE_ATTRIBUTES": "service.version=1%2C2, k8s.pod.name=other,api.key=hidden,token,host.name=x,=,",
    }  # fmt: skip
    assert identity.labels_of(environ) == {
        "k8s.pod.name": "train-0", "k8s.namespace.name": "ml", "service.name": "mine", "service.version": "1,2",
        "git": "abc",
    }  # fmt: skip


@pytest.mark.parametrize("text", ["", "{", "[1]", "null", "{}"])
def test_labels_that_are_none(text: str) -> None:
    """Nothing is made up."""
    assert identity.labels_of({"ROOFWATCH_LABELS": text}) == {}
    assert identity.labels_of({"ROOFWATCH_LABELS": text, "POD_NAME": "p"}) == {"k8s.pod.name": "p"}


def test_job_of_the_environment() -> None:
    """Slurm before torchrun before a rendezvous; torchrun's default id names no job."""
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    torchrun = {"TORCHELASTIC_RUN_ID": "r1", "MASTER_ADDR": "n1", "MASTER_PORT": "29500"}
    assert identity.job(slurm | torchrun) == "slurm:7.0"
    assert identity.job({"SLURM_JOB_ID": "7"}) == "slurm:7"
    assert identity.job(torchrun) == "torchrun:r1"
    assert identity.job(torchrun | {"TORCHELASTIC_RUN_ID": "none"}) == "rendezvous:n1:29500"
    assert identity.job({}) is None
