"""Ids of what has no id in the record: content hashes, the same from every sender."""

from __future__ import annotations

from collections.abc import Iterable

from roofwatch.model.answer import device_json
from roofwatch.model.ids import content_id
from roofwatch.model.record import Device, Node


def node_id(node: Node) -> int:
    """A machine since its last boot."""
    return content_id("node", node.host, node.boot_id)


def agent_id(name: str, boot: str) -> int:
    """An agent since its last start."""
    return content_id("agent", name, boot)


def text_id(text: str) -> int:
    """A name of a kernel, an op or a module."""
    return content_id("text", text)


def device_id(device: Device) -> int:
    """Everything that is known of a device, its peaks too: a new driver or calibration makes a new row."""
    return content_id("device", device.driver, device_json(device))


def peaks_id(device: Device) -> int:
    """What roofs rest on: the same for all devices of one model with the same peaks."""
    return content_id("peaks", device.vendor, device.model, device_json(device)["peaks"])


def devices_id(devices: Iterable[int]) -> int:
    """A window's devices, in any order, by their ids."""
    return content_id("devices", *sorted(set(devices)))
