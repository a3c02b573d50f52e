"""Where a process runs, under the names that OpenTelemetry gives to resources. Pure.

Labels of a process whose names are OpenTelemetry's are kept as they are, what is known otherwise is added:
https://opentelemetry.io/docs/specs/semconv/resource/
"""

from __future__ import annotations

from collections.abc import Mapping
from datetime import UTC, datetime

POD_NAME, POD_UID, NAMESPACE = "k8s.pod.name", "k8s.pod.uid", "k8s.namespace.name"
CONTAINER_ID, VPID, SERVICE_NAME = "container.id", "process.vpid", "service.name"
NAMESPACES = (  # of attributes; whatever begins so is a label under OpenTelemetry's name
    "cloud.", "container.", "deployment.", "host.", "k8s.", "process.", "service.",
)  # fmt: skip


def resource(
    *,
    host: str,
    pid: int,
    start_unix_ns: int | None = None,
    user: str | None = None,
    container: str | None = None,
    model: str | None = None,
    versions: Mapping[str, str] | None = None,
    labels: Mapping[str, str] | None = None,
) -> dict[str, str | int]:
    """The attributes of a process, by name; what the kernel or the agent told stands above what a label says."""
    told: dict[str, str | int] = {k: v for k, v in (labels or {}).items() if k.startswith(NAMESPACES)}
    if model is not None:
        told.setdefault(SERVICE_NAME, model)
    told |= {"host.name": host, "process.pid": pid}
    if isinstance(vpid := told.get(VPID), str) and vpid.isascii() and vpid.isdigit():
        told[VPID] = int(vpid)
    python = (versions or {}).get("python")
    started = None if start_unix_ns is None else datetime.fromtimestamp(start_unix_ns / 1e9, UTC)
    known = {
        "process.owner": user,
        "process.creation.time": None if started is None else f"{started:%Y-%m-%dT%H:%M:%S}.{started:%f}"[:-3] + "Z",
        "process.runtime.name": None if python is None else "cpython",
        "process.runtime.version": python,
        CONTAINER_ID: container,
    }
    return dict(sorted((told | {name: value for name, value in known.items() if value is not None}).items()))
