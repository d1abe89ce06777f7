r"""Rates of data sets as ramps, and majorisation and minimisation under constraints on them.

Problem 1 of Goh et al. (2016) bounds non-negative combinations of rates of positive and of
negative decisions on data sets. With the ramp :math:`\sigma(z) = \max(0, \min(1, \tfrac12 + z))`
in the place of the decision :math:`z > 0` it is Problem 2, whose rates are the expected ones of
a classifier that decides positively with probability :math:`\sigma(z)`. Around scores :math:`z'`
the ramps have the convex upper bounds (4),

.. math::

   \hat\sigma_p(z; z') = \begin{cases} \max(0, \tfrac12 + z) & z' \le \tfrac12 \\
   1 & \text{otherwise,} \end{cases} \qquad
   \hat\sigma_n(z; z') = \hat\sigma_p(-z; -z'),

which equal the ramps at :math:`z = z'`. Both branches are tight at :math:`z' = \tfrac12`, and the
hinge is taken there, so that rows of such scores can move.

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, Problems 1 to 3 and equations (1) to (5).

Algorithm 1 of Goh et al. (2016) minimises Problem 2, an objective and constraints that are
combinations of ramp rates (:mod:`gbm_constrained.solvers.dataset_rates`), plus a penalty of
coefficients. Each step puts the convex upper bounds (4) at the present scores in the place of the
ramps, and solves the convex Problem 3 by cutting planes over its multipliers. A bound is no less
than its ramp, and equal to it at the present scores. Therefore a point that meets the constraints
of Problem 3 meets those of Problem 2, and one that costs no more than the present point in Problem
3 costs no more in Problem 2.

The present point is the first cut of each Problem 3, and the returned one is a convex combination
of cuts (:mod:`gbm_constrained.solvers.cutting_plane`). So both promises are kept by every iterate,
however inexact the cuts are, and the differences of the bounds say how much a step has left.

References
----------
.. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset Constraints",
   2016, Algorithm 1.

Algorithm 1 of Goh et al. (2016) is given coefficients whose ramp rates meet all constraints. Here
they are, in this order,

- given ones, as of a deployed model, multiplied by a factor. A row whose score is beyond
  :math:`\pm\tfrac12` on the side of its cost has a constant bound, and a start where all rows are
  such is a fixed point. The factor nearest to one is taken with which the ramp constraints are met
  and enough rows are between;
- a constant score :math:`p - \tfrac12`. The violation of each constraint is linear in p, and of
  the interval that meets all constraints the p nearest to :math:`\tfrac12` is taken;
- what Algorithm 1 itself finds, started at the constant of the least largest violation, without an
  objective and with a limit of the multipliers in its place, so that it lowers the largest
  violation.
"""

from __future__ import annotations

import time
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from itertools import islice
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.exceptions import InfeasibleConstraintsError
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.cutting_plane import FEASIBLE, CuttingPlane, DualCut, Saddle

Loss: TypeAlias = Literal["ramp", "hinge"]


def ramp(z: Float) -> Float:
    """Compute the probability of a positive decision at scores z, equation (2)."""
    return np.clip(0.5 + z, 0.0, 1.0)


def ramp_bound(z: Float, reference: Float) -> Float:
    """Compute the convex upper bound (4) of the ramp, tight at the reference scores."""
    return np.where(reference <= 0.5, np.maximum(0.5 + z, 0.0), 1.0)


@dataclass(frozen=True, eq=False)
class RateProblem:
    """An objective and constraints that are non-negative combinations of rates: Problem 1.

    Function j of decisions is ``constant[j]`` plus the sum over cells of ``positive[j, c]`` times
    the share of cell c that is decided positively, and of ``negative[j, c]`` times the share that
    is decided negatively. Function 0 is the objective, and function j the left-hand side of
    constraint j.

    Parameters
    ----------
    shares : sparse array of shape (n_cells, n_samples)
        Share of each row in the total weight of its cells. A row may be in several cells.
    positive, negative : ndarray of shape (1 + m, n_cells)
        Coefficients of positive and negative decisions, at least zero.
    constant : ndarray of shape (1 + m,)
        Constant parts.
    bounds : ndarray of shape (m,)
        Bounds of the constraints.
    names : tuple of str
        Names of the constraints.
    objective_loss, constraint_loss : {"ramp", "hinge"}, default="ramp"
        What stands for decisions in the objective and in the constraints: the ramp, whose rates
        are those of randomised decisions, or the hinge. That is the bound of a ramp that is tight
        at scores of zero, and stays there. One row of a large score can then break a constraint
        that its decision meets.
    """

    shares: Any
    positive: Float
    negative: Float
    constant: Float
    bounds: Float
    names: tuple[str, ...]
    objective_loss: Loss = "ramp"
    constraint_loss: Loss = "ramp"

    @classmethod
    def of(cls, shares: Any, costs: Float, bounds: Float, names: tuple[str, ...]) -> RateProblem:
        """Write costs of either sign as non-negative combinations and constants.

        The lesser cost of a cell is paid whatever is decided, and the difference by one decision.

        Parameters
        ----------
        shares : sparse array of shape (n_cells, n_samples)
            Share of each row in the total weight of its cells.
        costs : ndarray of shape (1 + m, n_cells, 2)
            Cost of the share of each cell that is decided negatively, and positively.
        bounds : ndarray of shape (m,)
            Bounds of the constraints.
        names : tuple of str
            Names of the constraints.
        """
        least = costs.min(axis=2)
        negative, positive = np.moveaxis(costs - least[..., None], 2, 0)
        total = np.asarray(shares.sum(axis=1)).ravel()
        bounds = np.asarray(bounds, dtype=np.float64)
        return cls(shares, positive, negative, least @ total, bounds, names)

    def __post_init__(self) -> None:
        for name in ("positive", "negative"):
            coefficients = getattr(self, name)
            if not (np.isfinite(coefficients) & (coefficients >= 0)).all():
                raise ValueError(
                    f"{name} must hold finite coefficients of at least zero, got "
                    f"{coefficients.min()}: write costs of either sign with RateProblem.of."
                )
        if not np.isfinite(self.bounds).all():
            raise ValueError(f"bounds must be finite, got {self.bounds.tolist()}.")

    @cached_property
    def total(self) -> Float:
        """Sum of the shares of each cell, one of a cell with rows; (n_cells,)."""
        return np.asarray(self.shares.sum(axis=1)).ravel()

    def values(self, decided_positively: Array, decided_negatively: Array) -> Float:
        """Compute all functions from (bounds of) the decisions of rows; (1 + m,).

        Parameters
        ----------
        decided_positively, decided_negatively : ndarray of shape (n_samples,)
            Share of each row that is decided so, or an upper bound of it.
        """
        of_positive = self.positive @ (self.shares @ decided_positively)
        of_negative = self.negative @ (self.shares @ decided_negatively)
        return np.asarray(of_positive + of_negative + self.constant)

    def hard_values(self, z: Float) -> Float:
        """Compute all functions of the decisions ``z > 0``, Problem 1; (1 + m,).

        Parameters
        ----------
        z : ndarray of shape (n_samples,)
            Scores of the rows.
        """
        decided = (z > 0).astype(np.float64)
        return self.values(decided, 1 - decided)

    def references(self, reference: Float) -> tuple[Float, Float]:
        """Find the scores at which bounds of the objective and of the constraints are tight.

        Parameters
        ----------
        reference : ndarray of shape (n_samples,)
            Scores of the iterate.
        """
        zeros = np.zeros_like(reference)
        of_objective, of_constraints = (
            reference if loss == "ramp" else zeros
            for loss in (self.objective_loss, self.constraint_loss)
        )
        return of_objective, of_constraints

    def bound_values(self, z: Float, reference: Float | None = None) -> Float:
        """Compute the convex upper bounds of all functions at scores z, Problem 3; (1 + m,).

        Parameters
        ----------
        z : ndarray of shape (n_samples,)
            Scores of the rows.
        reference : ndarray of shape (n_samples,), default=None
            Scores at which the bounds are tight. By default z itself: the functions of ramps or
            hinges, Problem 2.
        """
        of_objective, of_constraints = self.references(z if reference is None else reference)
        values = self.values(ramp_bound(z, of_constraints), ramp_bound(-z, -of_constraints))
        if of_objective is not of_constraints:
            up, down = ramp_bound(z, of_objective), ramp_bound(-z, -of_objective)
            values[0] = self.values(up, down)[0]
        return values

    def row_costs(self, weights: Float) -> tuple[Float, Float]:
        """Add up functions as costs of both decisions of each row.

        Parameters
        ----------
        weights : ndarray of shape (1 + m,)
            Weight of each function.

        Returns
        -------
        positive, negative : ndarray of shape (n_samples,)
        """
        positive, negative = weights @ self.positive, weights @ self.negative
        return np.asarray(self.shares.T @ positive), np.asarray(self.shares.T @ negative)

    def violations(self, values: Float) -> Float:
        """Compute by how much functions are beyond the bounds; (m,).

        Parameters
        ----------
        values : ndarray of shape (1 + m,)
            Value of each function.
        """
        return values[1:] - self.bounds

    def without_objective(self) -> RateProblem:
        """Leave out the objective, and keep the constraints."""
        is_constraint = np.arange(self.constant.size) > 0
        parts = {name: getattr(self, name).T for name in ("positive", "negative", "constant")}
        return replace(self, **{name: (part * is_constraint).T for name, part in parts.items()})

    @cached_property
    def lines(self) -> tuple[Float, Float]:
        """Slopes and intercepts of violations in the share p of positive decisions.

        They hold where p is the same for all rows.
        """
        at_zero, at_one = self.negative @ self.total, self.positive @ self.total
        return (at_one - at_zero)[1:], self.violations(at_zero + self.constant)

    def feasible_shares(self, tolerance: float = 1e-12) -> tuple[float, float] | None:
        """Find the interval of shares p that meet all constraints; None if there is none.

        Parameters
        ----------
        tolerance : float, default=1e-12
            Violation that counts as none.
        """
        slopes, intercepts = self.lines
        if (intercepts[slopes == 0] > tolerance).any():
            return None
        ends = -np.divide(intercepts, slopes, out=np.zeros_like(slopes), where=slopes != 0)
        low = float(np.max(ends[slopes < 0], initial=0.0))
        high = float(np.min(ends[slopes > 0], initial=1.0))
        if low > high + tolerance:
            return None
        return min(low, high), high

    def least_violating_share(self) -> float:
        """Find the share p whose largest violation is least."""
        slopes, intercepts = self.lines
        crossings = [0.0, 1.0]
        for j, slope in enumerate(slopes):
            differences = slopes[j + 1 :] - slope
            of_others = intercepts[j] - intercepts[j + 1 :]
            crossings += (of_others[differences != 0] / differences[differences != 0]).tolist()
        tried = np.clip(crossings, 0.0, 1.0)
        return float(tried[(slopes[:, None] * tried + intercepts[:, None]).max(axis=0).argmin()])


def rate_problem_of(
    cells: Cells, constraints: LinearConstraints, class_factor: Array | None = None
) -> RateProblem:
    """Write the error rate under compiled constraints as Problem 1 of Goh et al. (2016).

    Parameters
    ----------
    cells : Cells
        Partitions of the rows, those of further data sets with them.
    constraints : LinearConstraints
        Constraints that are linear in the shares of rows decided positively.
    class_factor : ndarray of shape (2,), default=None
        Factor of each class in the objective; ones by default.

    Returns
    -------
    RateProblem
        Its objective is the error rate of the rows that are in the objective.

    Raises
    ------
    ValueError
        If there are more than two classes, or a constraint is on something other than decisions.
    """
    if cells.classes.size != 2:
        raise ValueError(
            f"ramp rates are of a positive and a negative decision, and y has "
            f"{cells.classes.size} classes: fit one class against all others."
        )
    # Refuse constraints on mean losses, or on pairs of rows, by name.
    for name, what in (("loss", "a mean loss"), ("pairs", "pairs of scores")):
        found = np.flatnonzero(np.diff(constraints.row_table(name).indptr))
        if found.size:
            raise ValueError(
                f"{constraints.rows[found[0]]} bounds {what}, which no ramp of decisions "
                f"approximates: use ConstrainedLogisticRegression, or leave it out."
            )
    of_constraints = np.reshape(constraints.A.toarray(), (-1, len(cells), 2))
    # Share of each cell of the first partition in the errors.
    of_errors = np.zeros((len(cells), 2))
    inside = np.flatnonzero(cells.labelled)
    labels = cells.labels[inside]
    of_labels = cells.weight[inside]
    if class_factor is not None:
        of_labels = of_labels * class_factor[labels]
    of_errors[inside, 1 - labels] = of_labels / of_labels.sum()
    costs = np.concatenate([of_errors[None], of_constraints])
    # Share of each row in the weight of its cell of each view.
    n = cells.codes.size
    weight = np.ones(n) if cells.rows.weight is None else cells.rows.weight
    weighed = np.concatenate([view.weigh(weight) for view in cells.views])
    codes = np.concatenate([view.codes for view in cells.views])
    rows = np.tile(np.arange(n), len(cells.views))
    total = cells.weight[codes]
    share = np.divide(weighed, total, out=np.zeros(codes.size), where=total > 0)
    shares = sparse.csr_array((share, (codes, rows)), shape=(len(cells), n))
    return RateProblem.of(shares, costs, constraints.b, constraints.rows)


def find_intercept_shift(problem: RateProblem, z: Float) -> float | None:
    """Find the least shift of scores with which decisions and ramps meet all constraints.

    Parameters
    ----------
    problem : RateProblem
        The constraints.
    z : ndarray of shape (n_samples,)
        Scores whose ramps meet the constraints.

    Returns
    -------
    float or None
        Zero where the decisions meet the constraints already; None if no shift was found.
    """

    def meets(shift: float) -> bool:
        hard = problem.violations(problem.hard_values(z + shift))
        soft = problem.violations(problem.bound_values(z + shift))
        return bool((hard <= ROUNDING).all() and (soft <= FEASIBLE).all())

    if meets(0.0):
        return 0.0
    # Find the middles between two scores at which decisions meet all constraints.
    order = np.argsort(-z)
    ends = -z[order]
    is_met = ends[1:] > ends[:-1]
    for j, bound in enumerate(problem.bounds, start=1):
        none = problem.negative[j] @ problem.total + problem.constant[j]
        added = problem.shares.T @ (problem.positive[j] - problem.negative[j])
        is_met &= none + np.cumsum(added[order])[:-1] - bound <= ROUNDING
    shifts = np.asarray((ends[1:] + ends[:-1])[is_met] / 2)
    # Shifts with which decisions meet all constraints, and whose ramps are looked at.
    nearest = shifts[np.argsort(np.abs(shifts))[:200]]
    return next((float(shift) for shift in nearest if meets(shift)), None)


class ConvexProblem:
    """Problem 3 at the scores of some coefficients: the oracle of the cutting planes.

    Parameters
    ----------
    problem : RateProblem
        The objective and the constraints.
    model : object
        Scores of the problem's rows, linear in coefficients of which the last is added to all
        scores, as those of :class:`~gbm_constrained.linear_model.WeightedSVM`. It has
        `n_features`, ``scores(coefficients)``, the convex ``penalty(coefficients)``, and
        ``minimize(positive, negative, gap, start)``, which minimises hinge losses of costs of
        both decisions, and the penalty. The result of that has the ``coefficients``, at which the
        value is at most `gap` above the lower bound ``dual``, and the number ``n_steps``.
    reference : ndarray of shape (n_features + 1,)
        Coefficients at whose scores the bounds are tight.
    """

    def __init__(self, problem: RateProblem, model: Any, reference: Float) -> None:
        self.problem, self.model = problem, model
        self.coefficients, self.reference = reference, model.scores(reference)
        self.n_steps = 0

    def at(self, coefficients: Float, lower: float = -np.inf) -> DualCut:
        """Compute the objective and the violations of the constraints at coefficients."""
        z = self.model.scores(coefficients)
        values = self.problem.bound_values(z, self.reference)
        objective = float(values[0] + self.model.penalty(coefficients))
        return DualCut(coefficients, objective, self.problem.violations(values), lower)

    def start(self) -> DualCut:
        """Compute the cut of the reference, and the costs that no coefficients avoid."""
        weights = np.eye(self.problem.constant.size)[0]
        _, _, saturated = self._costs(weights)
        return self.at(self.coefficients, saturated + float(self.problem.constant[0]))

    def minimize(self, multipliers: Float, tolerance: float) -> DualCut:
        """Minimise the Lagrangian, whose losses are hinges where they are not saturated."""
        weights = np.append(1.0, multipliers)
        positive, negative, saturated = self._costs(weights)
        found = self.model.minimize(positive, negative, tolerance, self.coefficients)
        self.coefficients = found.coefficients
        self.n_steps += found.n_steps
        constant = saturated + weights @ self.problem.constant - multipliers @ self.problem.bounds
        return self.at(found.coefficients, found.dual + float(constant))

    def _costs(self, weights: Float) -> tuple[Float, Float, float]:
        """Compute costs of hinge losses of each row, and the sum of those that are saturated."""
        positive, negative = np.zeros((2, self.reference.size))
        saturated = 0.0
        is_objective = np.arange(weights.size) == 0
        references = self.problem.references(self.reference)
        for part, reference in zip((is_objective, ~is_objective), references, strict=True):
            of_positive, of_negative = self.problem.row_costs(weights * part)
            is_up, is_down = reference > 0.5, reference < -0.5
            saturated += float(of_positive[is_up].sum() + of_negative[is_down].sum())
            positive += np.where(is_up, 0.0, of_positive)
            negative += np.where(is_down, 0.0, of_negative)
        return positive, negative, saturated


@dataclass(frozen=True, eq=False)
class MajorizationStep:
    """One step of majorisation and minimisation, and what is certain of it.

    Parameters
    ----------
    coefficients : (n_features + 1,). The iterate.
    objective : Objective and penalty of the iterate, of ramps unless hinges stand for them.
    violation : Largest violation of the iterate, at most zero where all constraints are met.
    multipliers : (m,). Multipliers of Problem 3.
    lower, upper : Bounds of the optimum of Problem 3 at the iterate before.
    asked : Difference of these bounds that the search was to end with.
    n_cuts : Multipliers that were tried.
    n_steps : Steps of the model's own solver.
    seconds : Time since the start.
    """

    coefficients: Float = field(repr=False)
    objective: float
    violation: float
    multipliers: Float
    lower: float = np.nan
    upper: float = np.nan
    asked: float = np.inf
    n_cuts: int = 0
    n_steps: int = 0
    seconds: float = 0.0


@dataclass(frozen=True)
class MajorizationMinimization:
    """Options of Algorithm 1.

    Parameters
    ----------
    max_iter : int, default=8
        Most steps. The authors' code takes eight. The objective may still fall by a few tenths of
        a percent in the last of them, which on held-out rows is worth nothing to decisions by the
        sign of the score.
    tol : float, default=1e-4
        Progress of the objective, relative to it, at which the steps end.
    gap : float, default=1e-6
        Least difference of the bounds of Problem 3 that a step asks for. That is `tol` times the
        objective where it is larger, since no end needs less.
    first_gap : float, default=1e-3
        The difference that the first step asks for. Later ones ask for a tenth of the last
        progress.
    search : CuttingPlane, default=CuttingPlane()
        Options of the search for multipliers, whose tolerance is replaced.
    """

    max_iter: int = 8
    tol: float = 1e-4
    gap: float = 1e-6
    first_gap: float = 1e-3
    search: CuttingPlane = field(default_factory=CuttingPlane)

    def solve(self, problem: RateProblem, model: Any, start: Float) -> list[MajorizationStep]:
        """Take steps until the progress is small, and list them with the start.

        With hinges in the place of all ramps the first step is the last.

        Parameters
        ----------
        problem : RateProblem
            Objective and constraints.
        model : object
            Scores of the problem's rows.
        start : ndarray of shape (n_features + 1,)
            Coefficients whose ramp rates meet the constraints.
        """
        steps: list[MajorizationStep] = []
        for step in self.iterate(problem, model, start):
            steps.append(step)
            if self.is_over(steps):
                break
        return steps

    def is_over(self, steps: Sequence[MajorizationStep]) -> bool:
        """Say whether there are enough steps, or the progress of the last one is small.

        Progress that is small for the roughness of the bounds does not count.

        Parameters
        ----------
        steps : sequence of MajorizationStep
            The start and all steps so far.
        """
        if len(steps) == 1:
            return False
        last, step = steps[-2:]
        small = self.tol * abs(step.objective)
        is_still = last.objective - step.objective <= small
        is_still &= step.upper - step.lower <= max(small, self.gap)
        return is_still or len(steps) > self.max_iter

    def iterate(
        self, problem: RateProblem, model: Any, start: Float
    ) -> Iterator[MajorizationStep]:
        """Yield the start, and one step after the other without end.

        Parameters
        ----------
        problem : RateProblem
            Objective and constraints.
        model : object
            Scores of the problem's rows.
        start : ndarray of shape (n_features + 1,)
            Coefficients whose ramp rates meet the constraints.
        """
        began = time.monotonic()
        step = self._measure(problem, model, start, np.zeros_like(problem.bounds))
        gap = max(self.gap, self.first_gap)
        points: list[Float] = []
        while True:
            yield step
            convex = ConvexProblem(problem, model, step.coefficients)
            # Points of the last search are cuts of this one, whose bounds differ in few rows.
            known = [convex.start(), *map(convex.at, points)]
            saddle = replace(self.search, tolerance=gap).solve(convex.minimize, known)
            # Points of one search that the next starts with.
            points = [cut.point for cut in saddle.cuts[1:]][-30:]
            found = self._measure(problem, model, saddle.point, saddle.multipliers)
            _check_promises(step, found, saddle)
            progress, asked = step.objective - found.objective, gap
            least = max(self.gap, self.tol * abs(found.objective))
            # The bounds of the next step may be a tenth of this step's progress apart.
            gap = max(least, min(gap, 0.1 * progress))
            step = replace(
                found,
                asked=asked,
                lower=saddle.lower,
                upper=saddle.upper,
                n_cuts=saddle.n_cuts,
                n_steps=convex.n_steps,
                seconds=time.monotonic() - began,
            )

    def _measure(
        self, problem: RateProblem, model: Any, coefficients: Float, multipliers: Float
    ) -> MajorizationStep:
        """Compute the objective and the largest violation."""
        values = problem.bound_values(model.scores(coefficients))
        violation = float(np.max(problem.violations(values), initial=-np.inf))
        objective = float(values[0] + model.penalty(coefficients))
        return MajorizationStep(coefficients, objective, violation, multipliers)


def _check_promises(last: MajorizationStep, step: MajorizationStep, saddle: Saddle) -> None:
    """Check that no constraint is violated more than before, and that the objective has not risen.

    Where constraints were violated before, the objective pays for what is less violated.
    """
    rounding = 1e-7
    paid = saddle.limit * max(last.violation, 0.0)
    paid -= saddle.limit * max(step.violation, 0.0)
    scale = 1.0 + abs(last.objective) + saddle.limit * max(last.violation, 0.0)
    if step.objective > last.objective + paid + rounding * scale:
        raise RuntimeError(
            f"a step of majorisation and minimisation raised the objective from {last.objective} "
            f"to {step.objective}: scale the features, for doubles are too coarse for these."
        )
    if last.violation <= rounding < step.violation:
        raise RuntimeError(
            f"a step of majorisation and minimisation violates a constraint by "
            f"{step.violation}, which the one before met: scale the features, for doubles are too "
            f"coarse for these."
        )


FACTORS = 2.0 ** np.linspace(-12, 12, 385)  # Neighbours differ by 4.4 %.
PRICE = 1000.0  # Limit of the multipliers where violations are all there is to pay for.


def find_start(
    problem: RateProblem,
    model: Any,
    method: MajorizationMinimization,
    given: Float | None = None,
) -> tuple[Float, float]:
    """Find coefficients whose ramp rates meet the constraints.

    Parameters
    ----------
    problem : RateProblem
        Objective and constraints.
    model : object
        Scores of the problem's rows.
    method : MajorizationMinimization
        Options of the steps that lower the largest violation.
    given : ndarray of shape (n_features + 1,), default=None
        Coefficients to start from, if a multiple of them meets the constraints.

    Returns
    -------
    coefficients : ndarray of shape (n_features + 1,)
        The coefficients.
    factor : float
        Factor of the given coefficients; NaN where the start is not a multiple of them.

    Raises
    ------
    InfeasibleConstraintsError
        If no coefficients were found, with the constraints in conflict.
    """
    if given is not None:
        factor = find_factor(problem, model.scores(given))
        if factor is not None:
            return factor * given, factor
    constant = np.zeros(model.n_features + 1)
    interval = problem.feasible_shares()
    if interval is not None:
        constant[-1] = np.clip(0.5, *interval) - 0.5
        return constant, np.nan
    constant[-1] = problem.least_violating_share() - 0.5
    return _lower_violation(problem, model, method, constant), np.nan


def find_factor(problem: RateProblem, scores: Float) -> float | None:
    """Find the factor of given scores that a start is multiplied by; None if there is none."""
    best, most_moving = None, 0.0
    for factor in sorted(FACTORS, key=lambda factor: abs(np.log(factor))):
        z = factor * scores
        if (problem.violations(problem.bound_values(z)) > FEASIBLE).any():
            continue
        moving = float((np.abs(z) <= 0.5).mean())
        if moving >= 0.1:  # A start moves if a tenth of the rows is within the ramp.
            return float(factor)
        if moving > most_moving:
            best, most_moving = float(factor), moving
    return best


def _lower_violation(
    problem: RateProblem, model: Any, method: MajorizationMinimization, constant: Float
) -> Float:
    """Take steps without an objective until the constraints are met, or the violation is still."""
    search = replace(method.search, limit=PRICE, max_limit=PRICE)
    priced = replace(
        method, search=search, gap=PRICE * method.gap, first_gap=PRICE * method.first_gap
    )
    steps = priced.iterate(problem.without_objective(), model, constant)
    last = next(steps)
    # Steps that lower the largest violation.
    for step in islice(steps, 100):
        if step.violation <= 0:
            return step.coefficients
        is_still = last.violation - step.violation <= method.tol * step.violation
        last = step
        if search.is_over():
            raise InfeasibleConstraintsError(
                f"no linear scores were found in time whose expected rates meet all constraints: "
                f"the largest violation is {step.violation:.3g}. Give more time, relax the "
                f"constraints, or give coefficients that meet them to start from."
            )
        if is_still:
            break
    # Multipliers name the constraints in conflict, from a thousandth of their limit on.
    shares = last.multipliers / PRICE
    named = [name for name, share in zip(problem.names, shares, strict=True) if share > 1e-3]
    conflict = " and ".join(named or problem.names)
    raise InfeasibleConstraintsError(
        f"no linear scores were found whose expected rates meet all constraints: the largest "
        f"violation is {last.violation:.3g}, with {conflict} in conflict. Relax one of them, "
        f"weaken the penalty of the coefficients or scale the features up, or give coefficients "
        f"that meet them to start from."
    )
