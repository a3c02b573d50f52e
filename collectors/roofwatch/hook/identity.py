"""Who this process is: what the ``hello`` says. Of the environment it reads rank, job and place, nothing else."""

import json
import os
import platform
import re
import sys
from typing import Any, Dict, List, Mapping, Optional
from urllib.parse import unquote

from . import npu_devices
from .log import failure
from .native import flavour

VERSION = "0.1.0"

_RANKS = ("RANK", "SLURM_PROCID", "OMPI_COMM_WORLD_RANK", "PMI_RANK")
_LOCAL_RANKS = ("LOCAL_RANK", "SLURM_LOCALID", "OMPI_COMM_WORLD_LOCAL_RANK", "MPI_LOCALRANKID")
_SIZES = ("WORLD_SIZE", "SLURM_NTASKS", "OMPI_COMM_WORLD_SIZE", "PMI_SIZE")
# Labels under OpenTelemetry's names, as a pod's downward API and OpenTelemetry's own variables tell them. No others.
_PLACES = (
    ("POD_NAME", "k8s.pod.name"),
    ("POD_NAMESPACE", "k8s.namespace.name"),
    ("POD_UID", "k8s.pod.uid"),
    ("OTEL_SERVICE_NAME", "service.name"),
)
_ATTRIBUTES = frozenset(  # of OTEL_RESOURCE_ATTRIBUTES
    [name for _, name in _PLACES]
    + ["service.namespace", "service.version", "service.instance.id", "deployment.environment.name"]
    + ["k8s.container.name", "k8s.cluster.name", "k8s.job.name", "k8s.statefulset.name", "k8s.deployment.name"]
)
_CONTAINER = re.compile(r"(?<![0-9a-f])[0-9a-f]{64}(?![0-9a-f])")


def describe(
    torch: Any, model: Optional[str], labels: Mapping[str, str], close_path: str, npu: Any = None
) -> Dict[str, Any]:
    """The ``hello`` without its type. Call once the job computes: asking torch for its threads settles their number.

    ``npu``: what torch_npu offers, where the job computes on one.
    """
    accelerator = flavour(torch) if torch.cuda.is_available() and torch.cuda.is_initialized() else "cpu"
    versions, accelerators = _versions(torch), _accelerators(torch)
    if npu is not None:
        accelerator = "npu"
        versions.update(npu_devices.versions(sys.modules.get("torch_npu"), npu))
        try:
            accelerators = npu_devices.devices(npu)
        except Exception as error:  # a device that does not answer: the process is still seen
            failure("npu devices", error)
    threads = torch.get_num_threads()
    return {
        "protocol": 1,
        "hook": VERSION,
        "pid": os.getpid(),
        "model": model,
        "labels": dict(labels),
        "rank": _number(_RANKS),
        "local_rank": _number(_LOCAL_RANKS),
        "world_size": _number(_SIZES),
        "job": job(os.environ),
        "container": container(),
        "versions": versions,
        "devices": [*accelerators, _cpu(threads)],
        "accelerator": accelerator,
        "close_path": close_path,
        "threads": threads,
    }


def job(environ: Mapping[str, str]) -> Optional[str]:
    """The job that this is a rank of: ``slurm:JOB.STEP``, ``torchrun:ID``, ``rendezvous:HOST:PORT``, or None."""
    slurm = environ.get("SLURM_JOB_ID")
    if slurm:
        step = environ.get("SLURM_STEP_ID")
        return "slurm:%s.%s" % (slurm, step) if step else "slurm:%s" % slurm
    run = environ.get("TORCHELASTIC_RUN_ID")
    if run and run != "none":  # torchrun's default
        return "torchrun:%s" % run
    address, port = environ.get("MASTER_ADDR"), environ.get("MASTER_PORT")
    return "rendezvous:%s:%s" % (address, port) if address and port else None


def container() -> Optional[str]:
    """Id of the container, as in the path of the process's control group; None outside one or where it is hidden."""
    for path in ("/proc/self/cgroup", "/proc/self/mountinfo"):
        try:
            with open(path) as file:
                found = _CONTAINER.search(file.read())
        except (OSError, UnicodeDecodeError):
            continue
        if found:
            return found.group()
    return None


def labels_of(environ: Mapping[str, str]) -> Dict[str, str]:
    """The labels that ``roofwatch run`` passes on, and where the process runs as its environment tells it."""
    try:
        labels = json.loads(environ.get("ROOFWATCH_LABELS") or "{}")
    except ValueError:
        labels = {}
    named = {str(k): str(v) for k, v in labels.items()} if isinstance(labels, dict) else {}
    return dict(_place(environ), **named)


def _place(environ: Mapping[str, str]) -> Dict[str, str]:
    pairs = [part.partition("=") for part in environ.get("OTEL_RESOURCE_ATTRIBUTES", "").split(",")]
    found = {key.strip(): unquote(value.strip()) for key, _, value in pairs if key.strip() in _ATTRIBUTES}
    found.update((name, environ[variable]) for variable, name in _PLACES if environ.get(variable))
    return {name: value for name, value in found.items() if value}


def _number(names: Any) -> Optional[int]:
    for name in names:
        try:
            return int(os.environ[name])
        except (KeyError, ValueError):
            continue
    return None


def _versions(torch: Any) -> Dict[str, str]:
    versions = {
        "torch": str(torch.__version__),
        "python": platform.python_version(),
        "cuda": getattr(torch.version, "cuda", None),
        "hip": getattr(torch.version, "hip", None),
        "numpy": getattr(sys.modules.get("numpy"), "__version__", None),
    }
    return {name: str(version) for name, version in versions.items() if version}


def _cpu(threads: int) -> Dict[str, Any]:
    return {
        "vendor": "cpu",
        "model": cpu_model(),
        "uuid": None,
        "index": None,
        "memory_bytes": os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE"),
        "units": threads,
        "driver": None,
    }


def cpu_model() -> str:
    """The processor's name as the kernel gives it, else its architecture."""
    try:
        with open("/proc/cpuinfo") as file:
            for line in file:
                key, _, value = line.partition(":")
                if key.strip() == "model name" and value.strip():
                    return " ".join(value.split())
    except (OSError, UnicodeDecodeError):
        pass
    return platform.machine()


def _accelerators(torch: Any) -> List[Dict[str, Any]]:
    """The devices on which this process holds memory. Creates no context: asks only what is cached or static."""
    cuda = torch.cuda
    if not (cuda.is_available() and cuda.is_initialized()):
        return []
    devices = []
    for index in range(cuda.device_count()):
        if not cuda.memory_reserved(index):
            continue
        properties = cuda.get_device_properties(index)
        devices.append(
            {
                "vendor": "amd" if flavour(torch) == "rocm" else "nvidia",
                "model": properties.name,
                "uuid": str(properties.uuid) if getattr(properties, "uuid", None) else None,
                "index": index,
                "memory_bytes": int(properties.total_memory),
                "units": int(properties.multi_processor_count),
                "driver": None,
            }
        )
    return devices
