"""Checks of a metric that need rows and no booster, made before any training."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.splits import Fold
from gbm_constrained.metrics.callables import FunctionMetric, check_convexity
from gbm_constrained.reductions.bisection import ZeroDenominatorError
from gbm_constrained.training.metric_problem import MetricProblem

N_PROBES = 32
"""Random decisions that a user's function is tried on: a function that is not convex on a tenth of
the pairs of points passes with a probability of 0.001, for check_convexity draws 64 pairs."""


def check_function(problem: MetricProblem) -> None:
    """Try a user's function on confusion matrices of random decisions.

    Raises
    ------
    TypeError, ValueError
        If the function or its gradient is no finite number there, or the function is not of the
        kind that it was declared to be.
    """
    bound = problem.metric
    if not isinstance(bound.metric, FunctionMetric):
        return
    points = _draw_points(problem)[:, problem.loss.at]
    for u in points:
        value = bound.function(u)
        if not np.isfinite(value):
            raise ValueError(
                f"the value of {bound.metric} is {value} at the confusion matrix "
                f"{np.round(u, 6).tolist()}: give metric(function, ...) one that is finite there."
            )
    bound.derivative(points[0])  # refuses a gradient that is not finite, or of another shape
    check_convexity(bound, points)


def check_denominator(problem: MetricProblem) -> None:
    """Refuse a ratio that has no value where all rows are decided alike.

    Constraints may exclude such decisions, and the search finds out whether they do.

    Raises
    ------
    ZeroDenominatorError
        If there are no constraints, and the denominator of the ratio is zero for such decisions.
    """
    if problem.loss.kind != "ratio" or problem.constraints:
        return
    n_classes = problem.joint.n_classes
    alike = np.broadcast_to(np.eye(n_classes)[:, None], (n_classes, len(problem.joint), n_classes))
    _, _, b, b0 = problem.loss.ratio()
    least = float((_functionals_of(problem, alike) @ b + b0).min())
    if least <= 0:
        raise ZeroDenominatorError(least)


def _draw_points(problem: MetricProblem) -> Float:
    """Compute the functionals of random decisions; the first one decides all classes alike."""
    joint = problem.joint
    shape = len(joint), joint.n_classes
    random = np.random.RandomState(0)
    # Few rows of a cell are outside of one class.
    each = np.full(joint.n_classes, 1.0 / joint.n_classes)
    drawn = random.dirichlet(each, (N_PROBES, len(joint)))
    shares = np.concatenate([np.full((1, *shape), 1.0 / joint.n_classes), drawn])
    return _functionals_of(problem, shares)


def _functionals_of(problem: MetricProblem, shares: Float) -> Float:
    """Compute the functionals of decisions, given the share of each cell of each class."""
    joint = problem.joint
    weight = joint.totals(problem.data.rows.weight)[:, :, None]
    coefficients = joint.coefficients(problem.cells, problem.compiled)
    counts = weight * shares[:, None]
    return coefficients.functionals(counts.reshape(len(shares), joint.n_counted, -1))


def check_folds(problem: MetricProblem, folds: Sequence[Fold], source: str) -> None:
    """Refuse parts of the rows whose boosters would not know a class, or measure none of it.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints.
    folds : sequence of Fold
        Rows that each booster is trained on, and holds out.
    source : str
        Name of the held-out rows in reports.

    Raises
    ------
    ValueError
        If there is such a class.
    """
    labels, options = problem.data.y, problem.options
    n_rows = np.bincount(labels, minlength=problem.data.classes.size)
    for rows in (fold.training for fold in folds):
        # Rows of further data sets follow the training rows.
        learned = np.bincount(labels[rows[rows < labels.size]], minlength=n_rows.size)
        if (learned == 0).any():
            lost = problem.data.classes[learned == 0].tolist()
            n = int(n_rows[learned == 0][0])
            how = f"n_folds={options.n_folds}" if len(folds) > 1 else "measure_on='holdout'"
            raise ValueError(
                f"{how} holds out the {f'{n} rows' if n > 1 else 'only row'} of class "
                f"{join_truncated(list(map(repr, lost)), 3)} from a booster, which would decide "
                f"there without having seen the class: give more rows of it, or merge it with "
                f"another class."
            )
    problem.on(np.sort(np.concatenate([fold.held for fold in folds]))).check(source)


def check_cells(problem: MetricProblem, known: Codes) -> None:
    """Refuse to merge boosters of other joint cells.

    Raises
    ------
    ValueError
        If a booster that is to be merged has not seen all cells.
    """
    if problem.options.ensemble is not None and known.size < len(problem.joint):
        raise ValueError(
            f"ensemble={problem.options.ensemble!r} merges boosters that know the same groups of "
            f"each class, and one of the folds holds all rows of a group of a class: use "
            f"ensemble=None, or a min_group_size that merges small groups."
        )


def spread_margin(margin: Array, known: Codes, n_cells: int) -> Array:
    """Give scores the columns of all joint cells: minus infinity where a booster knows none.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_known)
        Scores of a booster of the known cells.
    known : ndarray of int
        The cells that the booster has seen.
    n_cells : int
        Number of joint cells.
    """
    if known.size == n_cells:
        return margin
    found = np.full((len(margin), n_cells), -np.inf)
    both = np.column_stack([np.zeros(len(margin)), margin]) if margin.ndim == 1 else margin
    found[:, known] = both
    return found
