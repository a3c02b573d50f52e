"""Pod, container and Slurm job of a process: from the kernel, whatever the process says; its pid in its namespace."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

from roofwatch.agent import place, status
from roofwatch.agent.messages import hello_of
from roofwatch.agent.place import Place, Places, Pods, of_cgroup
from roofwatch.proto import codec

JOB = Path(__file__).parent / "programs" / "place.py"
ID, OTHER = "0123456789abcdef" * 4, "f" * 64
UID = "7b0f2a4c-9d1e-4f6a-8b3c-1234567890ab"
UNDER = UID.replace("-", "_")
STATIC = "0f" * 16  # of a pod from a file on the node: a hash
GROUPS = Path("/sys/fs/cgroup/pids")  # of version 1, where this machine has it
CAN_UNSHARE = shutil.which("unshare") is not None and subprocess.run(
    ["unshare", "--pid", "--fork", "--mount-proc", "true"], capture_output=True, check=False
).returncode == 0  # fmt: skip


@pytest.mark.parametrize(
    ("text", "told"),
    [
        # Kubernetes: containerd and CRI-O under systemd, of version 2; cgroupfs, of version 1; a static pod.
        (
            f"0::/kubepods.slice/kubepods-burstable.slice/kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope",
            Place(ID, UID),
        ),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope/container", Place(ID, UID)),
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-conmon-{ID}.scope", Place(None, UID)),
        (f"12:pids:/kubepods/besteffort/pod{UID}/{ID}\n0::/", Place(ID, UID)),
        (f"0::/kubepods-besteffort-pod{UNDER}.slice:cri-containerd:{ID}", Place(ID, UID)),
        (f"0::/kubepods/pod{STATIC}/{ID}", Place(ID, STATIC)),
        # An agent in a control group namespace of its own sees the way up.
        (f"0::/../../kubepods-burstable-pod{UNDER}.slice/cri-containerd-{ID}.scope", Place(ID, UID)),
        (f"0::/../../../kubepods.slice/kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope", Place(ID, UID)),
        # A node of kind is a container itself: the innermost counts.
        (f"0::/docker/{OTHER}/a/kubelet-kubepods-pod{UNDER}.slice/cri-containerd-{ID}.scope", Place(ID, UID)),
        # A privileged container makes up a pod below its own.
        (f"0::/kubepods.slice/kubepods-pod{UNDER}.slice/crio-{ID}.scope/kubepods-pod{STATIC}.slice/x", Place(ID, UID)),
        # Docker, podman, nerdctl.
        (f"0::/system.slice/docker-{ID}.scope", Place(ID)),
        (f"4:memory:/docker/{ID}\n1:name=systemd:/docker/{ID}", Place(ID)),
        (f"0::/machine.slice/libpod-{ID}.scope/container", Place(ID)),
        (f"0::/machine.slice/libpod-conmon-{ID}.scope", Place()),
        (f"0::/user.slice/user-1000.slice/user@1000.service/user.slice/libpod-{ID}.scope/container", Place(ID)),
        (f"0::/system.slice/nerdctl-{ID}.scope", Place(ID)),
        # Slurm: version 1, version 2, several slurmd of one machine; steps that are no srun.
        ("7:memory:/slurm/uid_1/job_42/step_0/task_1\n4:cpuset:/slurm/uid_1/job_42", Place(job="slurm:42.0")),
        ("7:memory:/slurm_n1/uid_1000/job_4242/step_batch/task_0", Place(job="slurm:4242")),
        ("0::/system.slice/slurmstepd.scope/job_4242/step_3/user/task_0", Place(job="slurm:4242.3")),
        ("0::/system.slice/n1_slurmstepd.scope/job_4242/step_extern/user/task_special", Place(job="slurm:4242")),
        (f"0::/system.slice/slurmstepd.scope/job_7/step_0/user/docker-{ID}.scope", Place(ID, None, "slurm:7.0")),
        # Nothing, and what a user can make up below its own slice.
        ("0::/", Place()),
        ("0::/user.slice/user-1000.slice/session-3.scope", Place()),
        (f"0::/user.slice/user-1000.slice/kubepods/pod{UID}/x", Place()),
        ("0::/user.slice/user-1000.slice/slurm/job_1/step_0", Place()),
        (f"0::/system.slice/docker-{ID[:-1]}.scope", Place()),
        (f"0::/system.slice/docker-{ID}0.scope", Place()),
        ("", Place()),
        ("no colon\n:\n1:2", Place()),
    ],
)  # fmt: skip
def test_control_groups(text, told):
    """As runtimes and batch systems name them; worked out by hand."""
    assert of_cgroup(text) == told


def test_names_of_pods(tmp_path):
    """From kubelet's folder, looked at again for a pod that came later; names that cannot be are none."""
    for name in (f"ml_train-0_{UID}", f"kube-system_etcd_{STATIC}", "nonsense", "a_b_c_d", "Ml_x_y", "_x_y"):
        (tmp_path / name).mkdir()
    pods = Pods(str(tmp_path))
    assert pods.names(UID) == ("ml", "train-0")
    assert pods.names(STATIC) == ("kube-system", "etcd")
    later = UID.replace("7", "8")
    (tmp_path / f"ml_late_{later}").mkdir()
    assert pods.names(later) is None  # looked at a moment ago
    pods._looked -= place.AGAIN_S
    assert pods.names(later) == ("ml", "late")
    assert Pods("").names(UID) is None
    assert Pods(str(tmp_path / "none")).names(UID) is None


def in_proc(folder: Path, pid: int, cgroup: str, status: str = "") -> Path:
    """A process as /proc shows it."""
    own = folder / str(pid)
    own.mkdir()
    (own / "cgroup").write_text(cgroup)
    (own / "status").write_text(status)
    return folder


@pytest.mark.parametrize(
    ("cgroup", "said", "job", "container"),
    [
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "slurm:7.0", "slurm:7.0", None),
        ("0::/system.slice/slurmstepd.scope/job_7/step_batch/user/task_0", "slurm:7.2", "slurm:7.2", None),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "slurm:71.0", "slurm:7.0", None),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", "torchrun:x", "slurm:7.0", None),
        ("0::/system.slice/slurmstepd.scope/job_7/step_0/user/task_0", None, "slurm:7.0", None),
        (f"0::/docker/{ID}", "torchrun:x", "torchrun:x", ID),
        ("0::/", "slurm:9", "slurm:9", None),
    ],
)
def test_what_the_kernel_tells_stands_above_what_the_job_says(tmp_path, cgroup, said, job, container):
    """Job and container; of labels those that are the kernel's or a map's are not for a job to give."""
    places = Places("maps", Pods(""), in_proc(tmp_path, 5, cgroup, "Name:\tx\nNSpid:\t5\t2\t1\n"))
    labels = {"team": "a", "slurm.account": "rich", "container.id": OTHER, "process.vpid": "9", "host.name": "x",
              "k8s.pod.name": "mine"}  # fmt: skip
    hello = hello_of({"protocol": 1, "job": said, "container": OTHER, "labels": labels})
    found = places.of(5, hello, "ada")
    assert found == (job, container, {"team": "a", "k8s.pod.name": "mine", "process.vpid": "1"})
    hidden = places.of(0, hello, "ada")  # in a namespace that is not ours: its own word, for there is no other
    assert hidden == (said, OTHER, {"team": "a", "k8s.pod.name": "mine"})


@contextmanager
def groups_of(*names: str):
    """Real control groups, with the folders above them; they are gone afterwards."""
    if not os.access(GROUPS, os.W_OK):
        pytest.skip(f"no control groups can be made in {GROUPS}")
    made: list[Path] = []
    try:
        for name in names:
            for folder in [*reversed((GROUPS / name).relative_to(GROUPS).parents), Path(name)]:
                if not (GROUPS / folder).exists():
                    (GROUPS / folder).mkdir()
                    made.append(GROUPS / folder)
        yield [str(GROUPS / name) for name in names]
    finally:
        for folder in reversed(made):
            with suppress(OSError):
                folder.rmdir()


@contextmanager
def started(*command: str):
    """A job until the end of a block; gives its pid here and what it takes for it."""
    process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
    try:
        word, inner = process.stdout.readline().split()
        assert word == "ready"
        yield process, int(inner)
    finally:
        process.communicate("")


def told(agent):
    """The process that the agent tells of, once it has stopped."""
    assert agent.stop() == 0
    states = [state for segment in agent.segments() for state in codec.states(segment)]
    assert len({state.process.id for state in states}) == 1
    return states[-1].process


def test_a_real_process_in_a_pods_control_group(agents, tmp_path):
    """It says that it is of another container, pod and job: the kernel and kubelet's folder know better."""
    (tmp_path / f"ml_train-0_{UID}").mkdir()
    agent = agents("--interval", "3600", "--pod-map", str(tmp_path))
    hello = {"container": OTHER, "job": "slurm:1.0", "rank": 3, "local_rank": 1, "world_size": 4,
             "labels": {"k8s.pod.name": "other", "k8s.pod.uid": OTHER, "k8s.container.name": "main"}}  # fmt: skip
    with groups_of(f"kubepods/burstable/pod{UID}/{ID}") as groups:
        command = (sys.executable, str(JOB), str(agent.socket), json.dumps(hello), *groups)
        with started(*command) as (job, _):
            process = told(agent)
    assert (process.pid, process.container, process.rank, process.local_rank) == (job.pid, ID, 3, 1)
    assert dict(process.labels) == {
        "k8s.pod.name": "train-0", "k8s.namespace.name": "ml", "k8s.pod.uid": UID, "k8s.container.name": "main"
    }  # fmt: skip


def test_a_real_process_in_a_slurm_jobs_control_group(agents, tmp_path):
    """Step and map of the job that it is in, not of the one that it names."""
    for number, account in ((4242, "physics"), (1, "rich")):
        (tmp_path / str(number)).write_text(f"account={account}\n")
    agent = agents("--interval", "3600", "--job-map", str(tmp_path))
    with groups_of("slurm/uid_0/job_4242/step_1/task_0") as groups:
        command = (sys.executable, str(JOB), str(agent.socket), json.dumps({"job": "slurm:1.0"}), *groups)
        with started(*command):
            process = told(agent)
    assert (process.job, dict(process.labels)) == ("slurm:4242.1", {"slurm.account": "physics"})


@pytest.mark.skipif(not CAN_UNSHARE, reason="no pid namespaces can be made here")
def test_a_real_process_of_another_pid_namespace(agents):
    """Known by the pid that it has here, its own beside it."""
    agent = agents("--interval", "3600")
    unshare = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")
    with started(*unshare, sys.executable, str(JOB), str(agent.socket), "{}") as (outer, inner):
        (child,) = Path(f"/proc/{outer.pid}/task/{outer.pid}/children").read_text().split()
        process = told(agent)
    assert (process.pid, dict(process.labels)) == (int(child), {"process.vpid": str(inner)})
    assert inner < process.pid


@pytest.mark.skipif(not CAN_UNSHARE, reason="no pid namespaces can be made here")
def test_an_agent_of_another_pid_namespace_takes_the_jobs_word(tmp_path):
    """It cannot see the job: pid and container are as the job says them."""
    socket, state = tmp_path / "agent.sock", tmp_path / "state"
    log = (tmp_path / "log").open("w")
    agent = subprocess.Popen(
        ["unshare", "--pid", "--fork", "--kill-child", "--mount-proc", sys.executable, "-m", "roofwatch.agent",
         "--socket", str(socket), "--state", str(state), "--interval", "3600"], stderr=log
    )  # fmt: skip
    try:
        while not socket.exists():
            assert agent.poll() is None, (tmp_path / "log").read_text()
        with started(sys.executable, str(JOB), str(socket), json.dumps({"container": ID})) as (job, _):
            (listed,) = status.request(str(socket))["process_list"]
            assert listed["pid"] == job.pid
    finally:
        agent.kill()
        agent.wait()
        log.close()
