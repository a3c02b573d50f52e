"""The manifests: kustomize builds them, they are what the API takes, and a job finds the agent's socket."""

from __future__ import annotations

import shutil
import subprocess
import sys
from pathlib import Path

import kubernetes_validate
import pytest
import yaml

FOLDER = Path(__file__).resolve().parents[2] / "deploy" / "kubernetes"


def built(overlay: str) -> dict[str, dict]:
    """What `kubectl apply -k` would send, by kind."""
    if shutil.which("kubectl") is None:
        pytest.skip("no kubectl to build manifests with")
    told = subprocess.run(
        ["kubectl", "kustomize", FOLDER / overlay], capture_output=True, text=True, timeout=60, check=True
    )
    return {document["kind"]: document for document in yaml.safe_load_all(told.stdout)}


@pytest.mark.parametrize("version", ["1.29", "1.32", "1.36"])
@pytest.mark.parametrize("overlay", ["nvidia", "ascend"])
def test_the_api_takes_them(overlay, version):
    """Every document against the schema of that Kubernetes, strictly: no field that it does not know."""
    documents = built(overlay)
    assert set(documents) == {"Namespace", "ConfigMap", "Service", "StatefulSet", "DaemonSet"}
    for document in documents.values():
        kubernetes_validate.validate(document, version, strict=True)


def test_the_example_job_is_one():
    """It too is what the API takes, and mounts the folder that the agent's socket is in."""
    job = yaml.safe_load((FOLDER / "example" / "job.yaml").read_text())
    kubernetes_validate.validate(job, "1.32", strict=True)
    agent = built("nvidia")["DaemonSet"]["spec"]["template"]["spec"]
    theirs = {volume["name"]: volume.get("hostPath", {}).get("path") for volume in agent["volumes"]}
    mounted = {mount["mountPath"]: theirs[mount["name"]] for mount in agent["containers"][0]["volumeMounts"]}
    ours = job["spec"]["template"]["spec"]
    socket = Path(ours["containers"][0]["env"][0]["value"])
    assert built("nvidia")["ConfigMap"]["data"]["ROOFWATCH_SOCKET"] == str(socket)
    assert ours["volumes"][0]["hostPath"]["path"] == mounted[str(socket.parent)]


def test_every_setting_is_the_agents():
    """Variables of the config map are those that the agent's help names."""
    help_text = subprocess.run(
        [sys.executable, "-m", "roofwatch.agent", "--help"], capture_output=True, text=True, timeout=60, check=True
    ).stdout
    for name in built("ascend")["ConfigMap"]["data"]:
        assert f"[{name}]" in help_text.replace("\n", " ").replace("[ ", "["), name


@pytest.mark.parametrize(("overlay", "label"), [("nvidia", "nvidia.com/gpu.present"), ("ascend", "accelerator")])
def test_agents_run_where_the_devices_are_and_take_none(overlay, label):
    """The node is chosen by its label; no device is asked for, so that none is taken from a job."""
    spec = built(overlay)["DaemonSet"]["spec"]["template"]["spec"]
    assert label in spec["nodeSelector"]
    assert set(spec["containers"][0]["resources"]["limits"]) == {"cpu", "memory"}
    assert spec["hostPID"] is True


def test_monitors_choose_what_there_is():
    """Their labels and ports are those of the store's service and the agent's pods."""
    monitors, ours = built("monitoring"), built("nvidia")
    service, agent = ours["Service"], ours["DaemonSet"]["spec"]["template"]
    wanted = monitors["ServiceMonitor"]["spec"]
    assert wanted["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert wanted["endpoints"][0]["port"] in {port["name"] for port in service["spec"]["ports"]}
    wanted = monitors["PodMonitor"]["spec"]
    assert wanted["selector"]["matchLabels"].items() <= agent["metadata"]["labels"].items()
    ports = {port["name"] for port in agent["spec"]["containers"][0]["ports"]}
    assert wanted["podMetricsEndpoints"][0]["port"] in ports
