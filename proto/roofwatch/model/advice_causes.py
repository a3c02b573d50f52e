"""Which remedies a cause of idle time gets."""

from __future__ import annotations

import re
from dataclasses import dataclass

from roofwatch.model.advice import COMPILED, FIXES, PREPROCESSING, SHORT_WAITS
from roofwatch.model.advice_vendors import FIXES_OF, in_words_of
from roofwatch.model.record import Vendor

# A Python function by whose name it prepares input.
_PREPROCESSING = re.compile(r"preprocess|transform\w*$|collat|tokeniz|augment|resiz|feature_extract", re.IGNORECASE)
_COMPILED = re.compile(r"Torch-Compiled Region|CompiledFunction")


@dataclass(frozen=True, slots=True)
class Wanted:
    """What is known of a case, so that no advice is given that does not fit it."""

    vendor: Vendor | None = None  # None where there are several, or it is unknown
    training: bool = True
    in_graphs: bool = False  # device graphs launch most of the work already
    waits_short: bool = False  # the host's waits are much shorter than the idle time after them
    example: str | None = None  # of the cause's longest stretch


def fixes(cause: str, wanted: Wanted) -> tuple[str, ...]:
    """The usual fixes of a cause in the vendor's words, less those that do not fit."""
    example = wanted.example or ""
    own = {} if wanted.vendor is None else FIXES_OF.get(wanted.vendor, {})
    found = own.get(cause) or FIXES[cause]
    if cause == "sync" and wanted.waits_short and wanted.vendor is not Vendor.CPU:
        return tuple(in_words_of(wanted.vendor, fix) for fix in SHORT_WAITS)
    if cause == "launch_bound" and _COMPILED.search(example) and wanted.vendor is not Vendor.CPU:
        found = (COMPILED, *(fix for fix in found if "torch.compile" not in fix))
    if cause == "host" and example.startswith("in ") and _PREPROCESSING.search(example.partition(",")[0]):
        found = (PREPROCESSING, *found)
    if not wanted.training:
        found = tuple(fix for fix in found if "optimizer" not in fix and "gradients" not in fix)
    fitting = (fix for fix in found if not wanted.in_graphs or not fix.startswith("graphs: "))
    return tuple(in_words_of(wanted.vendor, fix) for fix in fitting)
