r"""Search for groups, described by conditions on columns, where a constraint is violated most.

The rows are divided into halves. One half proposes segments, and the other half measures them.

**Search.** A value is :math:`v(S) = \sum_S a_i / \sum_S b_i` over the rows of a segment S, such as
errors over rows. With the value v of all rows, or the bound in its place,

.. math:: z^2(S) = \frac{(\sum_S (a_i - v b_i))^2}{\sigma^2 B_S (1 - B_S / B)}, \qquad
    B_S = \sum_S b_i^2, \qquad \sigma^2 = \sum_i (a_i - v b_i)^2 / B ,

is the score test of S against the rest; against a bound there is no last factor. A segment has the
score :math:`z^2 - k \log n - 2 c \log p` for k cuts on c of p columns (Chen and Chen, "Extended
Bayesian information criteria", 2008). An interval has two cuts, and another condition has one.
A segment has at most half of the rows. All pairs of columns are searched, on :data:`BINS`
quantiles, for the rectangle of the highest score. The cuts of the best ones are moved to the
values of single rows, and they take a third column (compare Friedman and Fisher, "Bump hunting in
high-dimensional data", 1999).
The AUC has the placements of rows (DeLong, DeLong and Clarke-Pearson, 1988) in the place of a, and
a calibration error the residuals, and the residuals that show overconfidence.

**Measurement.** The direction is that of the half that searched, so that tests are one-sided.
Shares of equal rows have exact tests of binomials, and other means Welch's test. The AUC has
DeLong's variance. A calibration error :math:`\sum_b |r_b|` is at least :math:`\sum_b s_b r_b` for
any signs. With the signs of the half that searched, that sum is a mean of rows and has its test.
The error of the rest is too large by chance, and never too small, so that this test is valid too.
p-values are adjusted for the number of segments measured (Holm, "A simple sequentially rejective
multiple test procedure", 1979), and intervals are at the level of Bonferroni.
"""

from __future__ import annotations

import math
import re
from collections import Counter
from collections.abc import Hashable, Iterable, Sequence
from dataclasses import dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from scipy import stats

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import CalibrationError, Constraint, Expression, Rate
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.comparisons import Grouped
from gbm_constrained.constraints.conditions import (
    Condition,
    describe_conditions,
    write_conditions,
)
from gbm_constrained.constraints.selectors import to_python_scalar
from gbm_constrained.constraints.text import parse_constraint
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.evaluation import audit
from gbm_constrained.problem.functionals import base_sets
from gbm_constrained.problem.pairs import log_odds_of_class
from gbm_constrained.problem.rows import find_bins
from gbm_constrained.statistics.binomial import Binomial, clopper_pearson, sum_p_value
from gbm_constrained.statistics.intervals import MeanIntervals, estimate_error
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

BINS = 16  # Bins of a column in the search of pairs; one more is for missing values.
MOST_COLUMNS = 40  # Columns whose pairs are searched, those of the highest scores by themselves.
KEPT = 20  # Pairs that take a third column, and whose cuts are refined.


@dataclass(frozen=True)
class Segment:
    """Conditions on columns, and the direction in which their rows differ.

    Parameters
    ----------
    conditions : Conditions that all hold.
    sign : 1 where the value is above that of the rest, or the bound; -1 where it is below.
    pattern : Signs of the mean residuals of bins; empty but for calibration errors.
    """

    conditions: tuple[Condition, ...]
    sign: float
    pattern: tuple[float, ...] = ()

    @property
    def expression(self) -> str:
        """The text that stands for the column of the segment in ``by=`` and ``on=``."""
        return write_conditions(self.conditions)


@dataclass(frozen=True, eq=False)
class RowSums:
    """A value of any rows as sums over them: ``sum(numerator) / sum(denominator)``.

    Parameters
    ----------
    numerator, denominator : ndarray of shape (n_samples,)
        The denominator is zero on rows that the value is not taken over.
    bin : ndarray of int, shape (n_samples,), default=None
        Bin of each row, of a calibration error.
    n_bins : int, default=0
        Number of bins.
    score : ndarray of shape (n_samples,), default=None
        Scores that an AUC compares.
    is_first : ndarray of bool, shape (n_samples,), default=None
        Rows that are to have the higher scores.
    range : tuple of float, default=(-inf, inf)
        Smallest and largest value.
    """

    numerator: Float
    denominator: Float
    bin: Codes | None = None
    n_bins: int = 0
    score: Float | None = None
    is_first: Bool | None = None
    range: tuple[float, float] = (-math.inf, math.inf)

    def take(self, rows: Any) -> RowSums:
        """Take some of the rows."""
        by_row = ("numerator", "denominator", "bin", "score", "is_first")
        given: dict[str, Any] = {name: getattr(self, name) for name in by_row}
        given = {name: None if of is None else of[rows] for name, of in given.items()}
        return replace(self, **given)

    def mean(self) -> tuple[float, float, float]:
        """Compute the value with its variance and degrees of freedom; NaN without rows."""
        a, b = self.numerator, self.denominator
        if self.score is not None:
            return self._auc()
        if not b.any():
            return math.nan, math.nan, 1.0
        value, n = a.sum() / b.sum(), b.sum() ** 2 / (b**2).sum()
        variance = ((a - value * b) ** 2).sum() / b.sum() ** 2 * n / max(n - 1.0, 1.0)
        return float(value), float(variance), max(n - 1.0, 1.0)

    def _auc(self) -> tuple[float, float, float]:
        """Compute the AUC, its variance by DeLong, and the freedom of the rarer side."""
        sides, freedom = self.placements(), []
        variance = value = 0.0
        for side in (self.is_first, ~np.asarray(self.is_first)):
            w, placed = self.denominator[side], sides[side]
            if w.sum() == 0.0 or np.isnan(placed).all():
                return math.nan, math.nan, 1.0
            n, value = w.sum() ** 2 / (w**2).sum(), float(w @ placed / w.sum())
            variance += (w**2 @ (placed - value) ** 2) / w.sum() ** 2 * n / max(n - 1.0, 1.0)
            freedom.append(max(n - 1.0, 1.0))
        return value, float(variance), min(freedom)

    def placements(self) -> Float:
        """Compute the share of the other side that each row is ranked rightly against."""
        assert self.score is not None
        assert self.is_first is not None
        found = np.full(self.score.size, np.nan)
        for is_own in (self.is_first, ~self.is_first):
            order = np.flatnonzero(~is_own)[np.argsort(self.score[~is_own])]
            if self.denominator[order].sum() == 0.0:
                continue
            below = np.cumsum(np.append(0.0, self.denominator[order]))
            own, others = self.score[is_own], self.score[order]
            ends = [below[np.searchsorted(others, own, side)] for side in ("left", "right")]
            share = (ends[0] + ends[1]) / 2.0 / below[-1]
            found[is_own] = share if is_own is self.is_first else 1.0 - share
        return found

    def binomial(self) -> Binomial | None:
        """Count events and rows; None where rows do not count alike, or no events are counted."""
        unit = self.denominator.max(initial=0.0)
        is_counted = np.isin(self.denominator, (0.0, unit)).all() and unit > 0.0
        if self.bin is not None or self.score is not None or not is_counted:
            return None
        if not np.isin(self.numerator, (0.0, unit)).all():
            return None
        counts = (np.rint(x.sum() / unit) for x in (self.numerator, self.denominator))
        return Binomial(*map(float, counts))

    def residuals(self) -> tuple[Float, Float]:
        """Compute the mean residuals of the bins, and their standard errors."""
        found = [
            replace(self, numerator=np.where(self.bin == b, self.numerator, 0.0), bin=None).mean()
            for b in range(self.n_bins)
        ]
        value, variance, _ = np.array(found).T
        return value, np.sqrt(variance)

    def signed(self, pattern: Any) -> RowSums:
        """Make the sum of mean residuals with the signs of a pattern a mean of rows."""
        signs = np.asarray(pattern)[self.bin]
        return replace(self, numerator=signs * self.numerator, bin=None)

    def estimate(self, level: float) -> tuple[float, float, float]:
        """Compute the value and both ends of its interval; NaN without rows."""
        if self.bin is not None:
            residuals, errors = self.residuals()
            return (float(np.abs(residuals).sum()), *estimate_error(residuals, errors, level)[1:])
        value, variance, freedom = self.mean()
        if (counted := self.binomial()) is not None:
            low, high = clopper_pearson(counted.events, counted.n, level)
            return value, float(low), float(high)
        half = stats.t.isf((1.0 - level) / 2.0, freedom) * math.sqrt(variance)
        low, high = np.clip([value - half, value + half], *self.range)
        return value, float(low), float(high)

    def p_value(self, inside: Bool, segment: Segment, bound: float | None) -> float:
        """Compute the p-value of "the segment is no worse than the rest", or than the bound.

        It is one where either part has too few rows for a variance.
        """
        own, rest, sign = self.take(inside), self.take(~inside), segment.sign
        counts = own.binomial(), rest.binomial()
        if counts[0] is not None and bound is not None:
            x, n, _ = counts[0]
            tail = stats.binom.sf(x - 1.0, n, bound) if sign > 0 else stats.binom.cdf(x, n, bound)
            return float(tail)
        if counts[0] is not None and counts[1] is not None:
            more, less = counts[:: int(sign)]
            assert more is not None
            assert less is not None
            return sum_p_value(less, Binomial(more.n - more.events, more.n), 1.0)
        first = (own if self.bin is None else own.signed(segment.pattern)).mean()
        second = (0.0, 0.0, 1.0) if bound is None else (bound, 0.0, 1.0)
        if bound is None and self.bin is None:
            second = rest.mean()
        elif bound is None:
            pattern = np.sign(rest.residuals()[0])
            second = rest.signed(pattern).mean()
        variance = first[1] + second[1]
        if not variance > 0.0:
            return 1.0
        freedom = variance**2 / (first[1] ** 2 / first[2] + second[1] ** 2 / second[2])
        return float(stats.t.sf(sign * (first[0] - second[0]) / math.sqrt(variance), freedom))


def read_rule(constraint: Any) -> tuple[Constraint, float | None]:
    """Read a constraint, or a rate without a bound, in the place of which there is the rest.

    Raises
    ------
    TypeError, ValueError
        If it compares groups, or is not one of the values that segments have.
    """
    bound: float | None = None
    if isinstance(constraint, str) and not re.search("[<>]=", constraint):
        constraint = parse_constraint(f"{constraint} <= 1").expression
    if isinstance(constraint, Expression) and not isinstance(constraint, Grouped):
        checked = Constraint(constraint, "<=", min(1.0, constraint.range[1]))
    else:
        several = check_constraints(constraint)
        if len(several) != 1:
            raise ValueError(f"constraint must be one rate or constraint, got {constraint!r}.")
        checked, bound = several[0], several[0].bound
    if isinstance(checked.expression, Grouped):
        raise ValueError(
            f"constraint={checked} compares groups that are named, and segments are found: give "
            f"the rate itself, such as {checked.rates[0]}, or a bound on it."
        )
    return checked, bound


def measure_sums(
    model: Any, given: audit.AuditRows, constraint: Constraint, positive: Hashable | None
) -> tuple[Rows, RowSums]:
    """Measure what a constraint bounds on single rows.

    Raises
    ------
    TypeError, ValueError
        As of an audit, and if the constraint adds up means over different rows.
    """
    models = {type(model).__name__: model}
    if audit.is_of_numbers(model, (constraint,)):
        predicted, predictions = audit.predict_numbers(models, given, (constraint,))
        (values,) = map(predicted.row_values, predictions.values())
        means = MeanIntervals(predicted.cells, predicted.compiled, values=values)
        return predicted.cells.rows, _sum_means(means, constraint)
    positive = audit.positive_of(model) if positive is None else positive
    found = audit.score_classes(models, given, (constraint,), positive)
    (constraint,), cells, compiled, (scored,) = *found[:3], found.scored.values()
    if "pair" in constraint.kinds:
        return cells.rows, _sum_pairs(cells, constraint, scored)
    if isinstance(constraint.expression, CalibrationError):
        view, bins = cells.views[cells.view_of[0]], constraint.expression.bins
        w = weights_of(cells) * cells.select(view, constraint.expression.on)[view.small_codes]
        assert scored.probability is not None
        residual = w * ((cells.rows.y == 1) - scored.probability)
        return cells.rows, RowSums(residual, w, find_bins(scored.probability, bins), bins)
    means = MeanIntervals(cells, compiled, scored.decided, scored.loss)
    return cells.rows, _sum_means(means, constraint)


def weights_of(cells: Cells) -> Float:
    """Find the weights of rows, ones by default."""
    return np.ones(len(cells.rows)) if cells.rows.weight is None else cells.rows.weight


def _sum_means(means: MeanIntervals, constraint: Constraint) -> RowSums:
    """Write a rate, or a quotient of rates over the same rows, as sums over rows."""
    sums: dict[int, Float] = {}
    base: Float | None = None
    for k, a, w, event in means.row_terms(0):
        base = w if base is None else base
        if not np.array_equal(w, base):
            raise ValueError(
                f"constraint={constraint} adds up means over different rows: give each of "
                f"{', '.join(map(str, constraint.rates))} by itself."
            )
        sums[k] = sums.get(k, 0.0) + a * w * event
    assert base is not None
    first, *others = (
        sums.get(k, 0.0 * base) + rate.constant * base for k, rate in enumerate(constraint.rates)
    )
    return RowSums(first, others[0] if others else base, range=constraint.expression.range)


def _sum_pairs(cells: Cells, constraint: Constraint, scored: ScoredDecisions) -> RowSums:
    """Write an AUC as the mean placement of rows."""
    expression = constraint.expression
    if not isinstance(expression, Rate) or len(expression.terms) != 1:
        raise ValueError(f"constraint={constraint} is a sum of pair rates: give one, as auc().")
    ((_, term),) = expression.terms
    view = cells.views[cells.view_of[0]]
    first, second = (s[view.small_codes] for s in base_sets(cells, term, view, None))
    assert scored.margin is not None
    assert term.event.target is not None
    target = int(np.flatnonzero(term.event.target.is_class(cells.classes))[0])
    score = log_odds_of_class(scored.margin, target).astype(np.float64)
    score = score if target or scored.margin.ndim > 1 else -score
    w = weights_of(cells) * (first | second)
    found = RowSums(w, w, score=score, is_first=first, range=(0.0, 1.0))
    return replace(found, numerator=w * np.nan_to_num(found.placements()))


@dataclass(frozen=True, eq=False)
class SearchColumn:
    """A column, its bins, and the conditions on it that the search of pairs knows.

    Parameters
    ----------
    name : Name of the column.
    values : (n_samples,). Its values; floats, or texts and other values that have no order.
    codes : (n_samples,). Bin of each row; the last one is for missing values and rare levels.
    choices : (n_choices, BINS + 1). Whether a condition holds in a bin; no condition comes first.
    cuts : (n_choices,). Number of cuts of each condition.
    conditions : The conditions, a tuple for each choice.
    """

    name: str
    values: NDArray[Any]
    codes: Codes
    choices: Float
    cuts: Float
    conditions: tuple[tuple[Condition, ...], ...]

    @classmethod
    def from_values(cls, name: str, values: NDArray[Any]) -> SearchColumn:
        """Divide the values of a column into bins."""
        missing = np.asarray(pd.isna(values))
        known = values[~missing]
        is_ordered = known.dtype.kind in "iuf" or (
            known.dtype.kind == "O" and all(type(v) in (int, float) for v in known)
        )
        codes = np.full(values.size, BINS, dtype=np.intp)
        options: list[tuple[Sequence[int], tuple[Condition, ...]]] = [(range(BINS + 1), ())]
        if is_ordered and known.size:
            values = np.where(missing, np.nan, values).astype(np.float64)
            distinct = np.unique(known.astype(np.float64))
            at = np.quantile(known.astype(np.float64), np.linspace(0, 1, BINS + 1)[1:-1])
            places = np.unique(np.searchsorted(distinct, at, "right") - 1)
            places = places[places < distinct.size - 1]
            edges = [short_number(*distinct[k : k + 2]) for k in places]
            codes[~missing] = np.searchsorted(edges, values[~missing])
            ends = [-math.inf, *edges, math.inf]
            options += [
                (range(i, j), interval(name, ends[i], ends[j]))
                for i, j in combinations(range(len(ends)), 2)
                if j - i < len(ends) - 1
            ]
        else:
            levels = pd.Series(known, dtype=object).value_counts().index[:BINS]
            for k, level in enumerate(levels):
                codes[~missing & (values == level)] = k
                options.append(([k], (Condition(name, "==", to_python_scalar(level)),)))
        if missing.any() and (codes[~missing] < BINS).all():
            options.append(([BINS], (Condition(name, "is missing"),)))
        choices = np.zeros((len(options), BINS + 1))
        for k, (inside, _) in enumerate(options):
            choices[k, list(inside)] = 1.0
        cuts = np.array([len(conditions) for _, conditions in options], dtype=np.float64)
        return cls(name, values, codes, choices, cuts, tuple(c for _, c in options))


def interval(name: str, low: float, high: float) -> tuple[Condition, ...]:
    """Write the conditions of an interval, without ends that are infinite."""
    above = (Condition(name, ">", low),) if low > -math.inf else ()
    below = (Condition(name, "<=", high),) if high < math.inf else ()
    return (*above, *below)


def short_number(low: float, high: float) -> float:
    """Find a number of few digits near the middle that is at least `low`, and below `high`."""
    for digits in range(1, 17):
        found = float(f"{(low + high) / 2.0:.{digits}g}")
        if low <= found < high:
            return found
    return float(low)


class Search:
    """The search of segments on one half of the rows.

    Parameters
    ----------
    residual, base : ndarray of shape (n_samples,)
        ``a - v b`` and ``b`` of each row.
    columns : sequence of SearchColumn
        The columns.
    side : float or None
        Sign of the residuals that violate a bound; None where segments are compared with the rest.
    min_rows : int
        Fewest rows that a value is taken over.
    max_conditions : int
        Most columns that a segment has conditions on.
    """

    def __init__(
        self,
        residual: Float,
        base: Float,
        columns: Sequence[SearchColumn],
        side: float | None,
        min_rows: int,
        max_conditions: int,
    ) -> None:
        self.side, self.min_rows, self.max_conditions = side, min_rows, max_conditions
        self.residual, self.columns = residual if side is None else side * residual, columns
        self.square, self.counted = base**2, (base != 0.0).astype(np.float64)
        self.total = self.square.sum()
        spread = residual - residual.sum() / base.sum() * base
        self.variance = max(float((spread**2).sum() / self.total), math.ulp(0.0))

    def cost(self, cuts: Any) -> Float:
        """Compute what the cuts on one column cost in the score; nothing without a cut."""
        of_column = 2.0 * math.log(len(self.columns))
        return np.asarray(cuts * math.log(self.residual.size) + of_column * (cuts > 0))

    def cost_of(self, conditions: Sequence[Condition]) -> float:
        """Compute what conditions cost in the score."""
        cuts = Counter(one.column for one in conditions).values()
        return float(sum(map(self.cost, cuts)))

    def score(self, sums: Iterable[Float], cost: Any) -> Float:
        """Compute the scores of segments by their sums; minus infinity of those not allowed."""
        residual, square, rows = sums
        gain = residual**2 if self.side is None else np.maximum(residual, 0.0) ** 2
        left = 1.0 - square / self.total if self.side is None else 1.0
        allowed = (rows >= self.min_rows) & (square <= self.total / 2.0) & (cost > 0)
        with np.errstate(divide="ignore", invalid="ignore"):
            found = gain / (self.variance * square * left) - cost
        return np.where(allowed, found, -np.inf)

    def sums(self, codes: Codes, size: int, rows: Any = slice(None)) -> list[Any]:
        """Sum residuals, squares and rows by code."""
        parts = (self.residual, self.square, self.counted)
        return [np.bincount(codes[rows], part[rows], size) for part in parts]

    def find(self) -> list[tuple[float, tuple[Condition, ...]]]:
        """Find the best segment of each pair of columns, and with a third one; the best first."""
        found: dict[tuple[Condition, ...], float] = {}
        alone = [self._extend((), column) for column in self.columns]
        order = np.argsort([-score for score, _ in alone])[:MOST_COLUMNS]
        proposals = [alone[k] for k in order]
        if self.max_conditions > 1:
            columns = [self.columns[k] for k in order]
            proposals += [self._best_pair(*pair) for pair in combinations(columns, 2)]
        proposals.sort(key=lambda proposal: -proposal[0])
        for _, conditions in proposals[:KEPT]:
            score, best = self.refine(conditions)
            for _ in range(self.max_conditions - 2):
                used = {one.column for one in best}
                more = [self._extend(best, c) for c in self.columns if c.name not in used]
                longer = max(more, key=lambda proposal: proposal[0], default=(-math.inf, ()))
                if longer[0] > score and len(used) < self.max_conditions:
                    score, best = self.refine(longer[1])
            found[best] = score
        allowed = ((s, c) for c, s in found.items() if s > -math.inf)
        return sorted(allowed, key=lambda one: -one[0])

    def _best_pair(
        self, first: SearchColumn, second: SearchColumn
    ) -> tuple[float, tuple[Condition, ...]]:
        """Find the best pair of conditions on two columns."""
        size = BINS + 1
        joint = self.sums(first.codes * size + second.codes, size**2)
        tables = [first.choices @ s.reshape(size, size) @ second.choices.T for s in joint]
        cost = self.cost(first.cuts)[:, None] + self.cost(second.cuts)
        scores = self.score(tables, cost)
        i, j = np.unravel_index(scores.argmax(), scores.shape)
        return float(scores[i, j]), first.conditions[i] + second.conditions[j]

    def _extend(
        self, conditions: tuple[Condition, ...], column: SearchColumn
    ) -> tuple[float, tuple[Condition, ...]]:
        """Find the best condition on a further column."""
        sums = self.sums(column.codes, BINS + 1, self.holds(conditions))
        cost = self.cost(column.cuts) + self.cost_of(conditions)
        scores = self.score((column.choices @ s for s in sums), cost)
        best = int(scores.argmax())
        return float(scores[best]), conditions + column.conditions[best]

    def holds(self, conditions: Sequence[Condition]) -> Bool:
        """Find the rows that meet all conditions."""
        found = np.ones(self.residual.size, dtype=bool)
        for one in conditions:
            column = self._column(one)
            if one.operator == "==":  # Comparing texts row by row is slow.
                found &= column.choices[column.conditions.index((one,))][column.codes] > 0.0
            else:
                found &= one.holds(column.values)
        return found

    def _column(self, condition: Condition) -> SearchColumn:
        return next(c for c in self.columns if c.name == condition.column)

    def refine(self, conditions: tuple[Condition, ...]) -> tuple[float, tuple[Condition, ...]]:
        """Move the cuts of each column in turn, until none of them raises the score."""
        score, before = self._score_of(conditions), -math.inf
        while score > before:
            before = score
            for name in dict.fromkeys(one.column for one in conditions):
                own = [one for one in conditions if one.column == name]
                others = tuple(one for one in conditions if one.column != name)
                if own[0].operator in ("<=", ">"):
                    found = self._best_interval(others, self._column(own[0]))
                    score, conditions = found if found[0] > score else (score, conditions)
        return score, conditions

    def _score_of(self, conditions: tuple[Condition, ...]) -> float:
        """Compute the score of a segment."""
        inside = self.holds(conditions)
        sums = (part[inside].sum() for part in (self.residual, self.square, self.counted))
        return float(self.score(map(np.asarray, sums), self.cost_of(conditions)))

    def _best_interval(
        self, others: tuple[Condition, ...], column: SearchColumn
    ) -> tuple[float, tuple[Condition, ...]]:
        """Find the best interval of a column among the rows that meet the other conditions.

        All intervals between :data:`BINS` squared quantiles are compared, at most. Each end is
        then moved to the best of all values.
        """
        rows = np.flatnonzero(self.holds(others) & ~np.isnan(column.values))
        rows = rows[np.argsort(column.values[rows], kind="stable")]
        values = column.values[rows]
        if not rows.size:
            return -math.inf, others
        places = np.append(0, np.append(np.flatnonzero(np.diff(values)) + 1, rows.size))
        parts = (self.residual, self.square, self.counted)
        sums = [np.append(0.0, np.cumsum(part[rows]))[places] for part in parts]
        last, of_others = places.size - 1, self.cost_of(others)

        def score(low: Any, high: Any) -> Float:
            cost = of_others + self.cost((low > 0).astype(int) + (high < last))
            differences = (s[high] - s[low] for s in sums)
            return np.where(low < high, self.score(differences, cost), -np.inf)

        every = np.arange(places.size)
        coarse = np.unique(np.linspace(0, last, min(BINS**2 // 2, places.size)).astype(np.intp))
        scores = score(coarse[:, None], coarse)
        low, high = coarse[list(np.unravel_index(scores.argmax(), scores.shape))]
        for _ in range(2):
            high = int(score(np.full(every.size, low), every).argmax())
            low = int(score(every, np.full(every.size, high)).argmax())
        best = float(score(np.array(low), np.array(high)))
        # The value of the row before a place, and that of the row after it.
        around = [(values[places[k] - 1], values[places[k]]) for k in (low, high) if 0 < k < last]
        cuts = [short_number(*pair) for pair in around]
        ends = cuts.pop(0) if low > 0 and cuts else -math.inf, cuts[0] if cuts else math.inf
        return best, (*others, *interval(column.name, *ends))


def search_segments(
    rows: Rows,
    sums: RowSums,
    half: Codes,
    columns: Sequence[str],
    bound: float | None,
    sense: str,
    *,
    max_conditions: int,
    n_segments: int,
    min_rows: int,
) -> list[Segment]:
    """Propose segments by one half of the rows; those kept share less than half of their rows."""
    own = sums.take(half)
    searched = [
        SearchColumn.from_values(name, np.asarray(rows.column(name))[half]) for name in columns
    ]
    parts = [own.numerator]
    if own.bin is not None:  # Wrong on one side, or too sure on both.
        parts.append(np.where(own.bin < own.n_bins / 2.0, 1.0, -1.0) * own.numerator)
    side = None if bound is None or own.bin is not None else 1.0 if sense == "<=" else -1.0
    found = []
    for part in parts:
        value = (
            bound if side is not None and bound is not None else part.sum() / own.denominator.sum()
        )
        residual = part - value * own.denominator
        search = Search(residual, own.denominator, searched, side, min_rows, max_conditions)
        for score, conditions in search.find():
            inside = search.holds(conditions)
            pattern = np.sign(own.take(inside).residuals()[0]) if own.bin is not None else ()
            is_more = side is None and residual[inside].sum() > 0.0
            sign = side or (1.0 if own.bin is not None or is_more else -1.0)
            found.append((score, inside, Segment(conditions, sign, tuple(pattern))))
    kept: list[tuple[Bool, Segment]] = []
    for _, inside, segment in sorted(found, key=lambda one: -one[0]):
        if all(overlap(inside, other) < 0.5 for other, _ in kept):
            kept.append((inside, segment))
    return [segment for _, segment in kept[:n_segments]]


def overlap(first: Bool, second: Bool) -> float:
    """Compute the share of the rows of either mask that are in both (Jaccard)."""
    either = np.count_nonzero(first | second)
    return np.count_nonzero(first & second) / either if either else 0.0


def measure_again(
    model: Any, given: audit.AuditRows, found: Any, positive: Hashable | None, level: float
) -> pd.DataFrame:
    """Tabulate segments that were found before on new rows, all of which measure them."""
    rows, sums = measure_sums(model, given, found.constraint, positive)
    return tabulate_segments(rows, sums, slice(None), found.segments, found.bound, level)


def find_members(rows: Rows, segments: Sequence[Segment]) -> list[Bool]:
    """Find the rows of each segment, (n_samples,) each."""
    return [np.asarray(rows.column(segment.expression), dtype=bool) for segment in segments]


def tabulate_segments(
    rows: Rows,
    sums: RowSums,
    measured: Any,
    segments: Sequence[Segment],
    bound: float | None,
    level: float,
) -> pd.DataFrame:
    """Tabulate segments on the rows that measure them, with p-values after Holm.

    Parameters
    ----------
    rows, sums
        All rows.
    measured : slice or ndarray of int
        The rows that measure.
    segments : sequence of Segment
        The segments, all that were looked at.
    bound : float or None
        Number that a value is compared with; None for the value of the rest.
    level : float
        Level of all intervals together.

    Returns
    -------
    DataFrame
        One row per segment, with SEGMENT_COLUMNS.
    """
    part, m, records = sums.take(measured), len(segments), []
    members = find_members(rows, segments)
    p = []
    for segment, inside in zip(segments, members, strict=True):
        own = inside[measured]
        value, low, high = part.take(own).estimate(1.0 - (1.0 - level) / m)
        p.append(part.p_value(own, segment, bound) if math.isfinite(low) else 1.0)
        n, rest = np.count_nonzero(part.denominator[own]), part.take(~own).estimate(level)[0]
        text = describe_conditions(segment.conditions), segment.expression
        records.append([*text, n, inside.mean(), value, rest, low, high])
    order = np.argsort(p, kind="stable")
    adjusted = np.empty(m)
    steps = np.asarray(p)[order] * (m - np.arange(m))
    adjusted[order] = np.minimum(np.maximum.accumulate(steps), 1.0)
    for k, record in enumerate(records):
        others = [overlap(members[k], mask) for i, mask in enumerate(members) if i != k]
        record += [adjusted[k], max(others, default=0.0)]
    return audit.tabulate(records, audit.SEGMENT_COLUMNS)
