"""A metric and constraints bound to the rows of a fit."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Self

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.presets import CoverageDivergence
from gbm_constrained.constraints.rates import cost, error_rate
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Fold
from gbm_constrained.fit.options import (
    SolverOptions,
    check_measurable,
    check_rows,
    divide_as_given,
)
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics.base import BoundMetric, MetricLoss
from gbm_constrained.metrics.callables import FunctionMetric, check_convexity
from gbm_constrained.metrics.reading import RateMetric
from gbm_constrained.problem.compiler import Coefficients, JointCells, compile_constraints
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_half
from gbm_constrained.reductions.methods import ZeroDenominatorError, check_reduction
from gbm_constrained.reductions.mixtures import MixtureProgramme
from gbm_constrained.reductions.plug_in import PlugIn, weigh_amounts
from gbm_constrained.statistics.counts import functionals_of_weights


def _bind(
    own: tuple[Constraint, ...], metric: BoundMetric, rows: Rows, **options: Any
) -> dict[str, Any]:
    """Bind constraints and a metric to rows, as fields of :class:`MetricProblem`.

    The groups of the constraints act as far as their rows can tell. The rates that follow are
    those of the metric, which is of every group as it is.
    """
    n_own, constraints = len(own), [*own, *metric.constraints]
    idle = range(n_own, len(constraints))
    cells, compiled = compile_constraints(constraints, rows, idle=idle, **options)
    half = np.zeros(compiled.constant.size)
    for constraint, span in zip(compiled.constraints[:n_own], compiled.spans, strict=False):
        half[span] = find_half(constraint, span.stop - span.start)
    return {
        "constraints": own,
        "metric": metric.metric.with_groups(metric, compiled.groups[n_own:]),
        "cells": cells,
        "compiled": compiled.make_credible(cells, half),
        "joint": JointCells.of(cells),
    }


@dataclass(frozen=True, eq=False)
class MetricProblem:
    """A metric and constraints bound to the rows of a fit.

    Parameters
    ----------
    options : SolverOptions
        The constructor's parameters, whose rates name the positive class.
    constraints : tuple of Constraint
        The constraints that decisions can violate. The others are only reported.
    metric : BoundMetric
        The metric.
    data : FitData
        The rows.
    factors : ndarray of shape (n_classes,)
        Factor of each class in the objective of the boosters.
    cells : Cells
        Partition of the rows by everything that the metric and the constraints look at.
    compiled : LinearConstraints
        The constraints, whose groups act as far as their rows can tell, and after them the rates
        of the metric, on these rows.
    joint : JointCells
        The joint partition.
    takes_weights : bool
        Whether the objective of the boosters takes weights of rows.
    room_of_convex : float or ndarray of shape (n_convex_bounds,), default=0
        What is taken off the bounds that no linear rows state.
    """

    options: SolverOptions
    constraints: tuple[Constraint, ...]
    metric: BoundMetric
    data: FitData
    factors: Float
    cells: Cells
    compiled: LinearConstraints
    joint: JointCells
    takes_weights: bool
    room_of_convex: Float | float = 0.0

    @classmethod
    def of(
        cls, options: SolverOptions, arguments: FitArguments, library: LibrarySettings
    ) -> MetricProblem:
        """Encode the rows, and compile the constraints and the metric.

        Without a metric the objective is the error rate, with the factors of the classes that the
        library's own objective has.

        Raises
        ------
        TypeError, ValueError
            If rows, constraints and metric do not fit together.
        """
        check_rows(options, arguments)
        data = FitData.of(arguments, options.constraints, library.random_state)
        options = options.with_classes(data.classes)
        shares = np.bincount(data.y, data.sample_weight, data.classes.size)
        first, second = library.class_factors(data.classes, data.y)
        factors = first * second
        metric = options.metric
        if metric is None:
            rate = error_rate()
            if (factors != factors[0]).any():
                costs = (1.0 - np.eye(factors.size)) * (factors / factors.max())[:, None]
                rate = cost(costs)
            metric = RateMetric(rate, greater_is_better=False)
        bound = metric.bind(data.classes, shares / shares.sum())
        bound = bound.with_positive_class(data.classes, options.positive)
        every = [*options.constraints, *bound.constraints]
        data = divide_as_given(data.without_other_data_sets(every), options)
        own = tuple(one for one in options.constraints if not one.is_always_met)
        try:
            found = _bind(own, bound, data.rows, warning=("", "small_groups_"))
        except ValueError as error:
            if not any(str(one) in str(error) for one in bound.constraints):
                raise
            raise type(error)(f"{options.metric_parameter}={metric}: {error}") from None
        check_measurable(data, found["cells"], found["compiled"])
        takes_weights = library.takes_weights
        return cls(options, data=data, factors=factors, takes_weights=takes_weights, **found)

    @property
    def in_objective(self) -> Bool:
        """Whether each joint cell holds training rows, rather than those of a further data set."""
        return np.asarray(self.cells.in_objective[self.joint.of_views[:, 0]])

    @cached_property
    def relative_amounts(self) -> Float | None:
        """What each row counts for at the costs of the objective, over the mean of its cell.

        None where the objective counts no amounts, or has other costs at each confusion matrix,
        or where boosters take no weights.
        """
        has_amounts = any(constraint.amounts for constraint in self.metric.constraints)
        if self.metric.kind != "linear" or not has_amounts or not self.takes_weights:
            return None
        loss = self.loss
        costs = self.joint.coefficients(self.cells, self.compiled).costs(
            loss.gradient(np.zeros(loss.n_functionals))
        )
        return weigh_amounts(costs, self.joint, self.data.rows.weight)

    @cached_property
    def loss(self) -> MetricLoss:
        """The loss as a function of all functionals, in their units.

        The unit of a metric is the largest size of a cost: searches must not depend on its
        currency.
        """
        spans = self.compiled.spans[len(self.constraints) :]
        at = slice(spans[0].start, spans[-1].stop)
        terms = [term for c in self.metric.constraints for term in c.terms]
        unit = 0.0
        if self.metric.kind == "linear" and any(term.event.kind == "cost" for term in terms):
            parts = [part for of_one in self.compiled.terms[at] for part in of_one or ()]
            unit = float(sum(abs(part.coefficient) for part in parts))
        return MetricLoss(self.metric, at, self.compiled.constant.size, unit or 1.0)

    @property
    def units(self) -> Float:
        """Unit of each functional in searches, one for all but those of the metric."""
        units = np.ones(self.compiled.constant.size)
        units[self.loss.at] = self.loss.unit
        return units

    def elsewhere(self, rows: Rows) -> HeldOutProblem:
        """Bind the metric and the constraints to rows that are no training rows.

        Constraints on further data sets or given rows, which are part of a fit, are left out.
        """
        own = tuple(c for c in self.constraints if not c.data_sets and not c.n_rows_held)
        return replace(self, **_bind(own, self.metric, rows)).on(np.arange(len(rows)))

    @property
    def convex_bounds(self) -> tuple[ConvexBound, ...]:
        """The constraints whose bounds no linear rows state."""
        found = [
            ConvexBound(constraint.expression, constraint.bound, span, constraint.violation_weight)
            for constraint, span in zip(self.constraints, self.compiled.spans, strict=False)
            if isinstance(constraint.expression, CoverageDivergence)
        ]
        room = np.broadcast_to(self.room_of_convex, len(found))
        return tuple(
            replace(one, bound=one.bound - less) for one, less in zip(found, room, strict=True)
        )

    def leave_room(self, room: Float) -> Self:
        """Take room off the bounds of all linear rows, and then of all convex bounds."""
        n = len(self.compiled)
        return replace(self, compiled=self.compiled.leave_room(room[:n]), room_of_convex=room[n:])

    def on(self, rows: Codes, factor: Float | None = None, source: str = "") -> HeldOutProblem:
        """Bind the metric and the constraints to some of the rows, which reports call `source`.

        Weights are multiplied by a factor of each of these rows.
        """
        cells = self.cells.take(rows, factor)
        return HeldOutProblem(self, rows, cells, self.compiled.on(cells), factor, source)


@dataclass(frozen=True, eq=False)
class ConvexBound:
    """A constraint whose bound no linear rows state, as a convex function of all functionals.

    Parameters
    ----------
    expression : CoverageDivergence
        What is bounded.
    bound : float
        The bound.
    at : slice
        Positions of its functionals among all of the programme.
    weight : float
        Factor of its violation.
    """

    expression: CoverageDivergence
    bound: float
    at: slice
    weight: float

    def value(self, u: Float) -> float:
        """Compute the left-hand minus the right-hand side."""
        return self.expression.value(u[self.at], "<=") - self.bound

    def gradient(self, u: Float) -> Float:
        """Compute the gradient in all functionals."""
        found = np.zeros(u.size)
        found[self.at] = self.expression.gradient(u[self.at])
        return found


@dataclass(frozen=True, eq=False)
class HeldOutProblem:
    """A metric and constraints on rows that boosters have not seen.

    Parameters
    ----------
    problem : MetricProblem
        The problem of all rows.
    rows : ndarray of shape (n_rows,), intp
        Positions of the rows.
    cells : Cells
        Their partition.
    compiled : LinearConstraints
        The functionals on these rows.
    factor : ndarray of shape (n_rows,), default=None
        Factor of the weight of each row; ones by default.
    source : str, default=""
        Name of the rows in reports.
    """

    problem: MetricProblem
    rows: Codes
    cells: Cells
    compiled: LinearConstraints
    factor: Float | None = None
    source: str = ""

    def take(self, part: Codes) -> HeldOutProblem:
        """Bind the metric and the constraints to some of these rows."""
        factor = None if self.factor is None else self.factor[part]
        return self.problem.on(self.rows[part], factor, self.source)

    @property
    def weight(self) -> Float | None:
        """Weight of each row."""
        return self.cells.rows.weight

    @property
    def coefficients(self) -> Coefficients:
        """The functionals, in their units, as functions of weights of joint cells."""
        found = self.problem.joint.coefficients(self.cells, self.compiled)
        return found.in_units(self.problem.units)

    def programme(self, room: Float | float = 0.0) -> MixtureProgramme:
        """Write the metric and the constraints as a programme.

        Parameters
        ----------
        room : float or ndarray of shape (n_rows,), default=0
            What each linear row and each convex bound is relaxed by.
        """
        compiled, bounds = self.compiled, self.problem.convex_bounds
        room = np.broadcast_to(room, len(compiled) + len(bounds))
        A = compiled.R.toarray()
        # Costs without bounds have those of these rows.
        table, constant = self.coefficients.table, self.coefficients.constant
        low, high = compiled.ranges_of_rates.T / self.problem.units
        counts = self.problem.joint.totals(self.weight, self.rows).ravel()
        least, most = (end(table, axis=2) @ counts + constant for end in (np.min, np.max))
        return MixtureProgramme(
            self.problem.loss,
            A,
            compiled.b + room[: len(compiled)] + A @ np.nan_to_num(compiled.constant),
            convex=[
                replace(one, bound=one.bound + more)
                for one, more in zip(bounds, room[len(compiled) :], strict=True)
            ],
            low=np.where(np.isfinite(low), low, least),
            high=np.where(np.isfinite(high), high, most),
        )

    def oracle(self, probabilities: Float) -> PlugIn:
        """Make the plug-in oracle, given the probability of each joint cell."""
        return PlugIn(probabilities, self.problem.joint, self.rows, self.weight, self.coefficients)

    def functionals(self, counts: Any) -> Float:
        """Compute functionals of weights of shape (..., n_measures * n_joint_cells, n_classes).

        The denominators are those of the weights, which may be resampled.
        """
        joint, n_cells = self.problem.joint, len(self.cells)
        tables, as_ones = (joint.spread(counts, n_cells, as_ones=a) for a in (False, True))
        return functionals_of_weights(self.compiled, tables, as_ones)

    def functionals_of_shares(self, *shares: Float) -> Float:
        """Compute functionals, given the probability of each decision about each row.

        There is one row for each argument.
        """
        joint = self.problem.joint
        counts = [joint.count_shares(one, self.weight, self.rows) for one in shares]
        return self.functionals(np.array(counts))

    def violations(self, functionals: Float) -> Float:
        """Left-hand minus right-hand side of each linear row, then of each convex bound."""
        filled = np.nan_to_num(functionals)
        constant = np.nan_to_num(self.compiled.constant)
        linear = (filled - constant) @ self.compiled.R.toarray().T - self.compiled.b
        convex = [
            np.apply_along_axis(bound.value, -1, filled) for bound in self.problem.convex_bounds
        ]
        return np.concatenate([linear, *(values[..., None] for values in convex)], axis=-1)


def check_objective(problem: MetricProblem) -> None:
    """Refuse a function that is not what it was declared to be, and a ratio without a value.

    A user's function is tried on confusion matrices of random decisions, and a ratio where all
    rows are decided alike. Constraints may exclude such decisions, and the search finds out
    whether they do.

    Raises
    ------
    TypeError, ValueError
        If the function or its gradient is no finite number there, or the function is not of the
        kind that it was declared to be, or the reduction does not optimise its kind.
    ZeroDenominatorError
        If there are no constraints, and the denominator of the ratio is zero for such decisions.
    """
    bound, joint = problem.metric, problem.joint
    k, shape = joint.n_classes, (len(joint), joint.n_classes)
    if isinstance(bound.metric, FunctionMetric):
        random = np.random.RandomState(0)
        # Few rows of a cell are outside of one class. A function that is not convex on a tenth of
        # the pairs of points passes with a probability of 0.001, for check_convexity draws 64.
        drawn = random.dirichlet(np.full(k, 1.0 / k), (32, len(joint)))
        shares = np.concatenate([np.full((1, *shape), 1.0 / k), drawn])
        points = _functionals_of(problem, shares)[:, problem.loss.at]
        for u in points:
            value = bound.function(u)
            if not np.isfinite(value):
                raise ValueError(
                    f"the value of {bound.metric} is {value} at the confusion matrix "
                    f"{np.round(u, 6).tolist()}: give metric(function, ...) one that is finite "
                    f"there."
                )
        bound.derivative(points[0])  # refuses one that is not finite, or of another shape
        check_convexity(bound, points)
    check_reduction(problem.loss.kind, problem.options.solver)
    if problem.loss.kind == "ratio" and not problem.constraints:
        alike = np.broadcast_to(np.eye(k)[:, None], (k, *shape))
        _, _, b, b0 = problem.loss.ratio()
        least = float((_functionals_of(problem, alike) @ b + b0).min())
        if least <= 0:
            raise ZeroDenominatorError(least)


def _functionals_of(problem: MetricProblem, shares: Float) -> Float:
    """Compute the functionals of decisions, given the share of each cell of each class."""
    joint = problem.joint
    weight = joint.totals(problem.data.rows.weight)[:, :, None]
    coefficients = joint.coefficients(problem.cells, problem.compiled)
    counts = weight * shares[:, None]
    return coefficients.functionals(counts.reshape(len(shares), joint.n_counted, -1))


def check_folds(problem: MetricProblem, folds: Sequence[Fold], library: LibrarySettings) -> None:
    """Refuse parts of the rows whose boosters would not know a class.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints.
    folds : sequence of Fold
        Rows that each booster is trained on, and holds out.
    library : LibrarySettings
        Says whether the estimator has parameters of folds.

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
            how = f"CrossFit(n_folds={len(folds)})"
            if (given := problem.data.given_folds) is not None:
                how = given.name
            elif len(folds) == 1:
                how = "measure_on='holdout'"
            remedy = "give more rows of it, or merge it with another class"
            if library.is_linear:
                how = f"{options.metric_parameter}={problem.metric.metric}"
                remedy = (
                    f"give more rows of it, merge it with another class, or leave "
                    f"{options.metric_parameter} out"
                )
            raise ValueError(
                f"{how} holds out the {f'{n} rows' if n > 1 else 'only row'} of class "
                f"{join_truncated(list(map(repr, lost)), 3)} from a model, which would decide "
                f"there without having seen the class: {remedy}."
            )
