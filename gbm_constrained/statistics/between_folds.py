r"""Variance between the boosters of the folds of what constraints bound.

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
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import singledispatch
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray
from scipy import sparse, stats

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import Expression
from gbm_constrained.constraints.expressions import Quotient
from gbm_constrained.constraints.gaps import Ratio
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.communicator import is_any
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import Influence

CHANCE = 1e-3  # Probability that boosters which agree are reported to differ.
LEVEL = 0.95  # Probability that an interval covers the truth.
# Expected variance between boosters, in sampling variances of a fold, and the degrees of freedom
# that it counts as: chosen on Adult and checked on other data (evidence, Intervals out of fold).
PRIOR, PRIOR_FREEDOM = 0.5, 3


class BetweenFoldDeviation(NamedTuple):
    """Standard deviations between boosters on rows that they were not trained on."""

    constraints: Float  # Of what each constraint bounds: the worst group's, or worst pair's.
    rates: Float  # Of the rates that constraints are made of, such as those of groups.
    is_beyond_chance: Bool  # Whether Cochran's Q rejects that boosters agree on a constraint.


class _Moments(NamedTuple):
    """Values on each fold and their sampling variances, each of shape (n_folds, n_values)."""

    value: Float
    variance: Float

    def own(self, scale: float = 1.0) -> Float:
        """Estimate the boosters' own variance, beyond that of sampling.

        Few boosters estimate a variance badly: the estimate is averaged with an expected one.
        """
        by_chance, freedom = self.variance.mean(axis=0), len(self.value) - 1
        between = scale**2 * self.value.var(axis=0, ddof=1)
        expected = (1.0 + PRIOR) * by_chance
        moderated = (PRIOR_FREEDOM * expected + freedom * between) / (PRIOR_FREEDOM + freedom)
        return np.asarray(np.maximum(np.nan_to_num(moderated - by_chance), 0.0))

    @property
    def exceeds_chance(self) -> Bool:
        """Whether values vary more than chance makes them."""
        return np.asarray(self.value.var(axis=0, ddof=1) > self.variance.mean(axis=0))

    @property
    def p_value(self) -> Float:
        """Probability that boosters which agree differ as much, by Cochran's Q."""
        with np.errstate(divide="ignore", invalid="ignore"):
            weight = 1.0 / self.variance
            mean = (weight * self.value).sum(axis=0) / weight.sum(axis=0)
            q = (weight * (self.value - mean) ** 2).sum(axis=0)
        return np.asarray(stats.chi2.sf(q, len(self.value) - 1))


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
    n = len(folds)
    constraints = np.zeros(len(compiled.constraints))
    is_beyond_chance = np.zeros(constraints.size, dtype=bool)
    if n < 2:
        return BetweenFoldDeviation(constraints, np.zeros(len(compiled.parts)), is_beyond_chance)
    together = CellCounts.of(cells, decisions)
    functionals = functionals_of(compiled, together)
    compiled = compiled.tangent(functionals)
    of_rates, of_rows = _by_fold(compiled, cells, folds, decisions)
    own_rates, own_rows = of_rates.own(), of_rows.own()
    # The comparison is False for undefined values, which have no Q.
    apart = (of_rows.p_value < CHANCE / len(compiled)) & of_rows.exceeds_chance
    is_beyond_chance[compiled.owner[apart]] = True
    if by_others is not None and is_any(cells.communicator, (by_others != decisions).any()):
        # A deviation from the mean of the others is that much smaller from the mean of all.
        closer = 1.0 - 1.0 / n
        of_rates, of_rows = _by_fold(compiled, cells, folds, by_others)
        own_rates = np.maximum(own_rates, of_rates.own(closer))
        own_rows = np.maximum(own_rows, of_rows.own(closer))
    with np.errstate(divide="ignore", invalid="ignore"):
        units = _units(compiled, functionals)
        violation = (compiled.rows_of(functionals) - compiled.b) / units
        of_units = np.nan_to_num(np.sqrt(own_rows) / units, posinf=0.0)
    for j in np.unique(compiled.owner):
        own = np.flatnonzero(compiled.owner == j)
        constraints[j] = of_units[own[np.nan_to_num(violation[own], nan=-np.inf).argmax()]]
    return BetweenFoldDeviation(constraints, np.sqrt(own_rates), is_beyond_chance)


def _by_fold(
    compiled: LinearConstraints, cells: Cells, folds: Sequence[Codes], decisions: Codes
) -> tuple[_Moments, _Moments]:
    """Compute the moments of all rates, and of all rows of constraints."""
    influence = Influence.of(compiled, CellCounts.of(cells, decisions))
    each = sparse.eye_array(len(compiled.parts), format="csr")
    rates, rows = [], []
    for fold in folds:
        counts = CellCounts.of(cells.take(fold), decisions[fold])
        functionals = influence.fractions.of(counts.weight.ravel())
        rates.append((functionals, influence.variances(each, counts)))
        rows.append((compiled.rows_of(functionals), influence.variances(compiled.R, counts)))
    first, second = (_Moments(*map(np.array, zip(*found, strict=True))) for found in (rates, rows))
    return first, second


def _units(compiled: LinearConstraints, functionals: Float) -> Float:
    """Compute how far each row of constraints moves as what its constraint bounds moves by one.

    The row of a ratio ``p / q >= b`` is ``b q - p <= 0``, which moves by q, and so does that of a
    quotient. All other rows move by one, each in its unit.
    """
    positive = (compiled.R > 0.0) @ functionals
    owners = [(compiled.constraints[j].expression, compiled.spans[j]) for j in compiled.owner]
    units = [
        _unit_of(expression, float(q), functionals[span])
        for q, (expression, span) in zip(positive, owners, strict=True)
    ]
    return np.array(units, dtype=np.float64) / compiled.unit


@singledispatch
def _unit_of(expression: Expression, positive: float, functionals: Float) -> float:
    """Compute how far a row of unit one moves as the value of its expression moves by one.

    `positive` is the sum of the functionals with positive coefficients in the row.
    """
    return 1.0


@_unit_of.register
def _(expression: Ratio, positive: float, functionals: Float) -> float:
    return positive


@_unit_of.register
def _(expression: Quotient, positive: float, functionals: Float) -> float:
    return abs(float(functionals[1]))


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
    # The mean of n boosters is itself off by 1 / n of the variance.
    own = stats.norm.ppf(0.5 + LEVEL / 2.0) * deviation * np.sqrt(1.0 + 1.0 / n_boosters)
    low, high = intervals.T
    wider = np.column_stack(
        [values - np.hypot(values - low, own), values + np.hypot(high - values, own)]
    )
    inside = np.clip(wider, ranges[:, :1], ranges[:, 1:])
    return np.where((deviation > 0.0)[:, None], inside, intervals)
