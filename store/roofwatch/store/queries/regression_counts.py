"""Calls a step of two sides of ``regressions``, compared over windows."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from roofwatch.model.regression_math import t_quantile
from roofwatch.store.queries.regression_numbers import Bools, Floats, Ints


@dataclass(frozen=True, slots=True)
class Counted:
    """Calls a step of two sides, each field an array over kernels; ``effect`` is a logarithm, ±∞ where one is 0."""

    before: Floats
    after: Floats
    effect: Floats
    half: Floats


def compare_counts(counts: Floats, after: Bools, block: Ints, tail: float) -> Counted:
    """Compare mean calls a step, shape (kernels, windows), 0 where a window's steps did not call the kernel.

    The interval is that of a ratio of means by the delta method, which holds for counts that are often 0 or constant,
    of which logarithms are no use. Whether so few windows can tell anything is ``separable``'s to say.
    """
    shares, sums = [], []
    for one in np.unique(block):
        parts = [counts[:, own & (block == one)] for own in (~after, after)]
        sizes = [part.shape[1] for part in parts]
        if min(sizes):
            shares.append(sizes[0] * sizes[1] / sum(sizes))
            sums.append([(part.mean(axis=1), part.var(axis=1, ddof=1) if n > 1 else np.zeros(len(part)), n)
                         for part, n in zip(parts, sizes, strict=True)])  # fmt: skip
    if not shares:
        nothing = np.full(len(counts), np.nan)
        return Counted(nothing, nothing, nothing, nothing)
    whole = sum(shares)
    means, variances = [], []
    for side in range(2):
        cells = [cell[side] for cell in sums]
        means.append(sum(s / whole * mean for s, (mean, _, _) in zip(shares, cells, strict=True)))
        variances.append(sum((s / whole) ** 2 * v / n for s, (_, v, n) in zip(shares, cells, strict=True)))
    df = max(1.0, float(sum(cell[side][2] - 1 for cell in sums for side in range(2))))
    with np.errstate(divide="ignore", invalid="ignore"):
        effect = np.log(means[1]) - np.log(means[0])
        error = np.sqrt(variances[0] / means[0] ** 2 + variances[1] / means[1] ** 2)
    return Counted(means[0], means[1], effect, t_quantile(tail, df) * error)
