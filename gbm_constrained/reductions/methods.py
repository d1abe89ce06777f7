r"""Reductions of a metric to cost-sensitive classification.

The method serves linear, smooth and non-smooth convex objectives under any constraints. Value and
bound enclose the optimum after every call, and the method ends when they meet.

.. math:: \mathcal{L}(u, \xi; \lambda, \mu) = \lambda^T u + \psi(\xi) - \lambda^T \xi
    + \mu^T (A \xi - b, \phi(\xi)) ,

equation (9) of the paper. Its first term is the oracle's; the others need no rule.

.. math:: \min_u \frac{a^T u + a_0}{b^T u + b_0} \ge \gamma \iff
    \min_u (a - \gamma b)^T u + a_0 - \gamma b_0 \ge 0 .

Each level gamma is a linear programme over the rules, solved by columns on one pool for all
levels. The mixture of the smallest loss so far is kept. Algorithm 8 as printed assigns it in the
wrong branch: the update is that of Algorithm 4 and of the proof (Lemma 47).

The paper's denominators are positive for all rules. Here they need only be so for all mixtures
that meet the constraints: a rule that never predicts a class has no precision, and a bound on the
recall excludes it.

.. math:: f(\lambda, \mu) = \min_u \lambda^T u + \min_\xi \psi(\xi) - \lambda^T \xi
    + \mu^T (A \xi - b, \phi(\xi))

is concave, with the supergradient :math:`(u - \xi, \; (A \xi - b, \phi(\xi)))` at its minimisers.
Its maximum over :math:`\mu \ge 0` is the optimum. A shrinking ellipsoid holds the maximiser, and
the rules found on the way are mixed at the end.

Frank-Wolfe mixes the current mixture with the rule that minimises the objective's linear
approximation. A subgradient of the worst recall's loss names one class, so that the method ends at
the uniform mixture there: objectives with kinks are served by columns.

A copy xi of u takes the objective and the constraints, and multipliers join the two:

.. math:: \max_{\lambda, \mu \ge 0} \min_{u, \xi} \psi(\xi) + \lambda^T (u - \xi)
    + \mu^T (A \xi - b, \phi(\xi)) .

Without constraints there is no mu, and Algorithm 6 is Algorithm 2. The result is the average of
all rules, re-weighted over the pool.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Sequence
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import Bounds, minimize

from gbm_constrained._typing import Float
from gbm_constrained.metrics.base import KINDS, Kind
from gbm_constrained.problem.linear_constraints import solve_linear_programme
from gbm_constrained.reductions.mixtures import (
    FEASIBLE,
    MAX_CUTS,
    TOLERANCE,
    ConvexFunction,
    LinearFunction,
    LinearOracle,
    Master,
    MasterPoint,
    MixtureProgramme,
    Observe,
    RuleMixture,
    Search,
    Status,
    make_cut,
    make_level,
    reduce_support,
    search_segment,
)
from gbm_constrained.solvers.base import ReductionName


def find_feasible(search: Search) -> Status | None:
    """Add rules until a mixture of the pool meets the constraints, or none can (phase 1).

    The first rule is the one of least cost by the gradient in the middle of the box. For means of
    recalls this is the balanced rule, where no recall is zero.

    Returns
    -------
    {"infeasible", "limit"} or None
        None where a mixture is feasible; ``"limit"`` where the calls ended before either is known.
    """
    programme = search.programme
    if not search.rules:
        search.note(search.call(programme.objective.gradient(programme.middle))[1])
    master = Master(programme, search.constraint_cuts)
    bound = 0.0
    while True:
        n = len(search.rules)
        point = master.find_least_violation(search.points)
        u = search.points.mean(axis=0) if point is None else point.u
        search.note(u)
        if point is None:  # Descend the constraints that are infinite for all mixtures.
            infinite = [phi for phi in programme.convex if not np.isfinite(phi.value(u))]
            cost = sum((phi.gradient(u) for phi in infinite), np.zeros(programme.size))
        elif point.model <= FEASIBLE:
            return None
        elif point.model - bound <= FEASIBLE:
            return "infeasible"
        else:
            cost = point.cost
        if search.is_exhausted:
            return "infeasible" if bound > FEASIBLE else "limit"
        _, added = search.call(cost)
        search.note(u)
        if point is not None:
            bound = max(bound, float(cost @ added) + point.constant)
        if len(search.rules) == n:
            return "infeasible"


def mix_rules(
    programme: MixtureProgramme, oracle: LinearOracle, known: Iterable[tuple[Any, Float]]
) -> RuleMixture:
    """Find the best mixture of known rules, given their functionals, without further calls."""
    search = Search(programme, oracle, 0, start=known)
    return search.finish(search.find_best_mixture(), "limit")


def finish_convex(search: Search, tolerance: float) -> RuleMixture:
    """Make the solution of a convex objective: the best mixture of the pool, and its bound.

    One more call of the oracle, at the multipliers of that mixture, gives the bound.
    """
    master = Master(search.programme, search.constraint_cuts)
    point = master.optimise(search.points, max(0.01 * tolerance, FEASIBLE))
    if not search.is_exhausted:
        _, u = search.call(point.cost)
        search.note(point.u, float(point.cost @ u) + point.constant)
    return finish_at(search, point, tolerance)


def finish_at(search: Search, point: MasterPoint, tolerance: float) -> RuleMixture:
    """Make the solution of a convex objective from a mixture, which is optimal at its bound."""
    gap = search.programme.objective.value(point.u) - search.bound
    weight = reduce_support(point.weight, search.points[: len(point.weight)])
    return search.finish(weight, "optimal" if gap <= tolerance else "limit")


def minimise_over_columns(
    programme: MixtureProgramme,
    search: Search,
    tolerance: float = TOLERANCE,
    stop: Callable[[float, float], bool] = lambda value, bound: False,
    note: Callable[[Float, float], None] = lambda u, bound: None,
) -> tuple[MasterPoint, float]:
    """Minimise a convex objective over mixtures of all rules; the pool must have a feasible one.

    Parameters
    ----------
    programme : MixtureProgramme
        The objective, under the constraints of the search.
    search : Search
        The pool, which grows.
    tolerance : float, default=1e-7
        Value minus bound at the end.
    stop : callable of (value, bound) -> bool
        Ends the method earlier.
    note : callable of (u, bound)
        Called after each call of the oracle.

    Returns
    -------
    point : MasterPoint
        The best mixture.
    bound : float
        Lower bound of the optimum.
    """
    master, bound = Master(programme, search.constraint_cuts), -np.inf
    # First tolerance of the inner cuts: losses lie between 0 and 1.
    inner, least = 1e-3, max(0.01 * tolerance, FEASIBLE)
    centre: tuple[Float, float] | None = None
    is_smooth = False
    while True:
        found = master.optimise(search.points, inner)
        value = programme.objective.value(found.u)
        if value - bound <= tolerance or search.is_exhausted:
            found = master.optimise(search.points, least)
            value = programme.objective.value(found.u)
        note(found.u, bound)
        n = len(search.rules)
        if stop(value, bound) or value - bound <= tolerance or search.is_exhausted:
            return found, bound
        cost, constant = found.cost, found.constant
        if is_smooth and centre is not None:
            # Half of the multipliers are those of the best bound: those of the master jump from
            # one call to the next (Wentges, "Weighted Dantzig-Wolfe decomposition", 1997).
            cost = 0.5 * centre[0] + 0.5 * cost
            constant = 0.5 * centre[1] + 0.5 * constant
        _, u = search.call(cost)
        if float(cost @ u) + constant > bound:
            bound, centre = float(cost @ u) + constant, (cost, constant)
        note(found.u, bound)
        is_new = len(search.rules) > n
        if not (is_new or is_smooth) and inner <= least:
            return found, bound
        # Inner cuts are added until they miss the objective by a tenth of what is left to gain.
        gap = 0.1 * (value - bound) if is_new or is_smooth else 0.1 * inner
        inner = max(min(inner, gap), least)
        # A rule that the multipliers themselves do not ask for is followed by one that they do.
        is_smooth = is_new and float(found.cost @ u) + found.constant < value - inner


def solve_by_columns(search: Search, tolerance: float) -> RuleMixture:
    """Minimise a linear or convex objective by columns, with a bound.

    Parameters
    ----------
    search : Search
        The programme and the oracle.
    tolerance : float
        The search ends when value and bound differ by at most this.
    """
    found, _ = minimise_over_columns(search.programme, search, tolerance, note=search.note)
    return finish_at(search, found, tolerance)


# Cuts of one inner programme, and those of each function that are kept for the next ones.
MAX_INNER_CUTS = 100
# Least gap of the inner programme. Supergradients are exact up to it, and bounds take it off.
INNER_TOLERANCE = 1e-6


class SplitLagrangian:
    """The part of the Lagrangian that depends on xi, for given multipliers.

    Parameters
    ----------
    programme : MixtureProgramme
        A convex objective, and constraints.
    """

    def __init__(self, programme: MixtureProgramme) -> None:
        self.programme = programme
        self._functions: list[ConvexFunction] = [programme.objective, *programme.convex]
        self._cuts: list[list[LinearFunction]] = [[] for _ in self._functions]

    def constraints(self, xi: Float) -> Float:
        """Left-hand minus right-hand sides at xi, cut off where they are infinite."""
        # A constraint that is infinite at xi counts as violated by this much.
        return np.minimum(self.programme.constraints(xi), 10.0)

    def value(self, xi: Float, joint: Float, mu: Float) -> float:
        """Value at xi."""
        taken = mu @ self.constraints(xi) if len(mu) else 0.0
        return float(self.programme.objective.value(xi) - joint @ xi + taken)

    def slope(self, xi: Float, joint: Float, mu: Float) -> Float:
        """Subgradient at xi."""
        n_rows = len(self.programme.b)
        slope = self.programme.objective.gradient(xi) - joint + mu[:n_rows] @ self.programme.A
        for weight, phi in zip(mu[n_rows:], self.programme.convex, strict=True):
            if weight > 0:
                slope = slope + weight * phi.gradient(xi)
        return np.asarray(slope, dtype=float)

    def bound(self, xi: Float, joint: Float, mu: Float, slope: Float) -> float:
        """Lower bound over the box, by the linear approximation at xi."""
        if not np.isfinite(self.programme.constraints(xi)).all():
            return -np.inf
        least = np.where(slope > 0, self.programme.low, self.programme.high)
        return self.value(xi, joint, mu) + float(slope @ (least - xi))

    def minimise(self, joint: Float, mu: Float, tolerance: float) -> tuple[Float, float]:
        """Find the xi in the box of smallest value, and a lower bound of that value."""
        programme = self.programme
        xi, low, high = programme.middle, programme.low, programme.high
        # The harmonic mean of recalls is zero where one is, and so are its slopes by the others: a
        # descent that steps on such a face of the box stays there. At first it leaves out a
        # thousandth of the box next to its faces.
        for inset in (1e-3, 0.0) if programme.objective.kind == "smooth" else ():
            margin = inset * (high - low)
            found = minimize(
                self.value,
                xi,
                args=(joint, mu),
                jac=self.slope,
                bounds=Bounds(low + margin, high - margin),
                method="L-BFGS-B",
                options={"ftol": 1e-15, "gtol": 1e-10},
            )
            xi = np.clip(found.x, low, high)
            bound = self.bound(xi, joint, mu, self.slope(xi, joint, mu))
            if self.value(xi, joint, mu) - bound <= tolerance:
                return xi, bound
        return self._cut(joint, mu, tolerance)

    def _cut(self, joint: Float, mu: Float, tolerance: float) -> tuple[Float, float]:
        """Minimise by cuts of every function, which are kept for other multipliers."""
        programme, n_rows = self.programme, len(self.programme.b)
        weight = np.append(1.0, mu[n_rows:])
        n = len(weight)
        linear, constant = mu[:n_rows] @ programme.A - joint, -float(mu[:n_rows] @ programme.b)
        xi, best, bound = programme.middle, np.inf, -np.inf
        for k in range(n):
            self._add_cut(k, xi)
        free = np.tile([-np.inf, np.inf], (n, 1))  # What the models of the functions are worth.
        box = np.column_stack([programme.low, programme.high])
        for _ in range(MAX_INNER_CUTS):
            cuts = [(k, cut) for k, of_function in enumerate(self._cuts) for cut in of_function]
            found = solve_linear_programme(
                np.append(linear, weight),
                np.array([np.append(cut.slope, -np.eye(n)[k]) for k, cut in cuts]),
                [-cut.offset for _, cut in cuts],
                np.vstack([box, free]),
            )
            assert found.x is not None  # a box, and models that are bounded on it
            point = np.asarray(found.x[: programme.size], dtype=float)
            bound = max(bound, float(found.fun) + constant)
            value = self.value(point, joint, mu)
            if value < best:
                xi, best = point, value
            if best - bound <= tolerance:
                break
            added = [self._add_cut(int(k), point) for k in np.flatnonzero(weight)]
            if not any(added):
                break
        return xi, bound

    def _add_cut(self, k: int, point: Float) -> bool:
        """Add a cut of the k-th function where its cuts are below it at `point`."""
        function, cuts = self._functions[k], self._cuts[k]
        below = max((cut.value(point) for cut in cuts), default=-np.inf)
        if function.value(point) <= below + INNER_TOLERANCE / 10:
            return False
        cut = make_cut(function, point, (self.programme.middle,))
        if cut is not None:
            cuts.append(cut)
            del cuts[:-MAX_INNER_CUTS]
        return cut is not None


Levels: TypeAlias = Literal["dinkelbach", "halves"]


class ZeroDenominatorError(ValueError):
    """A ratio has no value for a decision rule that the constraints allow."""

    def __init__(self, least: float) -> None:
        super().__init__(
            f"the denominator of the ratio is {least} for a decision rule; a ratio needs a "
            "denominator above zero for every rule: choose another default class, weight rows "
            "so that more than one class occurs, or add a constraint that keeps the denominator "
            "above zero, as a bound on the recall keeps that of the precision"
        )


def solve_by_bisection(
    search: Search, tolerance: float, levels: Levels = "dinkelbach"
) -> RuleMixture:
    """Minimise a ratio of linear functions, by a bracket of the optimum.

    A ratio may have no value for the rules that phase 1 mixes, so that the least denominator is
    found before.

    Parameters
    ----------
    search : Search
        The pool.
    tolerance : float
        Width of the bracket at which the method ends.
    levels : {"dinkelbach", "halves"}, default="dinkelbach"
        The next level: the best value so far, or the middle of the bracket (the paper's).

    Returns
    -------
    RuleMixture
        The mixture; one rule where there are no constraints. Its bound is the bracket's lower end.

    Raises
    ------
    ZeroDenominatorError
        If the denominator is not positive for some mixture that the constraints allow.
    """
    programme = search.programme
    _, _, slope, offset = programme.objective.ratio()
    denominator = LinearFunction(np.asarray(slope, dtype=float), float(offset))
    _, u = search.call(denominator.slope)
    least = denominator.value(u)
    if least <= 0 and not programme.n_constraints:
        raise ZeroDenominatorError(least)
    search.note(u)
    if failure := find_feasible(search):
        return search.finish(search.find_best_mixture(), failure)
    if least <= 0.0:
        found, least = minimise_over_columns(programme.with_objective(denominator), search)
        if search.is_exhausted:
            return search.finish(search.find_best_mixture(), "limit")
        if least <= TOLERANCE:
            raise ZeroDenominatorError(denominator.value(found.u))
    return _close_bracket(search, least, tolerance, levels)


def _close_bracket(
    search: Search, denominator: float, tolerance: float, levels: Levels
) -> RuleMixture:
    """Close the interval that holds the optimum of a ratio, given its least denominator."""
    programme = search.programme
    weight = search.find_best_mixture()
    u = weight @ search.points[: len(weight)]
    low, high = -np.inf, programme.objective.value(u)
    search.note(u)

    def test_level(gamma: float) -> None:
        """Move the upper end to a mixture of value at most gamma, or the lower end upwards."""
        nonlocal high, weight
        level = programme.with_objective(make_level(programme.objective, gamma))
        enough = denominator * tolerance / 4
        at_top = gamma >= high

        def is_known(value: float, bound: float) -> bool:
            """Say whether the sign is known; at the upper end only an improvement is news."""
            return value < -enough if at_top else (value <= 0 or bound > 0)

        def note(u: Float, bound: float) -> None:
            """Raise the lower end: psi(u) - gamma is at least bound / (b^T u + b_0)."""
            nonlocal low
            if bound >= 0:
                low = max(low, gamma)
            elif np.isfinite(bound):
                low = max(low, gamma + bound / denominator)
            search.note(weight @ search.points[: len(weight)], low)

        found, bound = minimise_over_columns(level, search, enough, is_known, note)
        value = programme.objective.value(found.u)
        if value < high:
            high, weight = value, found.weight
        note(found.u, bound)

    while high - low > tolerance and not search.is_exhausted:
        before = low, high
        # Zero is the lower end of losses until one is known.
        known = low if np.isfinite(low) else min(0.0, high)
        test_level(high if levels == "dinkelbach" else (high + known) / 2)
        if levels == "dinkelbach" and before == (low, high):
            break
    best = search.find_best_mixture()
    if programme.objective.value(best @ search.points) > high:
        best = weight
    return search.finish(best, "optimal" if high - low <= tolerance else "limit")


def solve_by_ellipsoid(search: Search, tolerance: float, radius: float = 20.0) -> RuleMixture:
    """Minimise a convex objective under convex constraints by the ellipsoid method.

    Parameters
    ----------
    search : Search
        The pool.
    tolerance : float
        Distance of the dual value from its maximum at which the method ends.
    radius : float, default=20
        Radius of the first ball, which holds the multipliers of the optimum. Theorem 14 asks for
        2 L, and Theorem 18 for 2 (L + (L + 1) / r).

    Returns
    -------
    RuleMixture
        The best mixture of all rules found.
    """
    programme = search.programme
    d, m = programme.size, programme.n_constraints
    lagrangian = SplitLagrangian(programme)
    centre, shape, gap = np.zeros(d + m), radius**2 * np.eye(d + m), radius
    # Cuts back to the ball and to mu >= 0 call no oracle; this many of them for each call are
    # enough.
    for _ in range(10 * search.max_calls):
        if search.n_left <= 1:
            break
        joint, mu = centre[:d], centre[d:]
        if centre @ centre > radius**2:
            ascent = -centre
        elif (mu < 0).any():
            ascent = np.append(np.zeros(d), np.maximum(-mu, 0.0))
        else:
            _, u = search.call(joint)
            # The inner programme is solved to this share of the dual gap before it.
            xi, bound = lagrangian.minimise(joint, mu, max(1e-3 * gap, INNER_TOLERANCE))
            ascent = np.append(u - xi, lagrangian.constraints(xi))
            search.note(u, float(joint @ u) + bound)
            # By concavity, f* - f(centre) is at most the ascent along the longest chord.
            gap = np.sqrt(max(float(ascent @ shape @ ascent), 0.0))
            if gap <= tolerance:
                break
        centre, shape = cut_ellipsoid(shape, centre, ascent)
    return finish_convex(search, tolerance)


def cut_ellipsoid(shape: Float, centre: Float, ascent: Float) -> tuple[Float, Float]:
    r"""Find the smallest ellipsoid that holds half of another one (Löwner and John).

    .. math:: g = \frac{P w}{\sqrt{w^T P w}}, \quad c' = c + \frac{g}{d + 1}, \quad
        P' = \frac{d^2}{d^2 - 1} \Bigl(P - \frac{2}{d + 1} g g^T\Bigr) ,

    of the ellipsoid :math:`(x - c)^T P^{-1} (x - c) \le 1` cut by :math:`w^T (x - c) \ge 0`. The
    volume shrinks by exp(-1 / (2 d)) or more (the paper's Lemma 34).

    Parameters
    ----------
    shape : ndarray of shape (d, d)
        Matrix P.
    centre : ndarray of shape (d,)
        Centre c.
    ascent : ndarray of shape (d,)
        Direction w.

    Returns
    -------
    centre, shape : ndarray
        Centre and matrix of the new ellipsoid.
    """
    d = len(centre)
    length = float(ascent @ shape @ ascent)
    if length <= 0.0:
        return centre, shape
    g = shape @ ascent / np.sqrt(length)
    if d == 1:  # half an interval
        return centre + g / 2, shape / 4
    new = d * d / (d * d - 1) * (shape - 2 / (d + 1) * np.outer(g, g))
    return centre + g / (d + 1), (new + new.T) / 2


StepRule: TypeAlias = Literal["line_search", "open_loop"]


def solve_by_frank_wolfe(
    search: Search, tolerance: float, step: StepRule = "line_search"
) -> RuleMixture:
    """Minimise a smooth or any differentiable objective by Frank-Wolfe.

    Parameters
    ----------
    search : Search
        The pool.
    tolerance : float
        Frank-Wolfe gap at which the method ends.
    step : {"line_search", "open_loop"}, default="line_search"
        The exact step, or 2 / (t + 2), with the guarantee of the paper's Theorem 12.

    Returns
    -------
    RuleMixture
        The best mixture of all rules found. Its status is ``"local"`` for kind ``"other"``.
    """
    if search.programme.objective.kind == "other":
        return _solve_from_several_starts(search, tolerance)
    if search.programme.n_constraints:
        return solve_by_split_frank_wolfe(search, tolerance, step)
    run_frank_wolfe(search, np.array([1.0]), search.n_left - 1, tolerance, step)
    return finish_convex(search, tolerance)


def run_frank_wolfe(
    search: Search, weight: Float, n_calls: int, tolerance: float, step: StepRule
) -> tuple[Float, float]:
    """Run Algorithm 1 from a mixture.

    Parameters
    ----------
    search : Search
        The pool, which grows.
    weight : ndarray of shape (k,)
        Probabilities of the first k rules at the start.
    n_calls : int
        Calls of the oracle.
    tolerance : float
        Frank-Wolfe gap at which the method ends.
    step : {"line_search", "open_loop"}
        As in :func:`solve_by_frank_wolfe`.

    Returns
    -------
    weight : ndarray of shape (n,)
        Probabilities of the rules at the end.
    gap : float
        Frank-Wolfe gap before the last step.
    """
    objective, gap = search.programme.objective, np.inf
    u = weight @ search.points[: len(weight)]
    is_convex = objective.kind != "other"
    end = len(search.history) + n_calls
    for t in range(n_calls):
        slope = np.asarray(objective.gradient(u), dtype=float)
        target, v = _find_target(search, slope, tolerance)
        gap = float(slope @ (u - v))
        bound = objective.value(u) - gap if is_convex else -np.inf
        if gap <= tolerance:
            search.note(u, bound)
            break
        size = 2 / (t + 2) if step == "open_loop" else search_segment(objective.value, u, v)
        weight = np.append(weight, np.zeros(len(target) - len(weight)))
        weight = (1 - size) * weight + size * target
        u = (1 - size) * u + size * v
        search.note(u, bound)
        is_stuck = size == 0.0 and step == "line_search"
        if is_stuck or search.is_exhausted or len(search.history) >= end:
            break
    return weight, gap


def _find_target(search: Search, slope: Float, tolerance: float) -> tuple[Float, Float]:
    """Find the mixture that minimises a linear function under the constraints, and its u."""
    if not search.programme.n_constraints:
        index, u = search.call(slope)
        return np.eye(1, len(search.rules), index)[0], u
    linear = search.programme.with_objective(LinearFunction(slope))
    found, _ = minimise_over_columns(linear, search, tolerance)
    weight = np.append(found.weight, np.zeros(len(search.rules) - len(found.weight)))
    return weight, found.u


def _solve_from_several_starts(search: Search, tolerance: float) -> RuleMixture:
    """Find a stationary point of an objective that is not convex, from five starts.

    Starts take the gradient at the middle of the box, which gives the balanced rule, and at random
    points. Each ends after a few calls, and its mixture is weighed anew over the whole pool.
    """
    programme = search.programme
    rng, calls_per_start = np.random.default_rng(0), 20
    at = [programme.middle, *(rng.uniform(programme.low, programme.high) for _ in range(4))]
    slopes = [np.asarray(programme.objective.gradient(u), dtype=float) for u in at]
    ends: list[Float] = []
    for slope in slopes:
        if search.n_left <= 1:
            break
        start, u = _find_target(search, slope, tolerance)
        search.note(u)
        n_calls = min(calls_per_start, search.n_left)
        ends.append(run_frank_wolfe(search, start, n_calls, tolerance, "line_search")[0])
    points = search.points
    ends = [search.find_best_mixture(end) for end in ends] or [search.find_best_mixture()]
    weight = min(ends, key=lambda end: programme.objective.value(end @ points))
    gap, value, before = np.inf, programme.objective.value(weight @ points), np.inf
    while gap > tolerance and value < before and not search.is_exhausted:
        before = value
        n_calls = min(calls_per_start, search.n_left)
        weight, gap = run_frank_wolfe(search, weight, n_calls, tolerance, "line_search")
        weight = search.find_best_mixture(weight)
        value = programme.objective.value(weight @ search.points)
    return search.finish(weight, "local" if gap <= tolerance else "limit")


PENALTY = 10.0  # Weight zeta of the squared distance in Algorithm 5.


def solve_by_split_frank_wolfe(search: Search, tolerance: float, step: StepRule) -> RuleMixture:
    r"""Minimise a smooth convex objective under constraints (Algorithm 5, SplitFW).

    Achievable u and f of the set F of points that meet the constraints are moved towards each
    other on the augmented Lagrangian

    .. math:: \psi(u) + \psi(f) + \lambda^T (u - f) + \tfrac{\zeta}{2} \lVert u - f \rVert^2 ,
        \qquad F = \{u: low \le u \le high, \; A u \le b, \; \phi(u) \le 0\} .

    The multipliers take the step :math:`\eta` that the paper's experiments use, by thirds of the
    calls. Algorithm 5 prints :math:`\eta / t`, which leaves u and f apart. Half the minimum of
    both linear approximations bounds the optimum from below.

    Parameters
    ----------
    search : Search
        The pool.
    tolerance : float
        Value minus bound at which the method ends.
    step : {"line_search", "open_loop"}
        The step along both segments.

    Returns
    -------
    RuleMixture
        The best mixture of all rules found.
    """
    programme, objective = search.programme, search.programme.objective
    u = search.find_best_mixture() @ search.points
    f, multipliers = u.copy(), np.zeros(programme.size)
    centres, cuts = (u, programme.middle), list[LinearFunction]()

    def lagrangian(both: Float) -> float:
        u, f = np.split(both, 2)
        joined = multipliers @ (u - f) + PENALTY / 2 * (u - f) @ (u - f)
        return float(objective.value(u) + objective.value(f) + joined)

    for t in range(n_steps := search.n_left - 1):
        if search.n_left <= 1:
            break
        of_u, of_f = objective.gradient(u), objective.gradient(f)
        pull = multipliers + PENALTY * (u - f)  # What joins u and f, derived by u.
        slope = np.asarray(of_u + pull, dtype=float)
        slope_f = np.asarray(of_f - pull, dtype=float)
        _, v = search.call(slope)
        w = minimise_over_constraints(programme, slope_f, cuts, centres)
        at_u = objective.value(u) - of_u @ u + slope @ v
        at_f = objective.value(f) - of_f @ f + slope_f @ w
        if step == "open_loop":
            size = 2 / (t + 2)
        else:
            size = search_segment(lagrangian, np.concatenate([u, f]), np.concatenate([v, w]))
        u, f = (1 - size) * u + size * v, (1 - size) * f + size * w
        # Steps of the multipliers of Algorithm 5, by thirds of the calls (the paper's Section 8).
        multipliers += (0.5, 0.1, 0.001)[min(3 * t // n_steps, 2)] * (u - f)
        search.note(u, float(at_u + at_f) / 2)
        gap = objective.value(u) - search.bound
        if programme.violation(u) <= FEASIBLE and gap <= tolerance:
            break
    return finish_convex(search, tolerance)


def minimise_over_constraints(
    programme: MixtureProgramme,
    cost: Float,
    cuts: list[LinearFunction],
    centres: tuple[Float, ...],
) -> Float:
    """Find the point of the box that meets the constraints and has the smallest ``cost @ u``.

    Cuts of the convex constraints are added to `cuts`. `centres` are points that meet them.
    """
    if not programme.n_constraints:
        return np.where(cost > 0, programme.low, programme.high)
    box = np.column_stack([programme.low, programme.high])
    for _ in range(MAX_CUTS):
        found = solve_linear_programme(
            cost,
            np.vstack([programme.A, *(cut.slope for cut in cuts)]),
            np.append(programme.b, [-cut.offset for cut in cuts]),
            box,
        )
        if found.x is None:
            raise RuntimeError(
                "no point of the box meets the constraints; call find_feasible before"
            )
        u = np.asarray(found.x, dtype=float)
        # These points only lead achievable points, which are re-weighted exactly at the end.
        exceeded = [phi for phi in programme.convex if phi.value(u) > 1e-6]
        tried = [make_cut(phi, u, centres) for phi in exceeded]
        added = [cut for cut in tried if cut is not None and cut.value(u) > 0]
        cuts += added
        if not added:
            break
    # Cuts of the convex constraints that are kept for the next cost: the last ones are near.
    del cuts[:-100]
    return u


def solve_by_gradient_descent_ascent(
    search: Search,
    tolerance: float,
    steps: Sequence[tuple[float, float]] = ((0.01, 0.1), (0.1, 0.1), (0.1, 0.01), (0.01, 0.01)),
) -> RuleMixture:
    """Minimise a convex objective under convex constraints by gradient descent and ascent.

    This is Algorithm 6. Multipliers start in the direction of the mean gradient over the box, with
    a small length: one subgradient of a worst recall would name one class, which the average would
    remember.

    Parameters
    ----------
    search : Search
        The pool.
    tolerance : float
        Value minus bound that counts as optimal.
    steps : sequence of (float, float)
        Steps of xi and of the multipliers, each tried from the start. By default the grid of
        Section 8 of the paper without 0.001, which is too short to arrive in thousands of calls.

    Returns
    -------
    RuleMixture
        The best mixture of all rules found. The history has the averages of each pair of steps.
    """
    n_calls = max((search.n_left - 1) // len(steps), 1)
    programme = search.programme
    lagrangian = SplitLagrangian(programme)
    # Points at which the first gradient is averaged: enough to name every class of dozens.
    rng = np.random.default_rng(0)
    points = rng.uniform(programme.low, programme.high, (200, programme.size))
    start = np.mean([programme.objective.gradient(u) for u in points], axis=0)
    largest = np.abs(start).max(initial=0.0)
    if largest > 0:  # Largest multiplier at the start: a tenth of the losses' range.
        start = 0.1 * start / largest
    # Balls of multipliers. Lemma 33 asks for L (1 + 1 / r), with L below n and slack r above 0.01.
    radius = 1000.0
    for descent, ascent in steps:
        xi, joint, mu = programme.middle, start, np.zeros(programme.n_constraints)
        average = np.zeros(programme.size)
        for t in range(n_calls):
            if search.n_left <= 1:
                break
            _, u = search.call(joint)
            average += (u - average) / (t + 1)
            slope = lagrangian.slope(xi, joint, mu)
            bound = float(joint @ u) + lagrangian.bound(xi, joint, mu, slope)
            step_joint, step_mu = u - xi, lagrangian.constraints(xi)
            xi = np.clip(xi - descent * slope, programme.low, programme.high)
            joint = joint + ascent * step_joint
            if (length := float(np.linalg.norm(joint))) > radius:
                joint = joint * (radius / length)
            mu = project_on_corner(np.maximum(mu + ascent * step_mu, 0.0), radius)
            search.note(average, bound)
    return finish_convex(search, tolerance)


def project_on_corner(x: Float, total: float) -> Float:
    """Project non-negative numbers on those whose sum is at most `total`."""
    if x.sum() <= total:
        return x
    # The projection is max(x - s, 0), with s such that it sums to `total` (Held et al., 1974).
    descending = np.sort(x)[::-1]
    shift = (np.cumsum(descending) - total) / np.arange(1, len(x) + 1)
    last = np.flatnonzero(descending > shift)[-1]
    return np.asarray(np.maximum(x - shift[last], 0.0), dtype=float)


CONVEX = ("linear", "smooth", "convex"), "needs a convex objective"
DIFFERENTIABLE = ("linear", "smooth", "other"), "needs a differentiable objective"
# Method of each solver, calls that suffice on small problems, the kinds of objectives that it can
# minimise, and why no others. "auto" takes the first one that can.
SOLVERS: dict[ReductionName, tuple[Callable[..., RuleMixture], int, tuple[str, ...], str]] = {
    "columns": (solve_by_columns, 300, *CONVEX),
    "gda": (solve_by_gradient_descent_ascent, 5000, *CONVEX),
    "ellipsoid": (solve_by_ellipsoid, 1000, *CONVEX),
    "frank_wolfe": (solve_by_frank_wolfe, 500, *DIFFERENTIABLE),
    "bisection": (solve_by_bisection, 300, ("ratio",), "needs a ratio of linear functions"),
}


def check_reduction(kind: Kind, solver: str) -> ReductionName:
    """Check that a solver can minimise a kind of objective, and choose one for ``"auto"``.

    Parameters
    ----------
    kind : {"linear", "smooth", "convex", "ratio", "other"}
        Kind of the objective.
    solver : {"auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}
        Name of the solver.

    Returns
    -------
    str
        Name of the solver to take.

    Raises
    ------
    ValueError
        If the name is unknown, or the solver cannot minimise the objective.
    """
    capable = [name for name, (_, _, kinds, _) in SOLVERS.items() if kind in kinds]
    if not capable:
        raise ValueError(f"kind={kind!r} is no kind of objective; take one of {', '.join(KINDS)}")
    for name, (*_, need) in SOLVERS.items():
        if solver == name and name not in capable:
            raise ValueError(
                f"solver={solver!r} {need}, and the objective is of kind {kind!r}; "
                f"take solver={capable[0]!r}, or solver='auto'"
            )
        if solver in (name, "auto") and name in capable:
            return name
    raise ValueError(f"solver={solver!r} is no reduction; take one of auto, {', '.join(SOLVERS)}")


def solve(
    programme: MixtureProgramme,
    oracle: LinearOracle,
    solver: str = "auto",
    max_calls: int | None = None,
    observe: Observe | None = None,
    tolerance: float = TOLERANCE,
    known: Sequence[tuple[Any, Float]] = (),
    start: Sequence[tuple[Any, Float]] = (),
    **settings: Any,
) -> RuleMixture:
    """Minimise a function of the confusion matrix over randomised decision rules.

    Parameters
    ----------
    programme : MixtureProgramme
        Objective and constraints.
    oracle : callable
        Given the cost of each functional, finds the rule of smallest cost and its functionals.
    solver : {"auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}, default="auto"
        ``"auto"`` takes columns for convex objectives, bisection for ratios, and Frank-Wolfe from
        several starts for others.
    max_calls : int, default=None
        Calls of the oracle; None takes what the solver needs on small problems.
    observe : callable, default=None
        Sees the current mixture before each call, and may end the search.
    tolerance : float, default=1e-7
        Value minus bound at which the search ends.
    known, start : sequence of (rule, ndarray), default=()
        Rules of earlier searches, and rules that the pool begins with.
    **settings
        Options of the solver by name, such as ``steps`` of ``"gda"``.

    Returns
    -------
    RuleMixture
        A mixture of rules, with a bound where the solver has one.
    """
    method, most_calls, *_ = SOLVERS[check_reduction(programme.objective.kind, solver)]
    if max_calls is not None and max_calls < 2:
        raise ValueError(f"max_calls={max_calls} finds no mixture; take at least 2")
    max_calls = most_calls if max_calls is None else max_calls
    search = Search(programme, oracle, max_calls, observe, known, start)
    # A ratio may have no value for the rules that phase 1 mixes: bisection begins by itself.
    if method is not solve_by_bisection and (failure := find_feasible(search)):
        return search.finish(search.find_best_mixture(), failure)
    return method(search, tolerance, **settings)
