r"""Whether the boosters of the folds agree on what the rules bound.

Rates on cross-fitted rows are those of several boosters together, and the model returned is one
more of their kind. It does what they do together if each of them does. But a rule can tip over: a
gap of error rates hardly moves while its multiplier rises, and then the decisions of a whole group
turn within a few rounds. Boosters that end on either side of that meet the rule in the mean, and
none of them does.

The value of a fold's rows is taken to be :math:`\mu + u_i + e_i`, with e_i the sampling error of
these rows and u_i what is the booster's own. Where Cochran's Q rejects that there is no u, the
moment estimate of its variance counts in the interval of one model (a random-effects model;
DerSimonian and Laird, "Meta-analysis in clinical trials", 1986).

The model returned may also be of another kind than they are: where leaves need so many rows that
boosters of three quarters of them cannot split, say. Its rates on new rows are not known, but on
its own training rows errors are at their fewest (:func:`broken_in_training`). Of gaps of error
rates that is not so: there what the folds' boosters lost on unseen rows is added. Nor is it of
shares of predictions, which trees that learn labels by heart move either way.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
from scipy import stats

from gbm_constrained.cells import Cells
from gbm_constrained.compiler import CompiledConstraints
from gbm_constrained.counts import CellCounts, functionals_of, indicator
from gbm_constrained.p_values import rows_beyond
from gbm_constrained.rates import Gap, Quotient, Ratio
from gbm_constrained.rows import Bool, Codes, Float

CHANCE = 1e-3  # That boosters which agree are said not to.
LEVEL = 0.95


def deviation_of_boosters(
    compiled: CompiledConstraints, cells: Cells, folds: Sequence[Codes], decisions: Codes
) -> Float:
    """Estimate the deviation, from booster to booster, of what each constraint bounds.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    cells : Cells
        The partition of all cross-fitted rows.
    folds : sequence of ndarray of int
        Positions of the rows of each fold.
    decisions : ndarray of int
        Class index decided for each row, by the booster that has not seen it.

    Returns
    -------
    ndarray of shape (n_constraints,)
        Standard deviations; zero where chance explains that folds differ, for fewer than two
        folds, of mean losses, and of rates over rows of their own that overlap.
    """
    deviation = np.zeros(len(compiled.constraints))
    if len(folds) < 2:
        return deviation
    together = functionals_of(compiled, CellCounts.of(cells, decisions))
    values, variances = [], []
    for fold in folds:
        counts = CellCounts.of(cells.take(fold), decisions[fold])
        values.append(compiled.rows_of(functionals_of(compiled, counts)))
        variances.append(_sampling_variance(compiled, counts, together))
    value, variance = np.array(values), np.array(variances)
    with np.errstate(divide="ignore", invalid="ignore"):
        weight = 1.0 / variance
        mean = (weight * value).sum(axis=0) / weight.sum(axis=0)
        q = (weight * (value - mean) ** 2).sum(axis=0)
    own = value.var(axis=0, ddof=1) - variance.mean(axis=0)
    # Not so of undefined values, which have no Q.
    apart = (stats.chi2.sf(q, len(folds) - 1) < CHANCE / q.size) & (own > 0.0)
    found = np.sqrt(own[apart]) / _units(compiled, together)[apart]
    np.maximum.at(deviation, compiled.owner[apart], found)
    return deviation


def _units(compiled: CompiledConstraints, functionals: Float) -> Float:
    """Return how far each row of constraints moves as what its constraint bounds moves by one.

    By one; but the row of a ratio ``p / q >= b`` is ``b q - p <= 0``, which moves by q, and so
    does that of a quotient.
    """
    units = np.ones(len(compiled))
    q = (compiled.R > 0.0) @ functionals
    for r, j in enumerate(compiled.owner):
        expression = compiled.constraints[j].expression
        if isinstance(expression, Ratio):
            units[r] = q[r]
        elif isinstance(expression, Quotient):
            units[r] = abs(functionals[compiled.spans[j]][1])
    return units


def _sampling_variance(
    compiled: CompiledConstraints, counts: CellCounts, functionals: Float
) -> Float:
    """Variance of each row of constraints on some rows, at given rates.

    Of rates over disjoint sets of rows; NaN for all else.
    """
    squares = np.full(len(compiled.parts), np.nan)
    cells: list[Codes] = [np.zeros(0, dtype=np.intp)] * len(compiled.parts)
    for k, parts in enumerate(compiled.parts):
        if parts is None or len(parts) != 1:
            continue
        (part,) = parts
        cells[k] = part.cells
        total, square = counts.weight[part.cells].sum(), counts.square[part.cells].sum()
        rate = (functionals[k] - compiled.constant[k]) / part.coefficient
        if total > 0:
            squares[k] = part.coefficient**2 * rate * (1.0 - rate) * square / total**2
    variance = np.asarray(compiled.R.power(2) @ np.nan_to_num(squares))
    uses = compiled.R.astype(bool).astype(float)
    inside = indicator(cells, len(counts.weight))
    overlap = inside @ inside.T
    overlap.setdiag(0.0)
    unknown = uses @ np.isnan(squares) + (uses @ overlap).multiply(uses).sum(axis=1)
    variance[(unknown > 0) | (uses.sum(axis=1) == 0)] = np.nan
    return variance


def broken_in_training(
    compiled: CompiledConstraints, counts: CellCounts, optimism: Float | None = None
) -> Bool:
    """Whether a model breaks rules by the rows that it was trained on, beyond chance.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    counts : CellCounts
        Its decisions on the training rows.
    optimism : ndarray of shape (m,), default=None
        How much higher rows of constraints are taken to be on unseen rows, for those that reward
        all errors and those that look at no label; NaN where it is not known, and None if nowhere.

    Returns
    -------
    ndarray of shape (n_constraints,), bool
        False for other rules that may ask for errors, such as gaps: these are not at their best
        on training rows.
    """
    told, b = ~compiled.rewards_errors, compiled.b
    if optimism is not None:
        moved = compiled.rewards_all_errors | of_predictions(compiled)
        moved &= compiled.rewards_errors & np.isfinite(optimism)
        told = told | moved
        b = np.where(moved, b - optimism, b)
    broken = np.zeros(len(compiled.constraints), dtype=bool)
    beyond = rows_beyond(replace(compiled, b=b), counts, (1.0 - LEVEL) / 2.0)
    broken[compiled.owner[beyond & told]] = True
    return broken


def of_predictions(compiled: CompiledConstraints) -> Bool:
    """Whether rows of constraints look at predictions alone, such as those on selection rates."""
    rules = np.array([c.is_of_predictions for c in compiled.constraints], dtype=bool)
    return np.asarray(rules[compiled.owner])


def optimism_of_boosters(
    compiled: CompiledConstraints,
    cells: Cells,
    training: Sequence[Codes],
    decisions: Sequence[Codes],
    unseen: Float,
) -> Float:
    """How much higher rows of constraints are on unseen rows than on those of the boosters.

    Trees that know labels by heart select another share of their own rows than of others, at one
    threshold. All of the difference is taken, though a model of more rows loses less: a rule that
    holds is not to be doubted.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    cells : Cells
        The partition of all rows.
    training, decisions : sequence of ndarray of int
        Positions of the rows that each booster was grown on, and the classes it decides for them.
    unseen : ndarray of shape (n_functionals,)
        Values on the rows that they have not seen.

    Returns
    -------
    ndarray of shape (m,)
        NaN where a value is not defined.
    """
    seen = [
        compiled.rows_of(functionals_of(compiled, CellCounts.of(cells.take(rows), decided)))
        for rows, decided in zip(training, decisions, strict=True)
    ]
    return np.asarray(compiled.rows_of(unseen) - np.mean(seen, axis=0))


def values_by_training(
    compiled: CompiledConstraints, functionals: Float, optimism: Float | None
) -> Float:
    """Value of each constraint on the training rows, of gaps of error rates that of unseen ones.

    Parameters
    ----------
    compiled : CompiledConstraints
        The constraints.
    functionals : ndarray of shape (n_functionals,)
        Values on the training rows.
    optimism : ndarray of shape (m,) or None
        As in :func:`broken_in_training`, of rows that reward all errors.

    Returns
    -------
    ndarray of shape (n_constraints,)
    """
    values = compiled.values(functionals)
    if optimism is None:
        return values
    rows = compiled.rows_of(functionals) + optimism
    for j in np.unique(compiled.owner[compiled.rewards_all_errors]):
        own, constraint = compiled.owner == j, compiled.constraints[j]
        if isinstance(constraint.expression, Gap) and not isinstance(constraint.expression, Ratio):
            values[j] = rows[own].max()
        elif own.sum() == 1:
            values[j] += constraint.sign * optimism[own][0]
    return values


def of_one_booster(intervals: Float, values: Float, deviation: Float, n_boosters: int) -> Float:
    """Intervals of what one booster does, from those of several together.

    Parameters
    ----------
    intervals : ndarray of shape (n_constraints, 2)
        Of what they do together.
    values : ndarray of shape (n_constraints,)
        What they do together.
    deviation : ndarray of shape (n_constraints,)
        From booster to booster.
    n_boosters : int
        How many of them there are.
    """
    if not deviation.any():
        return intervals
    # The mean of n boosters is itself off by 1 / n of the variance.
    own = stats.t.ppf(0.5 + LEVEL / 2.0, n_boosters - 1) * deviation
    own *= np.sqrt(1.0 + 1.0 / n_boosters)
    low, high = intervals.T
    wider = np.column_stack(
        [values - np.hypot(values - low, own), values + np.hypot(high - values, own)]
    )
    # What cannot be negative, or more than one, still cannot.
    wider[:, 0] = np.where(low >= 0.0, np.maximum(wider[:, 0], 0.0), wider[:, 0])
    wider[:, 1] = np.where(high <= 1.0, np.minimum(wider[:, 1], 1.0), wider[:, 1])
    return np.where((deviation > 0.0)[:, None], wider, intervals)
