r"""Intervals, p-values and thresholds that say what rates mean for the population.

Everything here is computed from counts: rows by cell and predicted class
(:class:`CellCounts`). The rows must have been used for nothing else, neither to train nor to
choose among models or thresholds, unless the choice itself is a procedure of this module.

A functional of constraints adds up *parts*, fractions of the rows of a base set
(:class:`gbm_constrained.compiler.Part`). A row of constraints, ``sum_k c_k part_k <= b``, is
tested against the null hypothesis that it is violated in the population. Parts over the same base
set are one *block*: the mean of a score of each row, a function of its cell and its predicted
class. Given which rows are in the base set these scores are independent with one distribution, so
that the row is a statement about a binomial or a bounded mean. Two binomial blocks over disjoint
base sets have an exact test (:mod:`gbm_constrained.two_rates`); other blocks over different base
sets, overlapping or not, are combined by a union bound.

A p-value ``p`` is *valid*: ``P(p <= delta) <= delta`` for every ``delta`` where the null
hypothesis is true. To find ``p <= delta`` certifies that the rule holds, with confidence
``1 - delta``.

Sample weights that are equal in each base set change nothing. Unequal ones are taken as given:
the rate is then that of rows with these weights, exact tests give way to Hoeffding's inequality,
and intervals use the effective number of rows, ``(sum w)^2 / sum w^2``, an approximation.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass
from functools import cached_property
from math import ceil, log, log1p
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, special, stats

from gbm_constrained.cells import Cells
from gbm_constrained.compiler import ROUNDING, CompiledConstraints, Part, value_of
from gbm_constrained.rates import Constraint, Each, Gap, Quotient, Rate, Ratio
from gbm_constrained.rows import Codes, Float
from gbm_constrained.two_rates import sum_p_value

__all__ = [
    "CellCounts",
    "bootstrap",
    "clopper_pearson",
    "constraint_intervals",
    "constraint_p_values",
    "expected_bounds",
    "expected_slack",
    "fixed_sequence",
    "functional_intervals",
    "functionals_of",
    "hoeffding_bentkus_p_value",
    "holm",
    "learn_then_test",
    "level_of_all",
    "minimum_rows",
    "newcombe_difference",
    "row_p_values",
    "rule_p_value",
    "umbrella_rank",
    "umbrella_threshold",
    "worst_interval",
]

Bool = NDArray[np.bool_]
SMALLEST = 1e-15  # Union bounds are not followed to smaller p-values.
EQUAL = 1e-9  # Squared coefficient of variation below which weights are equal.
TABLE = 1 << 23  # Numbers in a table of bootstrap replicates.


# --- counts -----------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class CellCounts:
    """Rows by cell and predicted class: all that the statistics of this module look at.

    The tables may have leading axes, as of a grid of thresholds; p-values then have them too.

    Parameters
    ----------
    weight : ndarray of shape (..., n_cells, n_classes)
        Sums of weights.
    square : ndarray of shape (..., n_cells, n_classes)
        Sums of squared weights.
    count : ndarray of shape (..., n_cells, n_classes)
        Numbers of rows with positive weight.
    """

    weight: Float
    square: Float
    count: Float

    @classmethod
    def of(cls, cells: Cells, decisions: ArrayLike, weight: Float | None = None) -> CellCounts:
        """Count decisions.

        Parameters
        ----------
        cells : Cells
            The cells of the rows.
        decisions : array-like of shape (n_samples,), integer
            Predicted class index of each row.
        weight : ndarray of shape (n_samples,), default=None
            Weights; those of the rows by default.
        """
        decided = np.asarray(decisions, dtype=np.intp)
        return cls(*(t[..., 0, :, :] for t in _tables(cells, decided, cells.classes.size, weight)))

    @classmethod
    def at_thresholds(
        cls, cells: Cells, scores: ArrayLike, thresholds: ArrayLike, weight: Float | None = None
    ) -> CellCounts:
        """Count the decisions ``score > threshold`` of two classes at each of some thresholds.

        Parameters
        ----------
        cells : Cells
            The cells of the rows.
        scores : array-like of shape (n_samples,)
            Higher for the second class.
        thresholds : array-like of shape (n_thresholds,)
            Thresholds, in any order.
        weight : ndarray of shape (n_samples,), default=None
            Weights; those of the rows by default.

        Returns
        -------
        CellCounts
            Tables of shape (n_thresholds, n_cells, 2).
        """
        order = np.argsort(thresholds)
        exceeded = np.searchsorted(np.asarray(thresholds)[order], np.asarray(scores), side="left")
        tables = []
        for (table,) in _tables(cells, exceeded, order.size + 1, weight):
            below = table.cumsum(axis=1)  # scores that exceed so many thresholds or fewer
            two = np.stack([below, below[:, -1:] - below], axis=-1)[:, :-1]
            sorted_back = np.empty((order.size, len(cells), 2))
            sorted_back[order] = two.swapaxes(0, 1)
            tables.append(sorted_back)
        return cls(*tables)


def _tables(cells: Cells, column: Codes, width: int, weight: Float | None) -> list[Float]:
    """Weights, squares and numbers of rows by cell and column, each (1, n_cells, width)."""
    w = cells.rows.weight if weight is None else np.asarray(weight, dtype=np.float64)
    shape = (1, len(cells), width)
    tables = [np.zeros(shape) for _ in range(3)]
    for view in cells.views:
        at = view.codes * width + column
        size = len(cells) * width
        counted = np.bincount(at, None if w is None else w > 0, size).reshape(shape)
        found = (counted, counted) if w is None else (
            np.bincount(at, w, size).reshape(shape), np.bincount(at, w * w, size).reshape(shape)
        )  # fmt: skip
        for table, more in zip(tables, (*found, counted), strict=True):
            table += more
    return tables


# --- parts and blocks -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class _Block:
    """The mean of a score over a base set."""

    cells: Codes
    score: Float  # (len(cells), n_classes)

    @cached_property
    def values(self) -> Float:
        """What the score can be."""
        return np.unique(np.round(self.score, 12))

    @property
    def low(self) -> float:
        return float(self.values[0])

    @property
    def high(self) -> float:
        return float(self.values[-1])

    @property
    def width(self) -> float:
        return self.high - self.low

    @property
    def is_binomial(self) -> bool:
        return self.values.size == 2

    def reaches(self, value: float) -> Bool:
        """Where the score has a value, among its cells and classes."""
        return np.asarray(np.round(self.score, 12) == value)

    def sum(self, table: Float, where: Float | Bool | None = None) -> Float:
        """Sum of a table over the base set, or its product with another."""
        inside = table[..., self.cells, :]
        return np.asarray((inside if where is None else inside * where).sum(axis=(-2, -1)))

    def equal_weights(self, counts: CellCounts) -> bool:
        """Whether all rows of the base set weigh the same (Cauchy-Schwarz)."""
        tables = counts.weight, counts.square, counts.count
        total, squares, n = (self.sum(table) for table in tables)
        return bool((squares * n <= total**2 * (1.0 + EQUAL)).all())


def _blocks(parts: Sequence[Part]) -> tuple[_Block, ...]:
    """Add up the parts over each base set."""
    found: dict[bytes, tuple[Codes, Any]] = {}
    for part in parts:
        score: Any = part.coefficient * part.event
        key = part.cells.tobytes()
        if key in found:
            score = score + found[key][1]
        found[key] = part.cells, score
    return tuple(_Block(cells, score) for cells, score in found.values())


def _are_binomials_apart(blocks: Sequence[_Block]) -> bool:
    """Whether two blocks are binomials of different rows: parts of a row are of one view."""
    first, second = blocks
    apart = not np.intersect1d(first.cells, second.cells).size
    return first.is_binomial and second.is_binomial and apart


def _blocks_of_rows(compiled: CompiledConstraints) -> list[tuple[_Block, ...] | None]:
    """Blocks of each row of constraints; None where it has a mean loss."""
    R = compiled.R
    rows: list[tuple[_Block, ...] | None] = []
    for j in range(len(compiled)):
        at = slice(R.indptr[j], R.indptr[j + 1])
        scaled: list[Part] = []
        for k, a in zip(R.indices[at], R.data[at], strict=True):
            parts = compiled.parts[k]
            if parts is None:
                rows.append(None)
                break
            scaled += [Part(float(a) * p.coefficient, p.cells, p.event) for p in parts]
        else:
            rows.append(_blocks(scaled))
    return rows


def functionals_of(compiled: CompiledConstraints, counts: CellCounts) -> Float:
    """Value of each functional on counted decisions.

    Base sets are weighed by the counts' own weights, so that counts may be of other rows than
    those compiled against, such as bootstrap replicates.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions, with any leading axes.

    Returns
    -------
    ndarray of shape (..., n_functionals)
        NaN for mean losses, and where a base set has no weight.
    """
    weight = counts.weight
    table = weight.reshape(*weight.shape[:-2], -1)
    return _Fractions(compiled, weight.shape[-2:]).of(table)


class _Fractions:
    """Functionals of flat tables of weights, as sparse products."""

    def __init__(self, compiled: CompiledConstraints, shape: tuple[int, ...]) -> None:
        n_cells, n_classes = shape
        self.constant = np.where([p is None for p in compiled.parts], np.nan, compiled.constant)
        events, bases, of, coefficient = [], [], [], []
        for k, parts in enumerate(compiled.parts):
            for part in parts or ():
                at = part.cells[:, None] * n_classes + np.arange(n_classes)
                events.append(at[part.event])
                bases.append(at.ravel())
                of.append(k)
                coefficient.append(part.coefficient)
        self.events = _indicator(events, n_cells * n_classes)
        self.bases = _indicator(bases, n_cells * n_classes)
        n = len(compiled.parts)
        self.sum = sparse.csr_array((coefficient, (of, range(len(of)))), shape=(n, len(of)))

    def of(self, table: Float, columns: Codes | None = None) -> Float:
        """Functionals of (..., n_cells * n_classes), or of some of its columns."""
        events, bases = self.events, self.bases
        if columns is not None:
            events, bases = events[:, columns], bases[:, columns]
        flat = table.reshape(-1, table.shape[-1]).T
        with np.errstate(invalid="ignore", divide="ignore"):
            rates = (events @ flat) / (bases @ flat)
        values = (self.sum @ rates).T + self.constant
        return np.asarray(values).reshape(*table.shape[:-1], self.constant.size)


def _indicator(entries: Sequence[Codes], width: int) -> Any:
    """Sparse matrix of ones, given the columns of each row."""
    ends = np.cumsum([0, *(at.size for at in entries)])
    columns = np.concatenate([np.zeros(0, dtype=np.intp), *entries])
    return sparse.csr_array((np.ones(columns.size), columns, ends), shape=(len(entries), width))


# --- intervals --------------------------------------------------------------------------------


def _upper(events: Any, n: Any, delta: Any) -> Float:
    """Clopper-Pearson upper limit, exceeded by the true rate with probability `delta` at most."""
    events, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    inside = events < n
    limit = special.betainccinv(events + 1.0, np.where(inside, n - events, 1.0), delta)
    return np.where(inside, limit, 1.0)


def _lower(events: Any, n: Any, delta: Any) -> Float:
    """Clopper-Pearson lower limit."""
    events, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    some = events > 0
    limit = special.betaincinv(np.where(some, events, 1.0), n - events + 1.0, delta)
    return np.where(some, limit, 0.0)


def clopper_pearson(
    events: ArrayLike, n: ArrayLike, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Exact two-sided interval of a binomial probability.

    Parameters
    ----------
    events, n : array-like
        Numbers of events and of rows; effective numbers need not be integers.
    level : float, default=0.95
        Least probability that it covers the truth.

    Returns
    -------
    low, high : ndarray
        Its ends; NaN without rows.

    References
    ----------
    Clopper and Pearson, "The use of confidence or fiducial limits illustrated in the case of the
    binomial", Biometrika 26, 1934.
    """
    e, n = np.asarray(events, dtype=np.float64), np.asarray(n, dtype=np.float64)
    tail = (1.0 - level) / 2.0
    ends = _lower(e, n, tail), _upper(e, n, tail)
    low, high = (np.where(n > 0, end, np.nan) for end in ends)
    return low, high


def _wilson(events: Float, n: Float, level: float) -> tuple[Float, Float]:
    """Score interval of a binomial probability (Wilson, 1927)."""
    z = float(special.ndtri(0.5 + level / 2.0))
    with np.errstate(invalid="ignore", divide="ignore"):
        rate = events / n
        middle = 2.0 * n * rate + z * z
        spread = z * np.sqrt(z * z + 4.0 * n * rate * (1.0 - rate))
        low, high = ((middle + sign * spread) / (2.0 * (n + z * z)) for sign in (-1.0, 1.0))
        # Rounding must not leave the estimate outside.
        return np.minimum(low, rate), np.maximum(high, rate)


def newcombe_difference(
    events_1: ArrayLike, n_1: ArrayLike, events_2: ArrayLike, n_2: ArrayLike, level: float = 0.95
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Interval of the difference of two independent binomial probabilities.

    Wilson's intervals of both, combined by squares: close to the level, though no bound on it.

    Parameters
    ----------
    events_1, n_1, events_2, n_2 : array-like
        Numbers of events and of rows; effective numbers need not be integers.
    level : float, default=0.95
        Probability that it covers ``p_1 - p_2``, about.

    Returns
    -------
    low, high : ndarray
        Its ends; NaN where one has no rows.

    References
    ----------
    Newcombe, "Interval estimation for the difference between independent proportions: comparison
    of eleven methods", Statistics in Medicine 17, 1998, method 10.
    """
    e1, n1, e2, n2 = (np.asarray(x, dtype=np.float64) for x in (events_1, n_1, events_2, n_2))
    low_1, high_1 = _wilson(e1, n1, level)
    low_2, high_2 = _wilson(e2, n2, level)
    with np.errstate(invalid="ignore", divide="ignore"):
        p1, p2 = e1 / n1, e2 / n2
    difference = p1 - p2
    low = difference - np.hypot(p1 - low_1, high_2 - p2)
    high = difference + np.hypot(high_1 - p1, p2 - low_2)
    return np.maximum(low, -1.0), np.minimum(high, 1.0)


def _replicates(
    compiled: CompiledConstraints, counts: CellCounts, n_replicates: int, random_state: int
) -> Float:
    """Functionals of resampled decisions, (n_replicates, n_functionals)."""
    rng = np.random.default_rng(random_state)
    weight, square = counts.weight.ravel(), counts.square.ravel()
    columns = np.flatnonzero(weight > 0)
    total, squares = weight[columns], square[columns]
    fractions = _Fractions(compiled, counts.weight.shape)
    step = max(1, TABLE // max(columns.size, 1))
    found = []
    for start in range(0, n_replicates, step):
        size = (min(step, n_replicates - start), columns.size)
        drawn = rng.poisson(total**2 / squares, size) * (squares / total)
        found.append(fractions.of(drawn, columns))
    return np.concatenate(found)


def _percentiles(replicates: Float, level: float) -> Float:
    """Percentile intervals over the first axis, (..., 2)."""
    ends = np.full((*replicates.shape[1:], 2), np.nan)
    tails = [(1.0 - level) / 2.0, (1.0 + level) / 2.0]
    for at in np.ndindex(replicates.shape[1:]):
        known = replicates[(slice(None), *at)]
        known = known[~np.isnan(known)]
        if known.size:  # values may be infinite, which interpolation does not survive
            ends[at] = np.quantile(known, tails, method="inverted_cdf")
    return ends


def bootstrap(
    compiled: CompiledConstraints,
    counts: CellCounts,
    function: Callable[[Float], Float],
    level: float = 0.95,
    n_replicates: int = 2000,
    random_state: int = 0,
) -> NDArray[np.float64]:
    """Percentile intervals of any function of the functionals.

    The rows of each cell and predicted class are resampled by Poisson numbers, which is the
    bootstrap of all rows but for their total number, on which no rate depends. Where weights
    differ within a cell and class, the resampled sum of weights is a scaled Poisson variable with
    the mean and the variance of the bootstrap's own: an approximation. What never occurred in a
    cell never occurs in a replicate, so that intervals of rates near 0 or 1 are too short.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions.
    function : callable
        Maps functionals of shape (n_replicates, n_functionals) to shape (n_replicates, ...).
    level : float, default=0.95
        Probability that an interval covers the truth, about.
    n_replicates : int, default=2000
        Resampled tables.
    random_state : int, default=0
        Seed.

    Returns
    -------
    ndarray of shape (..., 2)
        Ends of the intervals, over the replicates in which the value is defined.

    References
    ----------
    Efron and Tibshirani, "An Introduction to the Bootstrap", 1993, section 13.3.
    """
    replicates = function(_replicates(compiled, counts, n_replicates, random_state))
    return _percentiles(np.asarray(replicates), level)


def _effective(
    counts: CellCounts, cells: Codes, inside: Bool, event: Bool
) -> tuple[np.float64, np.float64]:
    """Events and rows among some entries of a table, as many as equal weights would make them."""
    weight, square = counts.weight[cells][inside], counts.square[cells][inside]
    n, total, squares = counts.count[cells][inside].sum(), weight.sum(), square.sum()
    if squares * n <= total**2 * (1.0 + EQUAL):
        return counts.count[cells][inside & event].sum(), n
    effective = total**2 / squares
    return effective * (counts.weight[cells][inside & event].sum() / total), effective


def _exact_interval(
    parts: Sequence[Part] | None, constant: float, counts: CellCounts, level: float
) -> Float | None:
    """Interval of a functional of one binomial, or of two independent ones; None for others."""
    blocks = _blocks(parts or ())
    if not blocks or not all(block.is_binomial for block in blocks):
        return None
    shift = constant + sum(block.low for block in blocks)
    everyone = [np.ones(block.score.shape, dtype=bool) for block in blocks]
    binomials = [
        _effective(counts, block.cells, inside, block.reaches(block.high))
        for block, inside in zip(blocks, everyone, strict=True)
    ]
    scale = blocks[0].width
    if len(blocks) == 1:
        ends = clopper_pearson(*binomials[0], level)
    elif (
        len(blocks) == 2
        and abs(blocks[1].width - scale) < ROUNDING
        and _are_binomials_apart(blocks)
    ):
        (e1, n1), (e2, n2) = binomials
        # p_1 + p_2 is one more than the difference of p_1 and the other event's probability.
        ends = newcombe_difference(e1, n1, n2 - e2, n2, level)
        shift += scale
    else:
        return None
    return shift + scale * np.array(ends)


def functional_intervals(
    compiled: CompiledConstraints,
    counts: CellCounts,
    level: float = 0.95,
    random_state: int = 0,
) -> NDArray[np.float64]:
    """Two-sided intervals of functionals: of the rate of each group.

    Clopper-Pearson for one fraction of rows, Newcombe for the sum or the difference of two over
    disjoint rows, the bootstrap for all else.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions.
    level : float, default=0.95
        Probability that an interval covers the truth.
    random_state : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    ndarray of shape (n_functionals, 2)
        NaN for mean losses and undefined rates.
    """
    everything = range(len(compiled.parts))
    return _functional_intervals(compiled, counts, everything, level, random_state)


def _functional_intervals(
    compiled: CompiledConstraints,
    counts: CellCounts,
    which: Iterable[int],
    level: float,
    random_state: int,
) -> Float:
    """Intervals of some functionals, in rows of their own; NaN in those of the others."""
    ends = np.full((len(compiled.parts), 2), np.nan)
    resampled = []
    for k in which:
        parts = compiled.parts[k]
        exact = _exact_interval(parts, compiled.constant[k], counts, level)
        if exact is not None:
            ends[k] = exact
        elif parts:
            resampled.append(k)
    if resampled:
        ends[resampled] = bootstrap(
            compiled, counts, lambda f: f[:, resampled], level, random_state=random_state
        )
    return ends


def constraint_intervals(
    compiled: CompiledConstraints,
    counts: CellCounts,
    level: float = 0.95,
    random_state: int = 0,
) -> NDArray[np.float64]:
    """Two-sided intervals of what each constraint bounds.

    A rate has that of its functional (:func:`functional_intervals`). The gap of two groups has
    Newcombe's interval of the signed difference, folded to its absolute value: what covers the one
    covers the other. The worst of several groups, and the gap or the ratio of the worst pair, have
    :func:`worst_interval`. Precision, and other shares of the rows that a decision selects, are
    Clopper-Pearson's among these, and so are odds such as wins over losses. All else has the
    bootstrap's.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions.
    level : float, default=0.95
        Probability that an interval covers the truth.
    random_state : int, default=0
        Seed of the bootstrap.

    Returns
    -------
    ndarray of shape (n_constraints, 2)
        NaN where a mean loss is bounded.
    """
    ends = np.full((len(compiled.constraints), 2), np.nan)
    resampled = []
    for j, (constraint, span) in enumerate(zip(compiled.constraints, compiled.spans, strict=True)):
        expression = constraint.expression
        parts, constant = compiled.parts[span], compiled.constant[span]
        missing = [p is None for p in parts]
        if all(missing) or (any(missing) and isinstance(expression, Quotient)):
            continue
        exact = None
        if isinstance(expression, Rate) or (isinstance(expression, Each) and len(parts) == 1):
            exact = _exact_interval(parts[0], constant[0], counts, level)
        elif isinstance(expression, Quotient):
            exact = _share_interval(parts, constant, counts, level)
            if exact is None:
                exact = _odds_interval(parts, constant, counts, level)
        elif isinstance(expression, Gap) and not isinstance(expression, Ratio):
            exact = _gap_interval(parts, counts, level)
        if exact is None and isinstance(expression, (Each, Gap)):
            own = range(span.start, span.stop)
            f = functionals_of(compiled, counts)[span]
            at, strict = (
                _functional_intervals(compiled, counts, own, one, random_state)[span]
                for one in (level, level_of_all(constraint, f.size, level))
            )
            exact = worst_interval(constraint, f, at, strict)
        if exact is not None:
            ends[j] = exact
        else:
            resampled.append(j)
    if resampled:

        def values(functionals: Float) -> Float:
            chosen = [(compiled.constraints[j], compiled.spans[j]) for j in resampled]
            return np.array([[value_of(c, f[span]) for c, span in chosen] for f in functionals])

        ends[resampled] = bootstrap(compiled, counts, values, level, random_state=random_state)
    return ends


def level_of_all(constraint: Constraint, n_groups: int, level: float) -> float:
    """Level of single intervals at which those of all groups, or pairs of groups, hold at once.

    Parameters
    ----------
    constraint : Constraint
        Of rates in every group, or of their differences or ratios.
    n_groups : int
        Their number, with the reference.
    level : float
        Probability that all cover the truth, at least (Bonferroni).
    """
    is_each = isinstance(constraint.expression, Each)
    several = n_groups if is_each else n_groups * (n_groups - 1) // 2
    return 1.0 - (1.0 - level) / max(several, 1)


def worst_interval(
    constraint: Constraint, f: Float, at: Float, strict: Float
) -> NDArray[np.float64]:
    """Interval for the worst group, or the worst pair, from the intervals of groups' rates.

    The truth's worst group (or pair) is one and not chosen by the data: that its value lies above
    its own upper end, and so above the largest of all, happens no more often than for any one.
    The lower end is that of a worst one that the data choose, of intervals that all hold at once.
    Resampling has neither property: a group without an event never has one in a replicate, and
    would be certified however few its rows are.

    Parameters
    ----------
    constraint : Constraint
        Of rates in every group, or of their differences or ratios.
    f : ndarray of shape (n_groups,)
        Rates; the reference comes last.
    at, strict : ndarray of shape (n_groups, 2)
        Their intervals at the level asked for, and at that of :func:`level_of_all`.

    Returns
    -------
    ndarray of shape (2,)
        NaN where the value is undefined.
    """
    if np.isnan(value_of(constraint, f)):
        return np.full(2, np.nan)
    if isinstance(constraint.expression, Each):
        if constraint.sense == "<=":
            return np.array([np.nanmax(strict[:, 0]), np.nanmax(at[:, 1])])
        return np.array([np.nanmin(at[:, 0]), np.nanmin(strict[:, 1])])
    assert isinstance(constraint.expression, Gap)
    n = f.size
    first, second = np.nonzero(~np.eye(n, dtype=bool))
    if constraint.expression.reference is not None:
        with_reference = (first == n - 1) | (second == n - 1)
        first, second = first[with_reference], second[with_reference]

    def ends(intervals: Float, factor: float = 1.0) -> tuple[Float, Float]:
        """Interval of ``f[first] - factor * f[second]``: deviations of both, by squares."""
        down, up = f - intervals[:, 0], intervals[:, 1] - f
        difference = f[first] - factor * f[second]
        return (
            difference - np.hypot(down[first], factor * up[second]),
            difference + np.hypot(up[first], factor * down[second]),
        )

    if not isinstance(constraint.expression, Ratio):
        return np.array([max(np.nanmax(ends(strict)[0]), 0.0), np.nanmax(ends(at)[1])])
    # A ratio is k at least where first - k second + slack >= 0 for all pairs (Fieller).
    slack = constraint.expression.slack
    return np.array(
        [
            _largest(lambda k: bool(np.nanmin(ends(at, k)[0]) + slack >= 0.0)),
            _largest(lambda k: bool(np.nanmin(ends(strict, k)[1]) + slack >= 0.0)),
        ]
    )


def _largest(holds: Callable[[float], bool]) -> float:
    """Find the largest number in [0, 1] that something holds for, which holds for smaller ones."""
    if holds(1.0):
        return 1.0
    low, high = 0.0, 1.0
    for _ in range(50):
        middle = (low + high) / 2.0
        low, high = (middle, high) if holds(middle) else (low, middle)
    return low


def _gap_interval(
    parts: Sequence[tuple[Part, ...] | None], counts: CellCounts, level: float
) -> Float | None:
    """Interval of the absolute difference of two functionals; None for others."""
    if len(parts) != 2 or parts[0] is None or parts[1] is None:
        return None
    other = [Part(-p.coefficient, p.cells, p.event) for p in parts[1]]
    if len(_blocks([*parts[0], *other])) != 2:  # the group is everyone
        return None
    signed = _exact_interval([*parts[0], *other], 0.0, counts, level)
    if signed is None:
        return None
    sizes = np.sort(np.abs(signed))
    return np.array([0.0, sizes[1]]) if signed[0] <= 0.0 <= signed[1] else sizes


def _share_interval(
    parts: Sequence[tuple[Part, ...] | None], constant: Float, counts: CellCounts, level: float
) -> Float | None:
    """Interval of a quotient that is a fraction of its denominator's rows; None for others."""
    if parts[0] is None or parts[1] is None or constant.any():
        return None
    top, bottom = _blocks(parts[0]), _blocks(parts[1])
    if len(top) != 1 or len(bottom) != 1 or not np.array_equal(top[0].cells, bottom[0].cells):
        return None
    (numerator,), (denominator,) = top, bottom
    event, inside = ~numerator.reaches(0.0), ~denominator.reaches(0.0)
    one_value = numerator.is_binomial and denominator.is_binomial
    if not one_value or 0.0 not in numerator.values or 0.0 not in denominator.values:
        return None
    if (event & ~inside).any():
        return None
    scale = numerator.score[event][0] / denominator.score[inside][0]
    events, n = _effective(counts, numerator.cells, inside, event)
    return np.sort(scale * np.array(clopper_pearson(events, n, level)))


def _odds_interval(
    parts: Sequence[tuple[Part, ...] | None], constant: Float, counts: CellCounts, level: float
) -> Float | None:
    """Interval of a quotient of events that exclude each other, such as wins over losses.

    Among the rows where either happens, the first happens with a binomial probability p, and the
    quotient is ``p / (1 - p)``; resampling would say that what lost nowhere never loses. None for
    other quotients.
    """
    top, bottom = parts
    if top is None or bottom is None or len(top) != 1 or len(bottom) != 1:
        return None
    (first,), (second,) = top, bottom
    alike = np.array_equal(first.cells, second.cells) and not constant.any()
    if not alike or (first.event & second.event).any():
        return None
    either = first.event | second.event
    if not counts.weight[first.cells][either].sum() > 0:
        return np.full(2, np.nan)
    events, n = _effective(counts, first.cells, either, first.event)
    low, high = clopper_pearson(events, n, level)
    with np.errstate(divide="ignore"):
        odds = np.array([low, high]) / (1.0 - np.array([low, high]))
    return np.asarray(np.sort(odds * (first.coefficient / second.coefficient)))


# --- p-values ---------------------------------------------------------------------------------


def _tail(events: Float, n: Float, bound: Any) -> Float:
    """``P(Bin(n, bound) <= events)``."""
    inside = events < n
    left = np.where(inside, n - events, 1.0)
    return np.where(inside, special.betaincc(events + 1.0, left, bound), 1.0)


def hoeffding_bentkus_p_value(mean: ArrayLike, n: ArrayLike, bound: ArrayLike) -> Any:
    r"""p-value of the null hypothesis that a mean of variables in [0, 1] exceeds a bound.

    .. math:: p = \min\left(e^{-n\, h(\min(r, b),\, b)},\; e\, P(\mathrm{Bin}(n, b)
        \le \lceil n r \rceil)\right), \qquad
        h(r, b) = r \log\frac{r}{b} + (1 - r) \log\frac{1 - r}{1 - b} .

    Parameters
    ----------
    mean : array-like
        Mean ``r`` of `n` independent variables.
    n : array-like
        Their number.
    bound : array-like
        ``b``, in [0, 1].

    Returns
    -------
    ndarray or float
        The p-value; 1 without variables.

    References
    ----------
    Bates, Angelopoulos, Lei, Malik and Jordan, "Distribution-free, risk-controlling prediction
    sets", Journal of the ACM 68, 2021, section 3.1; Angelopoulos, Bates, Candes, Jordan and Lei,
    "Learn then test", 2021, Proposition 3.
    """
    r, n, b = (np.asarray(x, dtype=np.float64) for x in (mean, n, bound))
    below = np.minimum(r, b)
    h = special.rel_entr(below, b) + special.rel_entr(1.0 - below, 1.0 - b)
    events = np.ceil(np.round(n * r, 9))  # a mean of n events must give their number back
    with np.errstate(invalid="ignore"):
        hoeffding = np.exp(-n * h)
    p = np.minimum(hoeffding, np.e * _tail(events, n, b))
    return np.where(n > 0, np.minimum(p, 1.0), 1.0)[()]


def _p_of_block(block: _Block, bound: float, counts: CellCounts) -> Float:
    """P-value of "the mean score exceeds a bound" with equal weights."""
    n = block.sum(counts.count)
    if block.high <= bound + ROUNDING:  # it cannot
        return np.where(n > 0, 0.0, 1.0)
    if block.low > bound:
        return np.ones(n.shape)
    reached = block.sum(counts.count, block.reaches(block.high))
    scaled = (bound - block.low) / block.width
    if block.is_binomial:
        return np.where(n > 0, _tail(reached, n, scaled), 1.0)
    if block.values.size == 3 and abs(block.values[1] - bound) < ROUNDING:
        # Rows at the bound decide nothing. Among the others the mean exceeds it if the upper
        # value is likelier than `scaled`: given their number, a binomial.
        n = n - block.sum(counts.count, block.reaches(float(block.values[1])))
        return np.where(n > 0, _tail(reached, n, scaled), 1.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        mean = (block.sum(counts.count, block.score) / n - block.low) / block.width
    mean = np.where(n > 0, np.clip(mean, 0.0, 1.0), 1.0)
    return np.asarray(hoeffding_bentkus_p_value(mean, n, scaled))


def _p_of_two(blocks: Sequence[_Block], bound: float, counts: CellCounts) -> Float:
    """P-value of "the sum of two mean scores exceeds a bound", binomials over disjoint base sets.

    A mean score is its low value plus its width times the probability of its high value.
    """
    first, second = blocks
    (events_1, n_1), (events_2, n_2) = (
        (block.sum(counts.count, block.reaches(block.high)), block.sum(counts.count))
        for block in blocks
    )
    limit = bound - first.low - second.low
    p = np.ones(n_1.shape)
    for at in np.ndindex(p.shape):
        x_1, of_1, x_2, of_2 = (float(x[at]) for x in (events_1, n_1, events_2, n_2))
        p[at] = sum_p_value(x_1, of_1, x_2, of_2, limit, first.width, second.width)
    return p


def _p_of_union(blocks: Sequence[_Block], bound: float, counts: CellCounts) -> Float:
    """P-value of "the sum of mean scores exceeds a bound" with equal weights in each base set.

    If each mean is below its own upper limit, which fails with probability delta / K at most, and
    the limits add up to the bound at most, then so do the means.
    """
    sizes = [block.sum(counts.count) for block in blocks]
    reached = [block.sum(counts.count, block.reaches(block.high)) for block in blocks]
    with np.errstate(invalid="ignore", divide="ignore"):
        means = [
            block.sum(counts.count, block.score) / n
            for block, n in zip(blocks, sizes, strict=True)
        ]

    def excess(log_delta: Float) -> Float:
        delta = np.exp(log_delta) / len(blocks)
        total = np.full(delta.shape, -bound)
        for block, n, events, mean in zip(blocks, sizes, reached, means, strict=True):
            if block.is_binomial:
                total = total + block.low + block.width * _upper(events, n, delta)
            else:
                with np.errstate(invalid="ignore", divide="ignore"):
                    limit = mean + block.width * np.sqrt(-np.log(delta) / (2.0 * n))
                total = total + np.fmin(limit, block.high)
        return total

    # Limits tighten as delta grows: bisection for the smallest one that certifies.
    high = np.zeros(sizes[0].shape)
    low = np.full(high.shape, log(SMALLEST))
    possible = (excess(high) <= 0.0) & np.all([n > 0 for n in sizes], axis=0)
    high = np.where(excess(low) <= 0.0, low, high)
    for _ in range(45 if possible.any() else 0):
        middle = (low + high) / 2.0
        met = excess(middle) <= 0.0
        high, low = np.where(met, middle, high), np.where(met, low, middle)
    return np.where(possible, np.exp(high), 1.0)


def _p_weighted(blocks: Sequence[_Block], bound: float, counts: CellCounts) -> Float:
    """P-value of "the sum of weighted mean scores exceeds a bound", by Hoeffding's inequality.

    Given weights and base sets, a row with weight w adds an independent variable to the estimate.
    Its range is w times that of the score over the base sets that the row is in, each divided by
    the base set's weight.
    """
    totals = [block.sum(counts.weight) for block in blocks]
    n_cells, n_classes = counts.weight.shape[-2:]
    empty = np.any([total <= 0 for total in totals], axis=0)
    totals = [np.where(total > 0, total, 1.0) for total in totals]
    estimate = sum(
        (block.sum(counts.weight, block.score) / total)
        for block, total in zip(blocks, totals, strict=True)
    )
    inside = np.zeros((len(blocks), n_cells), dtype=bool)
    scores = np.zeros((len(blocks), n_cells, n_classes))
    for k, block in enumerate(blocks):
        inside[k, block.cells] = True
        scores[k, block.cells] = block.score
    variance = np.zeros(totals[0].shape)
    for member in np.unique(inside[:, inside.any(axis=0)], axis=1).T:
        cells = np.flatnonzero((inside == member[:, None]).all(axis=0))
        score = sum(scores[k, cells] / totals[k][..., None, None] for k in np.flatnonzero(member))
        spread = np.ptp(np.asarray(score), axis=(-2, -1))
        variance = variance + spread**2 * counts.square[..., cells, :].sum(axis=(-2, -1))
    distance = np.maximum(bound - np.asarray(estimate), 0.0)
    with np.errstate(invalid="ignore", divide="ignore"):
        p = np.exp(-2.0 * distance**2 / variance)
    return np.where(empty | (distance == 0.0), 1.0, p)


def row_p_values(compiled: CompiledConstraints, counts: CellCounts) -> NDArray[np.float64]:
    """p-values of the null hypotheses that rows of constraints are violated in the population.

    With equal weights in each base set:

    - one fraction of rows: the binomial tail ``P(Bin(n, bound) <= events)``, exact;
    - several fractions over one base set, as in quotients: the binomial of the rows that decide
      where there are two kinds of these (precision, F1, shares of predictions and of changes),
      exact given their number; :func:`hoeffding_bentkus_p_value` otherwise;
    - fractions over two disjoint base sets, as in the gap or the ratio of two groups: the exact
      unconditional test of :func:`gbm_constrained.two_rates.sum_p_value`;
    - other fractions over K base sets, overlapping or not: the smallest delta at which the
      one-sided Clopper-Pearson limits at delta / K together meet the bound. Hoeffding's limit
      takes their place where a base set has fractions that make no binomial.

    With unequal weights: Hoeffding's inequality, valid given the weights, though conservative.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Decisions on rows that were used for nothing else.

    Returns
    -------
    ndarray of shape (..., m)
        1 where a base set has no rows, and for mean losses, which have no bounded range. Rows
        that bind no prediction have 0. Union bounds end at 1e-15, tests of two groups at 1e-5.

    References
    ----------
    Clopper and Pearson, 1934; Hoeffding, "Probability inequalities for sums of bounded random
    variables", JASA 58, 1963, Theorem 2.
    """
    p = np.ones((*counts.weight.shape[:-2], len(compiled)))
    for j, blocks in enumerate(_blocks_of_rows(compiled)):
        if not blocks:
            continue
        bound = float(compiled.b[j])
        if not all(block.equal_weights(counts) for block in blocks):
            p[..., j] = _p_weighted(blocks, bound, counts)
        elif len(blocks) == 1:
            p[..., j] = _p_of_block(blocks[0], bound, counts)
        elif len(blocks) == 2 and _are_binomials_apart(blocks):
            p[..., j] = _p_of_two(blocks, bound, counts)
        else:
            p[..., j] = _p_of_union(blocks, bound, counts)
    return p


def constraint_p_values(compiled: CompiledConstraints, counts: CellCounts) -> NDArray[np.float64]:
    """p-values of the null hypotheses that constraints are violated in the population.

    A constraint is violated if one of its rows is, and certified if all of them are. The
    violated row is certified wrongly with probability delta at most, and all rows together no
    more often: the largest p-value needs no correction for their number (the intersection-union
    test of Berger, "Multiparameter hypothesis testing and acceptance sampling", Technometrics 24,
    1982).

    Parameters
    ----------
    compiled, counts
        As in :func:`row_p_values`.

    Returns
    -------
    ndarray of shape (..., n_constraints)
        1 where a functional of the constraint is undefined, such as the rate of a group that has
        no rows.
    """
    of_rows = row_p_values(compiled, counts)
    p = np.ones((*of_rows.shape[:-1], len(compiled.constraints)))
    for j, span in enumerate(compiled.spans):
        own = compiled.owner == j
        if own.any() and not np.isnan(compiled.constant[span]).any():
            p[..., j] = of_rows[..., own].max(axis=-1)
    return p


def rule_p_value(compiled: CompiledConstraints, counts: CellCounts) -> Any:
    """p-value of the null hypothesis that some constraint is violated: the largest of theirs.

    Parameters
    ----------
    compiled, counts
        As in :func:`row_p_values`.

    Returns
    -------
    ndarray of shape (...) or float
        No correction is needed, as in :func:`constraint_p_values`; 0 without constraints.
    """
    return constraint_p_values(compiled, counts).max(axis=-1, initial=0.0)


# --- thresholds -------------------------------------------------------------------------------


def minimum_rows(bound: float, delta: float) -> int:
    """Smallest number of rows that can certify a rate at most `bound`: all without an event.

    ``(1 - bound)^n <= delta`` gives ``n >= log(delta) / log(1 - bound)``.

    Parameters
    ----------
    bound : float
        Bound of the rate, in (0, 1).
    delta : float
        Probability that the rate may exceed the bound, in (0, 1).

    References
    ----------
    Tong, Feng and Li, "Neyman-Pearson classification algorithms and NP receiver operating
    characteristics", Science Advances 4, 2018.
    """
    for name, value in (("bound", bound), ("delta", delta)):
        if not 0.0 < value < 1.0:
            raise ValueError(f"{name} must be strictly between 0 and 1, got {value!r}.")
    return ceil(log(delta) / log1p(-bound))


def umbrella_rank(n: int, bound: float, delta: float) -> int:
    r"""Rank of the score that is a certified threshold of a rate.

    The smallest k with

    .. math:: \sum_{j=k}^{n} \binom{n}{j} (1 - \alpha)^j \alpha^{n-j} \le \delta .

    Parameters
    ----------
    n : int
        Number of scores.
    bound : float
        :math:`\alpha`, bound of the rate of scores above the threshold, in (0, 1).
    delta : float
        :math:`\delta`, probability that the rate may exceed the bound, in (0, 1).

    Returns
    -------
    int
        k: the threshold is the k-th smallest score, counted from 1.

    Raises
    ------
    ValueError
        If there are fewer scores than :func:`minimum_rows`.

    References
    ----------
    Tong, Feng and Li, "Neyman-Pearson classification algorithms and NP receiver operating
    characteristics", Science Advances 4, 2018, Proposition 1.
    """
    needed = minimum_rows(bound, delta)
    if n < needed:
        raise ValueError(
            f"A bound of {bound:g} cannot be certified with probability {1.0 - delta:g} on {n} "
            f"rows: it needs {needed} at least. Give more rows, or raise the bound or delta."
        )
    # sf(k - 1) is the sum from k on, and isf the smallest argument at which sf is delta at most.
    return min(int(stats.binom.isf(delta, n, 1.0 - bound)) + 1, n)


def umbrella_threshold(scores: ArrayLike, bound: float, delta: float) -> float:
    """Smallest certified threshold of a rate of scores above it.

    For rows of one class that were used for nothing else, with scores that speak for the other
    class, ``P(score > threshold) <= bound`` in the population with probability ``1 - delta`` at
    least. For the miss rate of the positive class these are the margins of its rows times -1.

    Parameters
    ----------
    scores : array-like of shape (n,)
        A score of each row; ties are on the safe side.
    bound, delta
        As in :func:`umbrella_rank`.

    References
    ----------
    Tong, Feng and Li, 2018, Proposition 1: see :func:`umbrella_rank`.
    """
    values = np.asarray(scores, dtype=np.float64)
    if values.ndim != 1 or np.isnan(values).any():
        raise ValueError("scores must be one-dimensional and not NaN: give one for each row.")
    k = umbrella_rank(values.size, bound, delta)
    return float(np.partition(values, k - 1)[k - 1])


def expected_slack(n: ArrayLike) -> Any:
    """Bound what one more row can add to the rate of `n` rows: ``1 / (n + 1)``.

    Parameters
    ----------
    n : array-like
        Numbers of rows.
    """
    return (1.0 / (np.asarray(n, dtype=np.float64) + 1.0))[()]


def expected_bounds(compiled: CompiledConstraints, counts: CellCounts) -> NDArray[np.float64]:
    r"""Right-hand sides that rows of constraints must meet to hold in expectation.

    A bounded loss with empirical mean r on n rows is controlled in expectation by the most
    permissive of nested decisions with

    .. math:: \frac{n}{n + 1} r + \frac{\text{high}}{n + 1} \le b
        \iff r \le b - \frac{\text{high} - b}{n} ,

    where `high` is the largest value of the loss: 1 for a rate. That is a theorem for one base
    set, a loss that is monotone along the decisions chosen from, and rows exchangeable with those
    to come. Rows with several base sets (gaps) are tightened by the sum of ``(high - low) / (n +
    1)`` over these, and unequal weights count as their effective number: sensible, not proved.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Any decisions: only the sizes of base sets matter.

    Returns
    -------
    ndarray of shape (..., m)
        In the place of `compiled.b`; ``-inf`` where a base set has no rows, NaN for mean losses,
        which no decision can then meet.

    References
    ----------
    Angelopoulos, Bates, Fisch, Lei and Schuster, "Conformal risk control", ICLR 2024, Theorem 1.
    """
    bounds = np.full((*counts.weight.shape[:-2], len(compiled)), np.nan)
    for j, blocks in enumerate(_blocks_of_rows(compiled)):
        if not blocks:
            continue
        b, slack = float(compiled.b[j]), np.zeros(bounds.shape[:-1])
        for block in blocks:
            total, squares = block.sum(counts.weight), block.sum(counts.square)
            with np.errstate(invalid="ignore", divide="ignore"):
                n = np.where(total > 0, total**2 / squares, 0.0)
                alone = max(block.high - b, 0.0) / n
            own = alone if len(blocks) == 1 else block.width * expected_slack(n)
            slack = slack + np.where(n > 0, own, np.inf)
        bounds[..., j] = b - slack
    return bounds


# --- several tests ----------------------------------------------------------------------------


def fixed_sequence(p_values: ArrayLike, delta: float) -> NDArray[np.intp]:
    """Certify hypotheses in a given order, until the first that fails.

    The order must not depend on the rows tested on. The first true null hypothesis in it is
    rejected with probability `delta` at most, and none before it is an error: no correction for
    their number.

    Parameters
    ----------
    p_values : array-like of shape (length,)
        Valid p-values, in order.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of int
        Positions of the certified ones: the first so many.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test", 2021, on fixed sequence
    testing.
    """
    return np.flatnonzero(learn_then_test(np.asarray(p_values)[None], delta)[0])


def learn_then_test(p_values: ArrayLike, delta: float) -> NDArray[np.bool_]:
    """Certify hypotheses along several sequences, each until its first that fails.

    Each sequence is tested as by :func:`fixed_sequence` with an equal share of `delta`.

    Parameters
    ----------
    p_values : array-like of shape (n_sequences, length)
        Valid p-values, in orders that do not depend on the rows tested on.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of shape (n_sequences, length), bool
        Which are certified. Any of them may be chosen, by any criterion and on the same rows.

    References
    ----------
    Angelopoulos, Bates, Candes, Jordan and Lei, "Learn then test: calibrating predictive
    algorithms to achieve risk control", 2021, Theorem 1 and fixed sequence testing with several
    starting points.
    """
    p = np.asarray(p_values, dtype=np.float64)
    return np.logical_and.accumulate(p <= delta / len(p), axis=1)


def holm(p_values: ArrayLike, delta: float) -> NDArray[np.bool_]:
    """Certify hypotheses by the step-down procedure, valid however their p-values depend.

    Parameters
    ----------
    p_values : array-like of shape (n,)
        Valid p-values.
    delta : float
        Probability of any error.

    Returns
    -------
    ndarray of shape (n,), bool
        Which are certified.

    References
    ----------
    Holm, "A simple sequentially rejective multiple test procedure", Scandinavian Journal of
    Statistics 6, 1979.
    """
    p = np.asarray(p_values, dtype=np.float64)
    order = np.argsort(p)
    certified = np.zeros(p.size, dtype=bool)
    met = p[order] <= delta / np.arange(p.size, 0, -1)
    certified[order] = np.logical_and.accumulate(met)
    return certified
