"""The numbers of ``regressions``: log-ratios of two sides over windows, by arrays (rows: kernels, columns: windows).

In the store and not in ``roofwatch.model``, which is standard library only: a day is 240,000 values, and the
simulation that proves the error rates makes 10¹⁰ of them with this very code.

Of each kernel and side: windows further from their block's median than any noise are left out; block means (a block is
one device, or one rank: what differs between them is no difference of the sides); the log-ratio is the mean of the
blocks' differences, weighted by their windows as least squares does. Each side has a variance of its own (Welch 1947),
larger by (1 + r) / (1 - r) where windows resemble the one before (r: autocorrelation, one for all kernels). It borrows
from the side's other kernels the more, the fewer windows there are: the posterior variance under a scaled inverse χ²
prior fitted by moments of log s² (Smyth 2004, Stat. Appl. Genet. Mol. Biol. 3(1):3, sections 6.1 and 6.2; "limma"). A
kernel whose variance cannot be of that prior keeps its own (after Phipson et al. 2016, Ann. Appl. Stat. 10(2):946).
"""

from __future__ import annotations

from dataclasses import dataclass, fields
from functools import lru_cache

import numpy as np
import numpy.typing as npt

from roofwatch.model.regression_math import DF_MOST, digamma, f_tail, t_quantile, trigamma, trigamma_inverse

Floats = npt.NDArray[np.float64]
Ints = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]

OUTLIER = 1e-6  # how seldom a window without a reason lies as far out as an outlier, on either end
OUTLIERS_MOST = 4  # at most one window in so many is an outlier: what happens more often is how the kernel is
NOISE_FLOOR = 5e-4  # no clock is steadier; a variance of 0 (constant times) would make everything significant
BLOCK_PAIRS = 7  # pairs of neighbours in a block, at least, to tell whether windows resemble their neighbours
DRIFT_MOST = 0.9
STRANGER = 0.01  # a variance that the prior makes less likely than this is not of it
BORROWERS = 3  # kernels that a prior is fitted to, at least
_NORMAL_MAD = 1.482602218505602  # standard deviation ÷ median absolute deviation of a normal distribution
_MAD_EFFICIENCY = 0.37  # degrees of freedom that a median absolute deviation is worth, against a standard deviation
_MAD_PRIOR = 4.0  # degrees of freedom lent to it by the other kernels: it only says what an outlier is
# What a median absolute deviation of n values falls short of (Croux and Rousseeuw 1992, COMPSTAT 1:411).
_MAD_SMALL = {2: 1.196, 3: 1.495, 4: 1.363, 5: 1.206, 6: 1.200, 7: 1.140, 8: 1.129, 9: 1.107}


@dataclass(frozen=True, slots=True)
class Prior:
    """What the kernels of one side lend each other: a variance, and the degrees of freedom that it is worth."""

    df: float
    variance: float


@dataclass(frozen=True, slots=True)
class Compared:
    """Log-ratios after ÷ before, each field an array over kernels; NaN where nothing can be said.

    ``before`` and ``after`` are the sides' means of the logarithms, ``noise_…`` standard deviations from window to
    window (as used: what was borrowed included), ``n_…`` windows used, ``outliers_…`` those left out, ``missed``
    whether a side has more outliers than outliers can be (none is left out then). ``kept`` has shape (kernels,
    windows): the values that the means are of.
    """

    effect: Floats
    error: Floats  # standard error
    df: Floats
    before: Floats
    noise_before: Floats
    noise_after: Floats
    n_before: Ints
    n_after: Ints
    outliers_before: Ints
    outliers_after: Ints
    missed: Bools
    spread: Floats  # error² ÷ noise² if both sides had the same noise: 1/n before + 1/n after with one block
    kept: Bools

    def half_width(self, tail: float) -> Floats:
        """Half the interval outside of which the truth lies with probability ``tail`` on either end."""
        result: Floats = self.error * t_quantiles(tail, self.df)
        return result

    def row(self, i: int) -> Compared:
        """One kernel's figures, as scalars."""
        return Compared(*(getattr(self, f.name)[i] for f in fields(self)))


@dataclass(slots=True)
class _Side:
    """One side's blocks: counts, means and variance of the values that are no outliers."""

    counts: Ints  # (kernels, blocks)
    means: Floats  # (kernels, blocks)
    variance: Floats
    df: Floats
    outliers: Ints
    missed: Bools
    kept: Bools  # (kernels, windows): the values that are no outliers
    drift: float  # the variance of a mean ÷ that of as many independent windows


def compare(
    values: Floats, after: Bools, block: Ints, *, borrow: bool = True, priors: tuple[Prior, Prior] | None = None
) -> Compared:
    """Compare two sides of logarithms, shape (kernels, windows), NaN where a window has no value.

    Args:
        values: one logarithm a kernel and window.
        after: of each window, whether it is of the second side.
        block: of each window, its block's number.
        borrow: whether kernels borrow each other's variance.
        priors: what to borrow instead of what these values tell.
    """
    blocks = np.unique(block)
    sides = [_side(values[:, own], block[own], blocks) for own in (~after, after)]
    first, second = sides
    lent = priors or (_prior(first), _prior(second))
    moderated = [_moderated(side, prior if borrow else None) for side, prior in zip(sides, lent, strict=True)]
    with np.errstate(invalid="ignore", divide="ignore"):
        share = _shares(first.counts, second.counts)
        before = _weighted(share, first.means)
        effect = _weighted(share, second.means) - before
        spreads = [_weighted(share * share, 1.0 / np.maximum(side.counts, 1)) for side in sides]
        parts = [v * spread * side.drift for (v, _), spread, side in zip(moderated, spreads, sides, strict=True)]
        total = parts[0] + parts[1]
        # Satterthwaite's degrees of freedom of a sum of two variances.
        df = total**2 / sum(part**2 / own for part, (_, own) in zip(parts, moderated, strict=True))
    kept = np.zeros(values.shape, dtype=np.bool_)
    kept[:, ~after], kept[:, after] = first.kept, second.kept
    return Compared(
        effect=effect,
        error=np.sqrt(total),
        df=np.minimum(df, DF_MOST),
        before=before,
        noise_before=np.sqrt(moderated[0][0]),
        noise_after=np.sqrt(moderated[1][0]),
        n_before=first.counts.sum(axis=1),
        n_after=second.counts.sum(axis=1),
        outliers_before=first.outliers,
        outliers_after=second.outliers,
        missed=first.missed | second.missed,
        spread=spreads[0] + spreads[1],
        kept=kept,
    )


def _shares(first: Ints, second: Ints) -> Floats:
    """What each block's difference counts for, (kernels, blocks): n₁n₂ ÷ (n₁ + n₂), as least squares has it."""
    weight = np.where((first > 0) & (second > 0), first * second / np.maximum(first + second, 1), 0.0)
    return np.asarray(weight / weight.sum(axis=1, keepdims=True))


def priors_of(values: Floats, after: Bools, block: Ints) -> tuple[Prior, Prior]:
    """What the kernels of each side lend each other."""
    blocks = np.unique(block)
    first, second = (_prior(_side(values[:, own], block[own], blocks)) for own in (~after, after))
    return first, second


def _weighted(share: Floats, what: Floats) -> Floats:
    """The sum of share × what over blocks, where a share of 0 needs no value."""
    nothing = np.where(np.isnan(share), np.nan, 0.0)
    return np.asarray(np.where(share > 0, share * np.nan_to_num(what), nothing).sum(axis=1))


def _side(values: Floats, block: Ints, blocks: Ints) -> _Side:
    columns = [np.flatnonzero(block == one) for one in blocks]
    kept, outliers, missed = _without_outliers(values, columns)
    counts = np.empty((len(values), len(columns)), dtype=np.int64)
    means = np.empty(counts.shape)
    squares, products, pairs = np.zeros(len(values)), np.zeros(len(values)), 0.0
    for i, own in enumerate(columns):
        part = kept[:, own]
        known = ~np.isnan(part)
        counts[:, i] = known.sum(axis=1)
        filled = np.where(known, part, 0.0)
        with np.errstate(invalid="ignore"):
            means[:, i] = np.where(counts[:, i] > 0, filled.sum(axis=1) / np.maximum(counts[:, i], 1), np.nan)
        rest = np.where(known, part - means[:, i : i + 1], 0.0)
        squares += (rest**2).sum(axis=1)
        products += (rest[:, 1:] * rest[:, :-1]).sum(axis=1)
        pairs += max(len(own) - 1, 0)
    df = np.maximum(counts - 1, 0).sum(axis=1).astype(np.float64)
    variance = np.where(df > 0, np.maximum(squares / np.maximum(df, 1.0), NOISE_FLOOR**2), np.nan)
    return _Side(
        counts, means, variance, df, outliers, missed, ~np.isnan(kept), _drift(squares, products, pairs, len(columns))
    )


def _drift(squares: Floats, products: Floats, pairs: float, blocks: int) -> float:
    """How much more the mean of windows in a row varies than that of independent ones: (1 + r) / (1 - r) of AR(1).

    r is the mean lag-1 autocorrelation over kernels, which falls short by 1 ÷ windows a block; below 0 it is noise.
    """
    usable = squares > 0
    if pairs < BLOCK_PAIRS * blocks or not usable.any():
        return 1.0
    r = float((products[usable] / squares[usable]).mean()) + blocks / pairs
    r = min(max(r, 0.0), DRIFT_MOST)
    return (1.0 + r) / (1.0 - r)


def _without_outliers(values: Floats, columns: list[Ints]) -> tuple[Floats, Ints, Bools]:
    """The values with NaN for outliers, how many these are, and whether there were too many to be outliers."""
    distance = np.full(values.shape, np.nan)
    known = np.zeros(len(values))
    df = np.zeros(len(values))
    for own in columns:
        part = values[:, own]
        distance[:, own] = np.abs(part - _median(part)[:, None])
        count = np.count_nonzero(~np.isnan(part), axis=1)
        known += count
        df += np.maximum(count - 1, 0)
    cells = np.maximum(known - df, 1.0)
    own_scale = _NORMAL_MAD * _small(known / cells) * _median(distance)
    scales = np.maximum(own_scale, NOISE_FLOOR) ** 2
    usable = scales[df > 0]
    if not len(usable):
        return values, np.zeros(len(values), dtype=np.int64), np.zeros(len(values), dtype=np.bool_)
    worth = _MAD_EFFICIENCY * df
    scale = np.sqrt((worth * np.nan_to_num(scales) + _MAD_PRIOR * np.median(usable)) / (worth + _MAD_PRIOR))
    with np.errstate(invalid="ignore"):
        far = distance > (t_quantiles(OUTLIER, worth + _MAD_PRIOR) * scale)[:, None]
    count = far.sum(axis=1)
    missed = count > known // OUTLIERS_MOST
    far &= ~missed[:, None]
    return np.where(far, np.nan, values), np.where(missed, 0, count), missed


def _small(size: Floats) -> Floats:
    """The correction of a median absolute deviation for blocks of that size."""
    rounded = np.clip(np.round(size), 2, None)
    result: Floats = np.where(rounded < 10, 0.0, rounded / (rounded - 0.8))
    for n, factor in _MAD_SMALL.items():
        result[rounded == n] = factor
    return result


def _median(values: Floats) -> Floats:
    """The median of each row's known values; NaN without any. By one sort: numpy's nanmedian goes row by row."""
    if not values.shape[1]:
        return np.full(len(values), np.nan)
    ordered = np.sort(values, axis=1)  # NaN comes last
    count = np.count_nonzero(~np.isnan(values), axis=1)
    rows = np.arange(len(values))
    low, high = ordered[rows, np.maximum(count - 1, 0) // 2], ordered[rows, np.minimum(count // 2, values.shape[1] - 1)]
    return np.where(count > 0, 0.5 * (low + high), np.nan)


def _prior(side: _Side) -> Prior:
    """The scaled inverse χ² distribution of the kernels' variances, by the moments of log s² (Smyth 2004, 6.2)."""
    usable = (side.df > 0) & ~side.missed
    df, variance = side.df[usable], side.variance[usable]
    if len(df) < BORROWERS:
        return Prior(0.0, 1.0)
    sizes, which = np.unique(df, return_inverse=True)
    e = np.log(variance) + np.array([np.log(d / 2) - digamma(d / 2) for d in sizes])[which]
    surplus = float(e.var(ddof=1)) - float(np.array([trigamma(d / 2) for d in sizes])[which].mean())
    mean = float(e.mean())
    if surplus <= trigamma(DF_MOST / 2):
        return Prior(DF_MOST, float(np.exp(mean)))
    d0 = 2.0 * trigamma_inverse(surplus)
    return Prior(d0, float(np.exp(mean + digamma(d0 / 2) - np.log(d0 / 2))))


def _moderated(side: _Side, prior: Prior | None) -> tuple[Floats, Floats]:
    """Variances with what is borrowed, and their degrees of freedom; what is no member of the prior borrows nothing."""
    own = np.where(side.df > 0, side.variance, np.nan), np.where(side.df > 0, side.df, np.nan)
    if prior is None or prior.df <= 0:
        return own
    own_variance = np.nan_to_num(side.variance)
    variance = (prior.df * prior.variance + side.df * own_variance) / (prior.df + side.df)
    df = np.minimum(side.df + prior.df, max(float(side.df.sum()), 1.0))
    strange = np.zeros(len(df), dtype=np.bool_)
    for i in np.flatnonzero(own_variance > 3.0 * prior.variance):  # less is never that unlikely with few windows
        strange[i] = f_tail(own_variance[i] / prior.variance, side.df[i], prior.df) < STRANGER
    return np.where(strange, own[0], variance), np.where(strange, own[1], df)


@lru_cache(maxsize=64)
def _quantile_table(tail: float) -> tuple[Floats, Floats]:
    """1 ÷ df, and the logarithm of t there: smooth enough that lines between 120 points are right to 0.1 %."""
    inverse = np.linspace(1.0 / DF_MOST**0.5, 1.0, 120) ** 2
    return inverse, np.log([t_quantile(tail, float(1.0 / x)) for x in inverse])


def t_quantiles(tail: float, df: Floats) -> Floats:
    """Student's t that is exceeded with probability ``tail``, of many degrees of freedom; at least 1 of them."""
    inverse, table = _quantile_table(tail)
    return np.asarray(np.exp(np.interp(1.0 / np.clip(df, 1.0, DF_MOST), inverse, table)))
