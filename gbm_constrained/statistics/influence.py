r"""Influence of rows on functionals, and how far these vary from sample to sample.

Rates on cross-fitted rows are those of several boosters together, and the model returned is one
more booster of their kind. The boosters may satisfy a constraint in the mean while none of them
does. The value of a fold's rows is taken to be :math:`\mu + u_i + e_i`, with e_i the sampling
error of these rows and u_i the booster's own deviation: a random-effects model (DerSimonian and
Laird, "Meta-analysis in clinical trials", 1986).

The interval of the model returned is that of one more study (Higgins, Thompson and Spiegelhalter,
"A re-evaluation of random-effects meta-analysis", 2009, section 4), with a variance of u that is
moderated, for the folds are few (Smyth, "Linear models and empirical Bayes methods for assessing
differential expression in microarray experiments", 2004). The boosters are reported to differ only
where Cochran's Q rejects that u is zero.

Each row has the weight :math:`w_i E_i` with independent standard exponential :math:`E_i` (Rubin,
"The Bayesian Bootstrap", 1981). Rows that fall into one cell and are decided alike by every rule
that is looked at form a group. The weight of a group of equal rows is gamma distributed; of rows
of unequal weights, a gamma variable has the same mean :math:`\sum w_i` and variance
:math:`\sum w_i^2`. Where rows also count for amounts, those of a group are alike.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse, stats

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.constraints.comparisons import Ratio
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import is_any
from gbm_constrained.problem.linear_constraints import LinearConstraints, LinearMap
from gbm_constrained.statistics.counts import CellCounts, Fractions, functionals_of


class Influence:
    """Influence of rows on functionals, and the sampling variances that it makes (delta method).

    A row's influence on a fraction is its event less the fraction, over the weight of the base
    set. A sum of fractions has the sum of these influences, row by row, so that the numerator and
    the denominator of a quotient vary together, and so do rates of groups that share rows.

    Parameters
    ----------
    compiled : LinearConstraints
        Constraints, whose functionals are fractions of rows.
    together : CellCounts
        Decisions that the fractions, and the shares of decisions in a cell, are taken of. Those of
        a few of the rows would be small by chance where the rates of these are.
    """

    def __init__(self, compiled: LinearConstraints, together: CellCounts) -> None:
        self.fractions = Fractions.of_constraints(compiled, together.weight.shape)
        self.together = together

    def variances(self, combine: Any, counts: CellCounts | None = None) -> Float:
        """Compute the sampling variances of sums of functionals.

        Parameters
        ----------
        combine : sparse array of shape (n, n_functionals)
            Coefficients of the functionals in each sum.
        counts : CellCounts, default=None
            Decisions about part of the rows that the sums are taken of; None stands for all rows.

        Returns
        -------
        ndarray of shape (n,)
            NaN for sums with a mean loss, or with a fraction over no rows.
        """
        if combine.shape[0] <= combine.shape[1]:
            of_sums, square = self._influence(combine, counts)
            with np.errstate(invalid="ignore"):
                found = replace(of_sums, data=of_sums.data**2)(square)
        else:  # Of the pairs of many groups each is influenced by all rows, with credible rates.
            matrix, starts = self._covariance(counts), range(0, combine.shape[0], 4096)
            blocks = [combine[start : start + 4096] for start in starts]
            sums = [np.asarray(block.multiply(block @ matrix).sum(axis=1)) for block in blocks]
            found = np.maximum(np.concatenate(sums), 0.0)
        is_unknown = np.isnan(self.fractions.constant)
        if is_unknown.any():
            found[combine.astype(bool) @ is_unknown] = np.nan
        return found

    def covariance(self) -> Float:
        """Compute the covariances of all functionals, (n_functionals, n_functionals).

        They are NaN for mean losses and fractions over no rows.
        """
        found, is_loss = self._covariance(None), np.isnan(self.fractions.constant)
        found[is_loss] = found[:, is_loss] = np.nan
        return found

    def _covariance(self, counts: CellCounts | None) -> Float:
        of_rates, square = self._influence(self.fractions.each, counts)
        at = of_rates.row, of_rates.column
        matrix: Any = sparse.csr_array((of_rates.data, at), shape=of_rates.shape)
        return np.asarray((matrix @ sparse.diags_array(square) @ matrix.T).toarray())

    def _influence(self, combine: Any, counts: CellCounts | None) -> tuple[LinearMap, Float]:
        """Find the influence on sums of rows of weight one, and the squared weights of rows."""
        weight, square = self.together.weight, self.together.square
        if counts is not None:
            weight, square = counts.weight, counts.decide(self.together.shares).square
        count_events, count_rows = self.fractions.count_events, self.fractions.count_rows
        together = self.together.weight.ravel()
        with np.errstate(divide="ignore", invalid="ignore"):
            rates = count_events(together) / count_rows(together)
            density = 1.0 / count_rows(weight.ravel())
        found = count_events.data - rates[count_events.row]
        # A row whose event is the fraction has no influence, whatever the weight of the base set.
        np.multiply(found, density[count_rows.row], out=found, where=found != 0.0)
        return self.fractions.combine(combine, found), square.ravel()


CHANCE = 1e-3  # Probability that boosters which agree are reported to differ.
# Expected variance between boosters, in sampling variances of a fold, and the degrees of freedom
# that it counts as: chosen on Adult and checked on other data (evidence, Intervals out of fold).
PRIOR, PRIOR_FREEDOM = 0.5, 3


class BetweenFoldDeviation(NamedTuple):
    """Standard deviations between boosters on rows that they were not trained on."""

    constraints: Float  # Of what each constraint bounds: the worst group's, or worst pair's.
    rates: Float  # Of the rates that constraints are made of, such as those of groups.
    is_beyond_chance: Bool  # Whether Cochran's Q rejects that boosters agree on a constraint.


def estimate_between_fold_deviation(
    compiled: LinearConstraints,
    cells: Cells,
    folds: Sequence[Codes],
    decisions: Codes,
    by_others: Codes | None = None,
) -> BetweenFoldDeviation:
    """Estimate the standard deviation between the boosters of the folds.

    `folds` holds the positions of the rows of each fold. `decisions` are those of the booster that
    has not seen a row, by a shift that all boosters share. `by_others` are those by shifts that
    the other folds would have chosen: these differ as the shift of the model would, had it been
    trained on other rows. The result is zero for fewer than two folds, for mean losses, and for
    rates that a fold has no rows of.
    """
    n, n_rates = len(folds), len(compiled.parts)
    constraints = np.zeros(len(compiled.constraints))
    is_beyond_chance = np.zeros(constraints.size, dtype=bool)
    if n < 2:
        return BetweenFoldDeviation(constraints, np.zeros(n_rates), is_beyond_chance)
    functionals = functionals_of(compiled, CellCounts.of(cells, decisions))
    compiled = compiled.tangent(functionals)
    value, variance = _values_by_fold(compiled, cells, folds, decisions)
    own = _variance_beyond_chance(value, variance)
    # The comparison is False for undefined values, which have no Q.
    differs = _cochran_p_value(value, variance) < CHANCE / len(compiled)
    differs &= value.var(axis=0, ddof=1) > variance.mean(axis=0)
    is_beyond_chance[compiled.owner[differs[n_rates:]]] = True
    if by_others is not None and is_any(cells.communicator, (by_others != decisions).any()):
        # A deviation from the mean of the others is that much smaller from the mean of all.
        of_others = _values_by_fold(compiled, cells, folds, by_others)
        own = np.maximum(own, _variance_beyond_chance(*of_others, scale=1.0 - 1.0 / n))
    with np.errstate(divide="ignore", invalid="ignore"):
        units = _units(compiled, functionals)
        violation = (compiled.rows_of(functionals) - compiled.b) / units
        of_units = np.nan_to_num(np.sqrt(own[n_rates:]) / units, posinf=0.0)
    for j in np.unique(compiled.owner):
        of_rows = np.flatnonzero(compiled.owner == j)
        worst = np.nan_to_num(violation[of_rows], nan=-np.inf).argmax()
        constraints[j] = of_units[of_rows[worst]]
    return BetweenFoldDeviation(constraints, np.sqrt(own[:n_rates]), is_beyond_chance)


def _values_by_fold(
    compiled: LinearConstraints, cells: Cells, folds: Sequence[Codes], decisions: Codes
) -> tuple[Float, Float]:
    """Compute the values of all rates and rows of constraints on each fold, and their variances.

    The variances are those of sampling; both have the shape (n_folds, n_rates + m).
    """
    influence = Influence(compiled, CellCounts.of(cells, decisions))
    combine = sparse.vstack([sparse.eye_array(len(compiled.parts)), compiled.R], format="csr")
    values, variances = [], []
    for fold in folds:
        counts = CellCounts.of(cells.take(fold), decisions[fold])
        functionals = influence.fractions.of(counts.weight.ravel())
        values.append([*functionals, *compiled.rows_of(functionals)])
        variances.append(influence.variances(combine, counts))
    return np.array(values), np.array(variances)


def _variance_beyond_chance(value: Float, variance: Float, scale: float = 1.0) -> Float:
    """Estimate the boosters' own variance, beyond that of sampling.

    Few boosters estimate a variance badly: the estimate is averaged with an expected one.
    """
    by_chance, freedom = variance.mean(axis=0), len(value) - 1
    between = scale**2 * value.var(axis=0, ddof=1)
    expected = (1.0 + PRIOR) * by_chance
    moderated = (PRIOR_FREEDOM * expected + freedom * between) / (PRIOR_FREEDOM + freedom)
    return np.asarray(np.maximum(np.nan_to_num(moderated - by_chance), 0.0))


def _cochran_p_value(value: Float, variance: Float) -> Float:
    """Compute the probability that boosters which agree differ as much, by Cochran's Q."""
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = 1.0 / variance
        mean = (weight * value).sum(axis=0) / weight.sum(axis=0)
        q = (weight * (value - mean) ** 2).sum(axis=0)
    return np.asarray(stats.chi2.sf(q, len(value) - 1))


def _units(compiled: LinearConstraints, functionals: Float) -> Float:
    """Compute how far each row of constraints moves as what its constraint bounds moves by one.

    The row of a ratio ``p / q >= b`` is ``b q - p <= 0``, which moves by q, and so does that of a
    quotient. All other rows move by one, each in its unit.
    """
    units = np.ones(len(compiled))
    positive = (compiled.R > 0.0) @ functionals
    for row, j in enumerate(compiled.owner):
        expression = compiled.constraints[j].expression
        if isinstance(expression, Ratio):
            units[row] = positive[row]
        elif expression.is_quotient:
            units[row] = abs(functionals[compiled.spans[j]][1])
    return units / compiled.unit


def prediction_intervals(
    intervals: Float, values: Float, deviation: Float, n_boosters: int, ranges: Float
) -> NDArray[np.float64]:
    """Widen intervals of `n_boosters` together to prediction intervals of one more booster.

    `deviation` is that between boosters, `values` and `intervals` are those of all boosters
    together. The intervals are normal, though the deviation is an estimate from few boosters: the
    model returned, of more rows and by a shift that all of them chose, differs less
    (``docs/unseen.md``).
    """
    if not deviation.any():
        return intervals
    # At level 0.95; the mean of n boosters is itself off by 1 / n of the variance.
    own = stats.norm.ppf(0.975) * deviation * np.sqrt(1.0 + 1.0 / n_boosters)
    low, high = intervals.T
    wider = np.column_stack(
        [values - np.hypot(values - low, own), values + np.hypot(high - values, own)]
    )
    inside = np.clip(wider, ranges[:, :1], ranges[:, 1:])
    return np.where((deviation > 0.0)[:, None], inside, intervals)


def find_violated_curves(
    compiled: LinearConstraints, counts: CellCounts, levels: ArrayLike
) -> Bool:
    """Find the curved rows that are violated in the population beyond doubt.

    The test is normal, at the tangent of the worst curve of each constraint. The result has the
    shape of leading axes of the counts, and after them that of the rows.
    """
    beyond = np.zeros((*counts.weight.shape[:-2], len(compiled)), dtype=bool)
    curves = compiled.curves.items
    if not curves:
        return beyond
    shape = counts.weight.shape[-2:]
    weight, square = (of.reshape(-1, shape[0] * shape[1]) for of in (counts.weight, counts.square))
    fractions, found = Fractions.of_constraints(compiled, shape), beyond.reshape(-1, len(compiled))
    functionals = fractions.of(weight)
    quantiles = stats.norm.isf(np.broadcast_to(levels, len(compiled)))
    violations = compiled.curves.values(functionals.T) - compiled.curves.bounds[:, None]
    violations = np.where(violations > ROUNDING, violations, 0.0)
    owner = compiled.owner[[curve.first for curve in curves]]
    for own in (np.flatnonzero(owner == j) for j in np.unique(owner)):
        worst = own[violations[own].argmax(axis=0)]
        for k in np.unique(worst):
            curve, at = curves[k], np.flatnonzero((worst == k) & (violations[k] > 0.0))
            if not at.size:
                continue
            slopes = np.zeros((at.size, functionals.shape[1]))
            slopes[:, curve.at] = curve.row.function.gradient(functionals[at][:, curve.at].T).T
            errors = _standard_errors_of_tables(fractions, slopes, weight[at], square[at])
            is_beyond = violations[k, at] > quantiles[curve.first] * errors
            found[at, curve.rows] = is_beyond[:, None]
    return found.reshape(beyond.shape)


def _standard_errors_of_tables(
    fractions: Fractions, slopes: Float, weight: Float, square: Float
) -> Float:
    """Compute the standard error of one sum of functionals in each of several tables, (n,).

    `slopes` are the coefficients of the functionals in each sum, and `weight` and `square` tables
    of weights and their squares, (n, n_cells * n_classes). The error is NaN for sums with a mean
    loss, or with a fraction over no rows.
    """
    parts = slopes @ fractions.sum
    base = (fractions.bases @ weight.T).T
    with np.errstate(divide="ignore", invalid="ignore"):
        rates = (fractions.events @ weight.T).T / base
        of_events = np.where(parts != 0.0, parts / base, 0.0)
        of_bases = np.where(parts != 0.0, parts / base * rates, 0.0)
    influence = of_events @ fractions.events - of_bases @ fractions.bases
    found = np.asarray((influence**2 * square).sum(axis=1), dtype=np.float64)
    found[(slopes[:, np.isnan(fractions.constant)] != 0.0).any(axis=1)] = np.nan
    return np.sqrt(found)


class RowGroups:
    """Rows that share a cell and all decisions, and count for about the same amounts.

    Parameters
    ----------
    cells : ndarray of shape (n_rows,), intp
        Cell of each row.
    decisions : ndarray of shape (n_columns, n_rows), intp
        Decisions of each row.
    weight : ndarray of shape (n_rows,) or None
        Weight of each row.
    amounts : sequence of ndarray of shape (n_rows,), default=()
        Amounts of each row, of several kinds.

    Attributes
    ----------
    cells, decisions
        Those of each group.
    weight, square : ndarray of shape (n_groups,)
        Sums of weights and of squared weights.
    amounts : list of ndarray of shape (n_groups,)
        Mean amounts of each group.
    """

    def __init__(
        self, cells: Codes, decisions: Codes, weight: Float | None, amounts: Sequence[Float] = ()
    ) -> None:
        group = np.asarray(cells, dtype=np.int64)
        for column in (*decisions, *map(_grade, amounts)):
            # Renumbered after each column, so that no number overflows.
            pair = group * (int(column.max(initial=0)) + 1) + column
            _, first, group = np.unique(pair, return_index=True, return_inverse=True)
        n = len(first)

        def total(values: Float | None) -> Float:
            return np.bincount(group, values, n).astype(np.float64)

        self.cells, self.decisions, self.weight = cells[first], decisions[:, first], total(weight)
        self.square = total(None if weight is None else weight**2)
        self.amounts = [
            np.divide(
                total(one if weight is None else weight * one),
                self.weight,
                out=np.zeros(n),
                where=self.weight > 0,
            )
            for one in amounts
        ]

    def resample(self, n_replicates: int = 400) -> Float:
        """Draw weights of the groups, of shape (n_replicates, n_groups).

        The 2.5% quantile of 400 replicates has a standard error of 0.1 standard deviations.
        """
        random = np.random.RandomState(0)
        has_weight = self.weight > 0
        shape = self.weight[has_weight] ** 2 / self.square[has_weight]
        scale = self.square[has_weight] / self.weight[has_weight]
        drawn = np.zeros((n_replicates, self.weight.size))
        drawn[:, has_weight] = random.gamma(shape, scale, (n_replicates, shape.size))
        return drawn

    def tables(self, weights: Float, shares: Float, n_cells: int) -> Float:
        """Add up weights by measure, cell and class; ones are the first measure.

        Parameters
        ----------
        weights : ndarray of shape (n_replicates, n_groups)
            Weights of the groups.
        shares : ndarray of shape (n_groups, n_classes)
            Probability that each group is decided as each class.
        n_cells : int
            Number of cells.

        Returns
        -------
        ndarray of shape (n_replicates, n_measures * n_cells, n_classes)
        """
        measured = [shares, *(shares * amount[:, None] for amount in self.amounts)]
        found = np.zeros((len(weights), len(measured) * n_cells, shares.shape[1]))
        for cell in range(n_cells):
            inside = self.cells == cell
            for m, counted in enumerate(measured):
                found[:, m * n_cells + cell] = weights[:, inside] @ counted[inside]
        return found


def _grade(amount: Float) -> Codes:
    """Grade amounts by the powers of 1.1 above the smallest one; zeros are apart.

    The variance of the amounts of one grade is 1e-3 of their square.
    """
    is_positive = amount > 0.0
    found = np.zeros(amount.size, dtype=np.int64)
    size = np.log(amount[is_positive])
    power = (size - size.min(initial=np.inf)) / np.log(1.1)
    found[is_positive] = 1 + np.floor(power + ROUNDING).astype(np.int64)
    return found
