"""The answer about padding: lengths, utilisation, device time by how it scales, schemes, and what to do."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

from roofwatch.model.answer import ratio
from roofwatch.model.padding_schemes import BUCKETS, PADDING_FREE, Seen, rows
from roofwatch.model.padding_split import Scaling
from roofwatch.model.padding_time import DeviceTime

STAY, BUCKET, FREE, ALREADY = "stay", "bucket", "padding_free", "already"

SMALL = 0.1  # of the tokens is padding: lengths that vary so little are not worth another way to batch
WORTH = 0.05  # of the device time: what less than that saves costs more in complexity
HIGH_RATE_HOURS = 2.4  # device-hours a day, a tenth of a device that is always busy: worth changing the model's code
NEARLY_ALL = 0.9  # of what the best number of buckets saves: then fewer buckets do
PACKED = 0.5  # of the time in attention: the job's attention works on packed sequences already

DEMANDS = (
    "attention that is told where sequences begin: cu_seqlens (flash_attn_varlen, xformers), TND on Ascend",
    "positions counted within each sequence",
    "a key-value cache by tokens or pages, where the job generates",
    "loss and masks over real tokens only, and no first token predicted from the sequence before",
)


def report(seen: Seen) -> dict[str, Any]:
    """The parts of an answer; ``rows`` is one of them."""
    found = rows(seen)
    return {
        "lengths": seen.padding.as_json(),
        "utilisation": {"linear": seen.padding.linear, "quadratic": seen.padding.quadratic},
        "split": None if seen.time is None else split(seen.time),
        "device_hours_per_day": seen.device_hours_per_day,
        "recommendation": recommendation(seen, found),
        "rows": found,
    }


def split(time: DeviceTime) -> dict[str, Any]:
    """Device time by how it scales, with shares; what of it is latency bound or of unknown roof."""
    whole, scaling = time.total_ns, time.scaling_ns
    attention = time.by[Scaling.PACKED] + time.fused.total_ns + time.scores.total_ns
    return {
        "est_ns": round(whole),
        **{f"{how}_ns": round(ns) for how, ns in time.by.items()},
        **{f"{how}_share": ratio(ns, whole) for how, ns in time.by.items()},
        "packed_attention_share": ratio(time.by[Scaling.PACKED], attention),
        "latency_share": ratio(time.latency_ns, scaling),
        "unroofed_share": ratio(time.unroofed_ns, scaling),
        "fits": time.fits,
    }


def recommendation(seen: Seen, found: Sequence[Mapping[str, Any]]) -> dict[str, Any] | None:
    """What to do and why; null where no batch was told.

    Variance small: stay. Large: buckets; and where padding-free wins device-hours enough beyond them, padding-free.
    """
    used = seen.padding.linear
    if used is None:
        return None
    free = next(row for row in found if row["scheme"] == PADDING_FREE)
    best = _fewest([row for row in found if row["scheme"] == BUCKETS], seen)
    told: dict[str, Any] = {
        "padded_share": 1.0 - used,
        "variation": seen.padding.as_json()["variation"],
        "free_share": free["saved_share"],
        "free_device_hours_per_day": free["saved_device_hours_per_day"],
        "buckets": None if best is None else best[0]["buckets"],
        "how": None if best is None else best[1],
        "boundaries": None if best is None else best[0]["boundaries"],
        "bucket_share": None if best is None else best[2],
    }
    told["extra_device_hours_per_day"] = _extra(seen, told)
    told["packed_share"] = None if seen.time is None else split(seen.time)["packed_attention_share"]
    do = _decided(seen, told)
    return {"do": do, "reason": _reason(do, told, seen), "demands": list(DEMANDS) if do == FREE else [], **told}


def _reason(do: str, told: Mapping[str, Any], seen: Seen) -> str:
    padded, free, bucket = (told[key] for key in ("padded_share", "free_share", "bucket_share"))
    if do == ALREADY:
        share = _percent(told["packed_share"])
        return (
            f"Attention works on packed sequences already ({share} of its time), and few kernels have the shapes of "
            "padded batches."
        )
    begin = f"{_percent(padded)} of the tokens are padding"
    if do == STAY:
        small = "" if free is None else f"; without it {_percent(max(0.0, free))} of the device time would be saved"
        return f"Lengths vary little for how they are batched: {begin}{small}."
    begin = f"Lengths vary much: {begin}"
    if free is None:
        return f"{begin}. No kernels with the shapes of these batches are there to tell what that takes."
    if do == FREE:
        hours, best = told["extra_device_hours_per_day"], _percent(bucket or 0.0)
        return (
            f"{begin}. Without it {_percent(free)} of the device time is saved, with the best buckets {best}: a "
            f"difference of {hours:.1f} device-hours a day."
        )
    if seen.device_hours_per_day is None:
        rest = "how much that is a day is not known, and where it is much, that pays"
    else:
        hours = max(0.0, told["extra_device_hours_per_day"] or 0.0)
        rest = f"which is {hours:.1f} device-hours a day more, and asks for changes of the model"
    saved = f"Buckets save {_percent(bucket or 0.0)} of the device time; no padding at all {_percent(free)}"
    return f"{begin}. {saved}, {rest}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"


def _decided(seen: Seen, told: Mapping[str, Any]) -> str:
    free, bucket = told["free_share"], told["bucket_share"] or 0.0
    if not seen.timed and (told["packed_share"] or 0.0) >= PACKED:
        return ALREADY
    if told["padded_share"] < SMALL or (free is not None and max(free, bucket) < WORTH):
        return STAY
    if (told["extra_device_hours_per_day"] or 0.0) >= HIGH_RATE_HOURS:
        return FREE
    return BUCKET


def _extra(seen: Seen, told: Mapping[str, Any]) -> float | None:
    """Device-hours a day that padding-free saves beyond the best buckets."""
    free = told["free_share"]
    return None if free is None else seen.hours(free - max(0.0, told["bucket_share"] or 0.0))


def _fewest(buckets: Sequence[Mapping[str, Any]], seen: Seen) -> tuple[Mapping[str, Any], str, float | None] | None:
    """The fewest buckets that save nearly what the best number saves, how they are filled, and what they save.

    Without device time: the fewest whose utilisation comes nearly as far as that of the most.
    """
    if not buckets:
        return None
    if not seen.timed:
        used, most = seen.padding.linear or 0.0, buckets[-1]["linear_utilisation"]
        enough = used + NEARLY_ALL * (most - used)
        return next(row for row in buckets if row["linear_utilisation"] >= enough), "sorted", None
    names = (("saved_share", "split"), ("sorted_saved_share", "sorted"))
    most = max(row[key] for row in buckets for key, _ in names)
    for row in buckets:
        for key, how in names:
            if row[key] >= NEARLY_ALL * most:
                return row, how, row[key]
    row = max(buckets, key=lambda r: max(float(r[key]) for key, _ in names))
    key, how = max(names, key=lambda name: float(row[name[0]]))
    return row, how, row[key]
