r"""A metric and constraints bound to the rows of a fit.

The class of the largest weighted probability :math:`w_k P(k \mid x)` is decided. With all other
weights at rest, a row with the largest other logarithm :math:`m_j(x)` is decided as class j from

.. math:: \log w_j = m_j(x) - \log P(j \mid x)

on. One sort of the rows and a running sum give every functional of every such decision, and the
criterion of all fits chooses among them (:func:`~gbm_constrained.decision.choose.choose`). Of two
classes that is the best threshold. Of several, the weights of the classes are found in turn.

Weights of each group by itself say what constraints should cost, as thresholds of groups do
(:mod:`gbm_constrained.decision.groups`).
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import numpy as np

from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.presets import CoverageDivergence
from gbm_constrained.constraints.rates import cost, error_rate
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import Fold
from gbm_constrained.decision.choose import choose
from gbm_constrained.fit.options import (
    SolverOptions,
    check_measurable,
    check_rows,
    divide_as_given,
)
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics.base import BoundMetric, Metric, MetricLoss
from gbm_constrained.metrics.callables import FunctionMetric, check_convexity
from gbm_constrained.metrics.reading import RateMetric
from gbm_constrained.problem.compiler import Coefficients, JointCells, compile_constraints
from gbm_constrained.problem.functionals import SmallGroupWarning
from gbm_constrained.problem.linear_constraints import LinearConstraints, find_half
from gbm_constrained.reductions.methods import ZeroDenominatorError, check_reduction
from gbm_constrained.reductions.mixtures import MixtureProgramme
from gbm_constrained.reductions.plug_in import PlugIn, weigh_amounts
from gbm_constrained.statistics.counts import functionals_of_weights


def errors_of(factors: Float) -> Metric:
    """Make the error rate in which rows of each class count by a factor."""
    if (factors == factors[0]).all():
        return RateMetric(error_rate(), greater_is_better=False)
    costs = (1.0 - np.eye(factors.size)) * (factors / factors.max())[:, None]
    return RateMetric(cost(costs), greater_is_better=False)


def make_constraints_credible(
    compiled: LinearConstraints, cells: Cells, n_own: int
) -> LinearConstraints:
    """Let the groups of the first constraints act as far as their rows can tell.

    The rates that follow are those of a metric, which is of every group as it is.
    """
    half = np.zeros(compiled.constant.size)
    for constraint, span in zip(compiled.constraints[:n_own], compiled.spans, strict=False):
        half[span] = find_half(constraint, span.stop - span.start)
    return compiled.make_credible(cells, half)


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

    @classmethod
    def of(
        cls,
        options: SolverOptions,
        metric: Metric | None,
        arguments: FitArguments,
        library: LibrarySettings,
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
        metric = errors_of(factors) if metric is None else metric
        bound = metric.bind(data.classes, shares / shares.sum())
        bound = bound.with_positive_class(data.classes, options.positive)
        every = [*options.constraints, *bound.constraints]
        data = divide_as_given(data.without_other_data_sets(every), options)
        own = tuple(one for one in options.constraints if not one.is_always_met)
        constraints, n_own = [*own, *bound.constraints], len(own)
        try:
            cells, compiled = compile_constraints(
                constraints,
                data.rows,
                idle=range(n_own, len(constraints)),
                warning=SmallGroupWarning("", "small_groups_"),
            )
        except ValueError as error:
            if not any(str(one) in str(error) for one in bound.constraints):
                raise
            raise type(error)(f"{options.metric_parameter}={metric}: {error}") from None
        check_measurable(data, cells, compiled)
        bound = metric.with_groups(bound, compiled.groups[n_own:])
        joint = JointCells.of(cells)
        compiled = make_constraints_credible(compiled, cells, n_own)
        return cls(
            options, own, bound, data, factors, cells, compiled, joint, library.takes_weights
        )

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
        if self.metric.kind == "linear" and any(term.event.is_cost for term in terms):
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
        n_own, constraints = len(own), [*own, *self.metric.constraints]
        idle = range(n_own, len(constraints))
        cells, compiled = compile_constraints(constraints, rows, idle=idle)
        compiled = make_constraints_credible(compiled, cells, n_own)
        other = replace(
            self,
            constraints=own,
            metric=self.metric.metric.with_groups(self.metric, compiled.groups[n_own:]),
            cells=cells,
            compiled=compiled,
            joint=JointCells.of(cells),
        )
        return other.on(np.arange(len(rows)))

    @property
    def convex_bounds(self) -> tuple[ConvexBound, ...]:
        """The constraints whose bounds no linear rows state."""
        return tuple(
            ConvexBound(constraint.expression, constraint.bound, span, constraint.violation_weight)
            for constraint, span in zip(self.constraints, self.compiled.spans, strict=False)
            if isinstance(constraint.expression, CoverageDivergence)
        )

    def on(self, rows: Codes, factor: Float | None = None) -> HeldOutProblem:
        """Bind the metric and the constraints to some of the rows.

        Weights are multiplied by a factor of each of these rows.
        """
        cells = self.cells.take(rows, factor)
        compiled = self.compiled.on(cells)
        return HeldOutProblem(self, rows, cells, compiled, factor)


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
    """

    problem: MetricProblem
    rows: Codes
    cells: Cells
    compiled: LinearConstraints
    factor: Float | None = None

    def take(self, part: Codes) -> HeldOutProblem:
        """Bind the metric and the constraints to some of these rows."""
        factor = None if self.factor is None else self.factor[part]
        return self.problem.on(self.rows[part], factor)

    @property
    def weight(self) -> Float | None:
        """Weight of each row."""
        return self.cells.rows.weight

    @property
    def coefficients(self) -> Coefficients:
        """The functionals, in their units, as functions of weights of joint cells."""
        found = self.problem.joint.coefficients(self.cells, self.compiled)
        return found.in_units(self.problem.units)

    def check(self, source: str) -> None:
        """Refuse rows on which the metric has no value.

        Raises
        ------
        ValueError
            If the rows lack a class or a group that the metric looks at.
        """
        unknown = np.isnan(self.compiled.constant[self.problem.loss.at])
        if unknown.any():
            is_given = self.problem.data.given_folds is not None
            remedy = "hold out other rows" if is_given else "use measure_on='crossfit'"
            raise ValueError(
                f"{self.problem.metric.metric} has no value on the rows held out ({source}): a "
                f"class, or a group of a class, has none of them. Give more rows of the rarest "
                f"class, merge it with another one, or {remedy}."
            )

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


def check_folds(
    problem: MetricProblem, folds: Sequence[Fold], source: str, library: LibrarySettings
) -> None:
    """Refuse parts of the rows whose boosters would not know a class, or measure none of it.

    Parameters
    ----------
    problem : MetricProblem
        The metric and the constraints.
    folds : sequence of Fold
        Rows that each booster is trained on, and holds out.
    source : str
        Name of the held-out rows in reports.
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
            how = f"CrossFit(n_folds={options.n_folds})"
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
    problem.on(np.sort(np.concatenate([fold.held for fold in folds]))).check(source)


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


SMALLEST_PROBABILITY = 1e-15  # Of a class, by whose logarithm weights are searched.


def costs_of_weights(weights: Float) -> Float:
    """Write weights of the classes as the cost of each decision in each class."""
    return np.asarray((1.0 - np.eye(weights.size)) * (weights / weights.max())[:, None])


@dataclass(frozen=True, eq=False)
class WeightSearch:
    """Search for weights of the classes.

    Parameters
    ----------
    held : HeldOutProblem
        The metric and the constraints on the held-out rows.
    oracle : PlugIn
        Probability of each class on these rows.
    criterion : mapping
        Weights of violations, and the rows of constraints that are strict.
    is_over : callable, default=None
        Sees the functionals at each step, and may end the search.
    """

    held: HeldOutProblem
    oracle: PlugIn
    criterion: dict[str, Any]
    is_over: Callable[[Float], bool] | None = None

    @cached_property
    def scores(self) -> Float:
        """Logarithms of the probabilities, shape (n_rows, n_classes)."""
        return np.log(np.maximum(self.oracle.probabilities, SMALLEST_PROBABILITY))

    def find(self, start: Float, errors: Float, groups: Codes | None = None) -> Float:
        """Find the weights of least merit, beginning at some.

        Parameters
        ----------
        start : ndarray of shape (n_classes,)
            Weights to begin at.
        errors : ndarray of shape (n_rows_of_constraints,)
            Violations within which strict rows count as met.
        groups : ndarray of shape (n_rows,), intp, default=None
            Group of each row that has weights of its own; by default all rows have the same.

        Returns
        -------
        ndarray of shape (n_groups, n_classes)
        """
        rows = np.arange(len(self.scores))
        members = [rows] if groups is None else [rows[groups == g] for g in np.unique(groups)]
        bias = np.tile(np.log(start / start.max()), (len(members), 1))
        classes = [1] if start.size == 2 else range(start.size)
        n_passes = 1 if start.size == 2 and groups is None else 3
        for _ in range(n_passes):
            before = bias.copy()
            for g, j in itertools.product(range(len(members)), classes):
                u = self._move(bias, members, g, j, errors)
                if self.is_over is not None and self.is_over(u):
                    return np.asarray(np.exp(bias))
            if (bias == before).all():
                break
        return np.asarray(np.exp(bias))

    def decide(self, bias: Float, members: Sequence[Codes]) -> Codes:
        """Decide each row by the biases of its group."""
        found = np.zeros(len(self.scores), dtype=np.intp)
        for own, of_group in zip(bias, members, strict=True):
            found[of_group] = (self.scores[of_group] + own).argmax(axis=1)
        return found

    def _move(self, bias: Float, members: Sequence[Codes], g: int, j: int, errors: Float) -> Float:
        """Move the bias of one class in one group to the best, and give the functionals there."""
        inside = members[g]
        rivals = self.scores[inside] + bias[g]
        rivals[:, j] = -np.inf
        other = rivals.argmax(axis=1)
        turn = rivals[np.arange(other.size), other] - self.scores[inside, j]
        order = np.argsort(turn, kind="stable")
        turn = turn[order]
        decided = self.decide(bias, members) if len(members) > 1 else other.copy()
        decided[inside] = other
        start = self.oracle.functionals_of(decided)
        gained = np.cumsum(self._gains(inside, other, j)[:, order], axis=1)
        ends = np.flatnonzero(np.diff(turn, append=np.inf) > 0.0) + 1
        cuts = np.append(0, ends)  # Numbers of rows that are decided as the class.
        at = np.concatenate([[turn[0] - 1.0], (turn[1:] + turn[:-1]) / 2.0, [turn[-1] + 1.0]])
        now = int(np.searchsorted(cuts, np.searchsorted(turn, bias[g, j], side="right")))

        def measure(points: Codes) -> Float:
            rows = cuts[points]
            return start + np.where(rows > 0, gained[:, rows - 1], 0.0).T

        loss, units = self.held.problem.loss, self.held.problem.units
        low, high, best = 0, cuts.size - 1, now
        n_points = 64  # Measured at once along the line, and again between two of them.
        while True:
            points = np.unique(np.linspace(low, high, n_points).astype(int))
            points = np.append(best, points)
            u = measure(points)
            losses = np.array([loss.value(one) for one in u])
            violations = self.held.violations(u * units)
            best = int(points[choose(losses, violations, errors, **self.criterion)])
            step = -(-(high - low) // (n_points - 1))
            if step <= 1:
                break
            low, high = max(best - step, 0), min(best + step, cuts.size - 1)
        if best != now:
            bias[g, j] = at[cuts[best]]
        return np.asarray(measure(np.array([best]))[0])

    def _gains(self, inside: Codes, other: Codes, j: int) -> Float:
        """Change of each functional where a row is decided as a class, (n_functionals, n)."""
        oracle = self.oracle
        rows = oracle.rows[inside]
        codes, table = oracle.joint.codes[rows], oracle.coefficients.table
        table = table.reshape(len(table), len(oracle.joint.measures), len(oracle.joint), -1)
        measures = [None, *oracle.joint.amounts(rows)]
        gains = np.zeros((len(table), codes.size))
        for of_measure, amount in zip(np.moveaxis(table, 1, 0), measures, strict=True):
            change = (of_measure[:, :, [j]] - of_measure)[:, codes, other]
            gains += change if amount is None else amount * change
        return gains if oracle.weight is None else oracle.weight[inside] * gains
