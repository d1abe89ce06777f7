r"""Mixtures of decision rules, and the record of a search for them.

A reduction minimises a function of the confusion matrix over randomised decision rules. Every
reduction calls an oracle that minimises linear functions, Definition 11 of Narasimhan et al.,
"Consistent Multiclass Algorithms for Complex Metrics and Constraints", here called the paper. The
vector u holds d linear functionals of the confusion matrix, such as recalls and predicted shares
(the generalised confusion vectors of Definition 24). The set of achievable u is convex
(Proposition 7).

Simplicial decomposition (von Hohenbalken, "Simplicial Decomposition in Nonlinear Programming
Algorithms", 1977) mixes the rules of few columns anew, and adds those of smallest cost
:math:`\nabla \psi(u)^T u_i`, until no rule of the pool costs less than the mixture. There are no
linear programmes to solve.

.. math:: \min_{\lambda, t} t \quad \text{s.t.} \quad t \ge \psi(v_k) + g_k^T (u - v_k), \;
    A u \le b, \; \phi(w_l) + h_l^T (u - w_l) \le 0, \;
    u = \sum_i \lambda_i u_i, \; \sum_i \lambda_i = 1, \; \lambda \ge 0 .

Cuts :math:`g_k` of the objective and :math:`h_l` of the convex constraints are added until the
programme is exact at its solution (Kelley). The multipliers :math:`\alpha, \mu, \nu` of the rows
give the cost of the next rule, :math:`c = \sum_k \alpha_k g_k + A^T \mu + \sum_l \nu_l h_l`. They
also give the bound that holds for every achievable u, by weak duality:

.. math:: \psi^* \ge \min_u c^T u + \sum_k \alpha_k (\psi(v_k) - g_k^T v_k) - b^T \mu
    + \sum_l \nu_l (\phi(w_l) - h_l^T w_l) .

The post-processing of the paper's Section 8.2,

.. math:: \min_\lambda \psi(\sum_i \lambda_i u_i) \quad \text{s.t.} \quad
    A \sum_i \lambda_i u_i \le b, \; \phi(\sum_i \lambda_i u_i) \le 0 ,

with the objective itself by cutting planes, where the paper has the linear function
:math:`\sum_i \lambda_i \psi(u_i)`, and with one row for each linear constraint.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Sequence
from dataclasses import dataclass, replace
from typing import Any, ClassVar, Literal, NamedTuple, Protocol, TypeAlias

import numpy as np
from scipy.optimize import minimize, minimize_scalar

from gbm_constrained._typing import Float
from gbm_constrained.metrics.base import Kind
from gbm_constrained.problem.linear_constraints import solve_linear_programme

Status: TypeAlias = Literal["optimal", "local", "limit", "infeasible"]

# A violation below this is rounding: ten times what the linear programmes are solved to, and what
# they can tell apart.
FEASIBLE = 1e-9
# Value minus bound below which an objective counts as minimised: far below any sampling error.
TOLERANCE = 1e-7


class ConvexFunction(Protocol):
    """A convex function of u."""

    def value(self, u: Float) -> float:
        """Value at u; infinite where the function is not defined."""

    def gradient(self, u: Float) -> Float:
        """Subgradient at u; where the value is infinite, the negative of any descent direction."""


LinearOracle: TypeAlias = Callable[[Float], tuple[Any, Float]]
"""A linear minimisation oracle: given the cost of each functional, the deterministic decision rule
of smallest :math:`cost^T u`, ties going to the larger class, and its u."""


@dataclass(frozen=True, eq=False)
class LinearFunction:
    r"""The function :math:`a^T u + a_0`, as an objective or as a cut below a convex one.

    Parameters
    ----------
    slope : ndarray of shape (d,)
        Coefficients a.
    offset : float, default=0
        Constant :math:`a_0`.
    """

    slope: Float
    offset: float = 0.0
    kind: ClassVar[Kind] = "linear"

    def value(self, u: Float) -> float:
        """Value at u."""
        return float(self.slope @ u) + self.offset

    def gradient(self, u: Float) -> Float:
        """Gradient, the same everywhere."""
        return self.slope


@dataclass(frozen=True, eq=False)
class MixtureProgramme:
    r"""A function of u to be minimised under constraints.

    .. math:: \min_u \psi(u) \quad \text{s.t.} \quad A u \le b, \; \phi_k(u) \le 0, \;
        u \text{ achievable} .

    The constraint of a largest value, such as coverage, is stated by its linear rows: one row for
    the maximum would make mixtures of rules look infeasible.

    Parameters
    ----------
    objective : object
        The function psi, as a loss to be minimised, with the methods of a
        :class:`ConvexFunction` and an attribute ``kind``. ``"smooth"`` is convex and
        differentiable; ``"convex"`` may have kinks; ``"ratio"`` is a ratio of linear functions,
        whose coefficients :math:`a, a_0, b, b_0` its method ``ratio`` gives; nothing is known of
        ``"other"``.
    A : ndarray of shape (m, d)
        Coefficients of the linear constraints; shape (0, d) where there are none.
    b : ndarray of shape (m,)
        Bounds of the linear constraints.
    convex : sequence of ConvexFunction, default=()
        The functions phi.
    low, high : float or ndarray of shape (d,), default=0 and 1
        A box that contains all achievable u, on which psi and phi are defined.
    """

    objective: Any
    A: Float
    b: Float
    convex: Sequence[ConvexFunction] = ()
    low: float | Float = 0.0
    high: float | Float = 1.0

    def __post_init__(self) -> None:
        A, b = np.asarray(self.A, dtype=float), np.asarray(self.b, dtype=float)
        if A.ndim != 2 or b.shape != A.shape[:1]:
            raise ValueError(
                f"A has shape {A.shape} and b has shape {b.shape}; give A one row of d "
                "coefficients for each entry of b, and shape (0, d) if no constraint is linear"
            )
        if not (np.isfinite(A).all() and np.isfinite(b).all()):
            raise ValueError("A and b hold numbers that are not finite; drop rows without a bound")
        low, high = (
            np.broadcast_to(np.asarray(end, dtype=float), A.shape[1:]).copy()
            for end in (self.low, self.high)
        )
        if not (np.isfinite(low).all() and np.isfinite(high).all() and (low <= high).all()):
            raise ValueError(
                f"low={low} and high={high} are no box; give finite numbers with low <= high"
            )
        for name, value in (("A", A), ("b", b), ("low", low), ("high", high)):
            object.__setattr__(self, name, value)

    @property
    def size(self) -> int:
        """Number d of functionals."""
        return int(self.A.shape[1])

    @property
    def n_constraints(self) -> int:
        """Number of linear rows and convex functions."""
        return len(self.b) + len(self.convex)

    @property
    def middle(self) -> Float:
        """Centre of the box."""
        return np.asarray((self.low + self.high) / 2, dtype=float)

    def constraints(self, u: Float) -> Float:
        """Left-hand minus right-hand side of each linear row, then of each convex function."""
        return np.append(self.A @ u - self.b, [phi.value(u) for phi in self.convex])

    def violation(self, u: Float) -> float:
        """Largest violation of a constraint at u, zero where all constraints hold."""
        return float(np.max(self.constraints(u), initial=0.0))

    def with_objective(self, objective: Any) -> MixtureProgramme:
        """Make the programme of another objective under the same constraints."""
        return replace(self, objective=objective)

    def without_constraints(self) -> MixtureProgramme:
        """Make the programme of the same objective over all achievable u."""
        return replace(self, A=self.A[:0], b=self.b[:0], convex=())


@dataclass(frozen=True)
class SearchStep:
    """What was reached after one call of the oracle.

    Parameters
    ----------
    value : float
        Objective at the current mixture.
    bound : float
        Largest lower bound of the optimum so far.
    violation : float
        Largest violation at the current mixture.
    seconds : float
        Time since the start.
    """

    value: float
    bound: float
    violation: float
    seconds: float


Observe: TypeAlias = Callable[[SearchStep, Float], bool]
"""Is called before each call of the oracle, once there is a mixture, with the last step and the u
of the mixture. The search ends after that call if the answer is True."""


@dataclass(frozen=True, eq=False)
class RuleMixture:
    """A randomised decision rule, and what is known of it.

    Parameters
    ----------
    rules : tuple of length k
        Rules with positive probability.
    probability : ndarray of shape (k,)
        Probability of each rule.
    u : ndarray of shape (d,)
        Functionals of the mixture.
    value : float
        Objective at u.
    bound : float
        Lower bound of the optimum if the oracle is exact; -inf where the method has none.
    violation : float
        Largest violation of a constraint at u; zero where all constraints hold.
    status : {"optimal", "local", "limit", "infeasible"}
        ``"optimal"``: value and bound meet. ``"local"``: a stationary point of an objective that
        is not convex. ``"limit"``: the calls ended before. ``"infeasible"``: no mixture meets the
        constraints, and this one violates them least.
    history : tuple of SearchStep
        One step for each call of the oracle.
    pool : ndarray of shape (n, d)
        Functionals of all rules found.
    """

    rules: tuple[Any, ...]
    probability: Float
    u: Float
    value: float
    bound: float
    violation: float
    status: Status
    history: tuple[SearchStep, ...]
    pool: Float


def search_segment(value: Callable[[Float], float], u: Float, end: Float) -> float:
    """Find the step in [0, 1] from u towards `end` with the smallest value."""

    def along(step: float) -> float:
        return value((1 - step) * u + step * end)

    found = minimize_scalar(along, bounds=(0.0, 1.0), method="bounded", options={"xatol": 1e-12})
    # A bounded search never tries the ends.
    return float(min((0.0, 1.0, float(found.x)), key=along))


def polish(programme: MixtureProgramme, points: Float, weight: Float, slack: float) -> Float:
    """Improve the probabilities of a mixture's rules (SLSQP), if that keeps it feasible.

    Parameters
    ----------
    programme : MixtureProgramme
        Objective and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    weight : ndarray of shape (n,)
        The mixture; rules without probability stay without. Where it violates a constraint, any
        mixture that does not is an improvement.
    slack : float
        Violation that is allowed.

    Returns
    -------
    ndarray of shape (n,)
    """
    objective = programme.objective
    chosen = np.flatnonzero(weight)
    part = points[chosen]
    total: Any = {"type": "eq", "fun": lambda w: w.sum() - 1, "jac": np.ones_like}
    rows: Any = {
        "type": "ineq",
        "fun": lambda w: slack - programme.constraints(w @ part),
        "jac": lambda w: (
            -np.vstack([programme.A, *(phi.gradient(w @ part) for phi in programme.convex)])
            @ part.T
        ),
    }
    problem: Any = {
        "fun": lambda w: float(objective.value(w @ part)),
        "jac": lambda w: np.asarray(part @ objective.gradient(w @ part), dtype=float),
        "bounds": [(0.0, 1.0)] * len(chosen),
        "constraints": [total, rows] if programme.n_constraints else [total],
    }
    with np.errstate(invalid="ignore", over="ignore"):
        found = minimize(x0=weight[chosen], method="SLSQP", options={"ftol": 1e-12}, **problem)
    new = np.zeros_like(weight)
    new[chosen] = np.maximum(found.x, 0.0)
    if not (np.isfinite(new).all() and new.sum() > 0):
        return weight
    new /= new.sum()
    u, before = new @ points, weight @ points
    is_better = objective.value(u) < objective.value(before)
    was_feasible = programme.violation(before) <= slack + FEASIBLE
    is_feasible = programme.violation(u) <= slack + FEASIBLE
    return new if is_feasible and (is_better or not was_feasible) else weight


# Probability of rules that are new to a mixture, where its improvement starts.
START = 1e-3
# Steeper objectives are near a point where they have no gradient, and steeper cuts make a linear
# programme with 1e-10 as tolerance wrong in the sixth digit.
MAX_SLOPE = 1e4


def mix_smoothly(
    programme: MixtureProgramme, points: Float, start: Float | None, tolerance: float
) -> tuple[Float, float]:
    """Minimise a smooth objective over mixtures of a pool.

    Parameters
    ----------
    programme : MixtureProgramme
        A smooth objective, and no constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    start : ndarray of shape (k,) or None
        A mixture of the first k rules; None for the rule of least cost in the middle of the pool.
    tolerance : float
        Gap at the end.

    Returns
    -------
    weight : ndarray of shape (n,)
        The mixture.
    gap : float
        Value of the mixture minus a lower bound of all of them. The gap exceeds the tolerance
        where the objective is too steep, or where rounding ends the descent.
    """
    objective = programme.objective
    if start is None:
        slope = np.asarray(objective.gradient(points.mean(axis=0)), dtype=float)
        start = np.eye(1, len(points), int((points @ slope).argmin()))[0]
    weight = np.append(start, np.zeros(len(points) - len(start)))
    best, least, gap = weight, np.inf, np.inf
    # Steps until a mixture of some ten rules is found are about five.
    for _ in range(30):
        u = weight @ points
        value, slope = objective.value(u), np.asarray(objective.gradient(u), dtype=float)
        if not value < least:
            break
        gains = (u - points) @ slope
        best, least, gap = weight, value, float(gains.max())
        if gap <= tolerance or not np.abs(slope).max() <= MAX_SLOPE:
            break
        new = np.zeros_like(weight)
        # Rules that join the mixture in one step: each step costs one search for probabilities.
        new[np.argsort(-gains, kind="stable")[:3]] = 1.0
        new *= gains > 0.0
        mixed = (1.0 - START) * weight + START * new / new.sum()
        weight = polish(programme, points, mixed, 0.0)
    return best, gap


# Steps from u towards the centre at which a cut is tried: u itself, then doubling ones.
CUT_STEPS = np.append(0.0, 2.0 ** -np.arange(30, -1, -1.0))
# Kelley's method adds about ten cuts for each dimension of curvature; d is below 100.
MAX_CUTS = 1000


class MasterPoint(NamedTuple):
    """A solution of the master programme.

    ``weight`` of shape (n,) over the pool has the functionals ``u``. ``model`` is the value of the
    linear programme, and its Lagrangian is ``cost @ u + constant``.
    """

    weight: Float
    u: Float
    model: float
    cost: Float
    constant: float


def make_cut(
    function: ConvexFunction, u: Float, centres: tuple[Float, ...]
) -> LinearFunction | None:
    """Make a cut at u, or near u where the function is infinite or has no subgradient there.

    A cut that is steep or exceeds the function at a centre is no use: the point of the cut moves
    towards the first centre that gives one, and None is returned where none does.
    """
    for centre in centres:
        at_centre = function.value(centre)
        if not np.isfinite(at_centre):
            continue
        for step in CUT_STEPS:
            v = u + step * (centre - u)
            value = function.value(v)
            if not np.isfinite(value):
                continue
            slope = np.asarray(function.gradient(v), dtype=float)
            if np.isnan(slope).any():
                raise ValueError(
                    f"gradient({v}) is {slope}, which holds NaN; return finite numbers for every "
                    "u between low and high"
                )
            if np.abs(slope).max(initial=0.0) > MAX_SLOPE:
                continue
            cut = LinearFunction(slope, float(value - slope @ v))
            if cut.value(centre) <= at_centre + FEASIBLE * (1 + abs(at_centre)):
                return cut
    return None


class Master:
    """The master programme of one programme, with its cuts.

    Parameters
    ----------
    programme : MixtureProgramme
        An objective that is linear or convex, and constraints.
    constraint_cuts : list of LinearFunction, default=None
        Cuts of the same convex constraints from other masters, which share the list.
    """

    def __init__(
        self, programme: MixtureProgramme, constraint_cuts: list[LinearFunction] | None = None
    ) -> None:
        self.programme = programme
        self._cuts: list[LinearFunction] = []
        self._mixture: Float | None = None  # Of a smooth objective without constraints.
        self._constraint_cuts = [] if constraint_cuts is None else constraint_cuts

    def optimise(
        self,
        points: Float,
        tolerance: float,
        slacks: Sequence[float] = (0.0, FEASIBLE / 2, FEASIBLE),
    ) -> MasterPoint:
        """Find the best mixture whose violations are at most the first slack that has one.

        The model misses the objective by at most `tolerance`. A linear programme may find no point
        at the exact value of a slack, which a larger one then follows.
        """
        objective = self.programme.objective
        if objective.kind == "smooth" and not self.programme.n_constraints:
            self._mixture, gap = mix_smoothly(self.programme, points, self._mixture, tolerance)
            if gap <= tolerance:  # No linear programme is needed.
                u = self._mixture @ points
                value, slope = objective.value(u), np.asarray(objective.gradient(u), dtype=float)
                constant = float(value - slope @ u)
                return MasterPoint(self._mixture, u, value - gap, slope, constant)
        for slack in slacks:
            point = self._cut_objective(points, tolerance, slack)
            if point is not None:
                return point
        raise RuntimeError("the pool has no mixture within the slack; call find_feasible before")

    def _cut_objective(self, points: Float, tolerance: float, slack: float) -> MasterPoint | None:
        """Add cuts until the model is exact enough, and no convex constraint is exceeded."""
        objective = self.programme.objective
        if not self._cuts:
            # Rules of a pool at which a function with kinks is cut at first: their linear pieces
            # often differ.
            pieces = points[:20] if objective.kind == "convex" else points[:0]
            for u in (points.mean(axis=0), *pieces):
                self._add_cut(u, points)
        best: MasterPoint | None = None
        best_value, allowed = np.inf, slack + FEASIBLE
        seen = np.zeros(len(points), dtype=bool)
        for _ in range(MAX_CUTS):
            point = self._solve(points, slack)
            if point is None:
                return None
            tried, seen = point, seen | (point.weight > 0)
            is_outside = any(phi.value(point.u) > allowed for phi in self.programme.convex)
            value = objective.value(point.u)
            if is_outside or (objective.kind == "smooth" and value - point.model > tolerance):
                # A cut at the optimum proves as much as many cuts around it.
                weight = seen / seen.sum()  # Of all rules that were mixed so far.
                if best is not None:
                    weight = (1 - START) * best.weight + START * weight
                weight = polish(self.programme, points, weight, slack)
                tried = point._replace(weight=weight, u=weight @ points)
                value = objective.value(tried.u)
            is_feasible = not is_outside or self.programme.violation(tried.u) <= allowed
            if is_feasible and value < best_value:
                best, best_value = tried, value
            if best is not None and best_value - point.model <= tolerance:
                return point._replace(weight=best.weight, u=best.u)
            inside = (tried.u, points.mean(axis=0), self.programme.middle)
            is_cut = is_outside and self._cut_constraints(point.u, inside, slack, allowed)
            for u in (point.u, tried.u):
                model = max(cut.value(u) for cut in self._cuts)
                if objective.value(u) - model > tolerance / 2:
                    is_cut |= self._add_cut(u, points)
            if not is_cut:
                break
        return best

    def find_least_violation(self, points: Float) -> MasterPoint | None:
        """Find a mixture without a violation, or the one whose largest violation is smallest.

        ``model`` is a lower bound of the violation, and up to rounding the violation itself where
        no mixture is feasible (phase 1). None where a constraint is infinite for all mixtures:
        constraints are infinite on sides of the box alone, and the mean of the pool lies on such
        a side only if the whole pool does.
        """
        violation = self.programme.violation
        weight = np.full(len(points), 1.0 / len(points))
        u = points.mean(axis=0)
        if not np.isfinite(violation(u)):
            return None
        if not self.programme.n_constraints:  # No constraint is violated where there is none.
            return MasterPoint(weight, u, 0.0, np.zeros(len(u)), 0.0)
        for _ in range(MAX_CUTS):
            found = self._solve(points, None)
            assert found is not None  # the slack is free
            point = found
            step = search_segment(violation, u, point.u)
            weight, u = (1 - step) * weight + step * point.weight, (1 - step) * u + step * point.u
            is_cut = violation(u) > point.model + FEASIBLE and self._cut_constraints(
                point.u, (u, points.mean(axis=0)), point.model, point.model + FEASIBLE
            )
            if not is_cut or violation(u) <= FEASIBLE:
                break
        return point._replace(weight=weight, u=u)

    def _add_cut(self, u: Float, points: Float) -> bool:
        """Add a cut of the objective at u, unless the programme has the same one."""
        # Every function should be finite in the mean of the pool, and in the middle of the box.
        centres = points.mean(axis=0), self.programme.middle
        cut = make_cut(self.programme.objective, u, centres)
        if cut is None:
            raise ValueError(
                f"the objective has no finite value and bounded gradient near u={u}; make it "
                "finite in the interior of the box from low to high"
            )
        same = [c for c in self._cuts if c.offset == cut.offset and (c.slope == cut.slope).all()]
        if not same:
            self._cuts.append(cut)
        return not same

    def _cut_constraints(
        self, u: Float, inside: tuple[Float, ...], slack: float, allowed: float
    ) -> bool:
        """Cut off u by every convex constraint that exceeds what is allowed; say whether one did.

        A cut at a point inside, or between u and that point, is deeper than one at u if it cuts
        off u ("in-out separation", Ben-Ameur and Neto, 2007).
        """
        added = False
        for phi in self.programme.convex:
            excess = phi.value(u) - slack
            if excess <= allowed - slack:
                continue
            # A cut away from u must take off this share of the violation at u.
            for at, share in ((inside[0], 0.1), ((u + inside[0]) / 2, 0.1), (u, 0.0)):
                cut = make_cut(phi, at, (*inside, self.programme.middle))
                if cut is not None and cut.value(u) - slack > share * min(excess, 1.0):
                    self._constraint_cuts.append(cut)
                    added = True
                    break
        return added

    def _solve(self, points: Float, slack: float | None) -> MasterPoint | None:
        """Solve the linear programme; with None as slack, the one of phase 1."""
        n, d = points.shape
        phase_one = slack is None
        cuts = [] if phase_one else self._cuts
        slope = np.array([c.slope for c in cuts]).reshape(len(cuts), d)
        offset = np.array([c.offset for c in cuts])
        rows = np.vstack([self.programme.A, *(c.slope[None] for c in self._constraint_cuts)])
        right = np.append(self.programme.b, [-c.offset for c in self._constraint_cuts])
        t = np.append(-np.ones(len(cuts)), np.full(len(right), -1.0 if phase_one else 0.0))
        found = solve_linear_programme(
            np.append(np.zeros(n), 1.0),
            np.hstack([np.vstack([slope, rows]) @ points.T, t[:, None]]),
            np.append(-offset, right + (slack or 0.0)),
            [(0, None)] * n + [(0 if phase_one else None, None)],
            A_eq=np.append(np.ones(n), 0.0)[None],
            b_eq=[1.0],
        )
        if found.x is None:
            return None
        weight = np.maximum(found.x[:n], 0.0)
        weight /= weight.sum()
        multiplier = np.maximum(-found.ineqlin.marginals, 0.0)
        alpha, mu = multiplier[: len(offset)], multiplier[len(offset) :]
        total = alpha.sum() if not phase_one else mu.sum()
        if total > 0:
            alpha, mu = alpha / total, mu / total
        return MasterPoint(
            weight=weight,
            u=weight @ points,
            model=float(found.x[n]),
            cost=alpha @ slope + mu @ rows,
            constant=float(alpha @ offset - mu @ right),
        )


def find_best_mixture(
    programme: MixtureProgramme,
    points: Float,
    start: Float | None = None,
    constraint_cuts: list[LinearFunction] | None = None,
) -> Float:
    """Find the probabilities of the best mixture of a pool, or of the least infeasible one.

    Convex objectives are minimised by cuts. A ratio takes Dinkelbach's steps, gamma <-
    psi(argmin (a - gamma b)^T u). Others descend from a mixture to the best one on the segment to
    the vertex of least slope, repeatedly.

    Parameters
    ----------
    programme : MixtureProgramme
        Objective of any kind, and constraints.
    points : ndarray of shape (n, d)
        Functionals of the rules.
    start : ndarray of shape (k,), default=None
        A feasible mixture of the first k rules, where the descent of kind ``"other"`` starts.
    constraint_cuts : list of LinearFunction, default=None
        Cuts of the convex constraints that are known, to which new ones are added.

    Returns
    -------
    ndarray of shape (n,)
        Probabilities, of which at most d + 1 are positive, and at most one more than there are
        active constraints where the objective is linear or a ratio.
    """
    objective = programme.objective
    cuts = [] if constraint_cuts is None else constraint_cuts
    least = Master(programme, cuts).find_least_violation(points)
    slack = np.inf if least is None else least.model
    if slack <= FEASIBLE:  # It is rounding.
        slack = 0.0

    def optimise(objective: Any) -> Float:
        """Minimise a convex objective; the result is a vertex if it is linear."""
        if not np.isfinite(slack):
            return np.full(len(points), 1 / len(points))
        if isinstance(objective, LinearFunction) and not programme.n_constraints:
            values = points @ objective.slope
            return np.asarray(np.eye(1, len(values), int(values.argmin()))[0], dtype=float)
        master = Master(programme.with_objective(objective), cuts)
        slacks = slack, slack + FEASIBLE, slack + 10 * FEASIBLE
        return master.optimise(points, FEASIBLE, slacks).weight

    if objective.kind not in ("ratio", "other"):
        return reduce_support(optimise(objective), points)
    weight = optimise(LinearFunction(np.zeros(programme.size))) if start is None else start
    weight = np.append(weight, np.zeros(len(points) - len(weight)))
    # Dinkelbach's steps converge superlinearly, line searches linearly.
    for _ in range(100):
        u = weight @ points
        if objective.kind == "ratio":
            target = optimise(make_level(objective, objective.value(u)))
            if not objective.value(target @ points) < objective.value(u):
                break
            weight = target
            continue
        slope = np.asarray(objective.gradient(u), dtype=float)
        target = optimise(LinearFunction(slope))
        step = search_segment(objective.value, u, target @ points)
        if slope @ (u - target @ points) <= FEASIBLE or step == 0.0:
            break
        weight = reduce_support((1 - step) * weight + step * target, points)
        weight = polish(programme, points, weight, slack)
    return reduce_support(weight, points)


def reduce_support(weight: Float, points: Float) -> Float:
    """Find a mixture of the same u with at most d + 1 rules (Carathéodory's theorem)."""
    chosen = np.flatnonzero(weight)
    if len(chosen) <= points.shape[1] + 1:
        return weight
    found = solve_linear_programme(
        np.arange(len(chosen), dtype=float),
        None,
        None,
        (0, None),
        A_eq=np.vstack([points[chosen].T, np.ones(len(chosen))]),
        b_eq=np.append(weight[chosen] @ points[chosen], weight.sum()),
    )
    if found.x is None:
        return weight
    few = np.zeros_like(weight)
    few[chosen] = np.maximum(found.x, 0.0)
    return np.asarray(few / few.sum(), dtype=float)


def make_level(objective: Any, gamma: float) -> LinearFunction:
    r"""Make :math:`(a - \gamma b)^T u + a_0 - \gamma b_0`, whose sign is that of psi - gamma."""
    a, a0, b, b0 = objective.ratio()
    return LinearFunction(np.asarray(a - gamma * b, dtype=float), float(a0 - gamma * b0))


class Search:
    """Calls the oracle of one programme, and keeps the pool of rules.

    Parameters
    ----------
    programme : MixtureProgramme
        What is minimised.
    oracle : callable
        Where rules come from.
    max_calls : int
        Calls after which :attr:`is_exhausted` is true.
    observe : callable, default=None
        Sees the current mixture before each call, and may end the search.
    known : sequence of (rule, ndarray), default=()
        Rules of earlier searches, with their functionals. The oracle may be inexact: the answer to
        a call is the best of its rule and of these, the cheapest of which join the pool.
    start : sequence of (rule, ndarray), default=()
        Rules that the pool begins with, and their functionals.
    """

    def __init__(
        self,
        programme: MixtureProgramme,
        oracle: LinearOracle,
        max_calls: int,
        observe: Observe | None = None,
        known: Sequence[tuple[Any, Float]] = (),
        start: Iterable[tuple[Any, Float]] = (),
    ) -> None:
        self.programme = programme
        self.max_calls = max_calls
        self.rules: list[Any] = []
        self.bound = -np.inf
        self.constraint_cuts: list[LinearFunction] = []
        self.history: list[SearchStep] = []
        self._oracle, self._observe, self._known = oracle, observe, known
        self._known_points = np.array([u for _, u in known])
        self._u: Float | None = None  # of the current mixture
        self._step = SearchStep(np.inf, -np.inf, np.inf, 0.0)
        self._points: list[Float] = []
        self._index: dict[bytes, int] = {}
        self._start = time.perf_counter()
        for rule, u in start:
            self.add(rule, u)

    @property
    def points(self) -> Float:
        """Functionals of the rules found, of shape (n, d)."""
        return np.array(self._points).reshape(len(self._points), self.programme.size)

    @property
    def n_left(self) -> int:
        """Number of calls that are left."""
        return max(self.max_calls - len(self.history), 0)

    @property
    def is_exhausted(self) -> bool:
        """Whether no call is left."""
        return self.n_left == 0

    def call(self, cost: Float) -> tuple[int, Float]:
        """Find the rule of smallest cost; give its position in the pool and its functionals."""
        cost = np.asarray(cost, dtype=float)
        if np.isnan(cost).any():
            raise ValueError(
                f"the gradient of the objective or of a constraint is {cost}, which holds NaN; "
                "return finite numbers for every u between low and high"
            )
        largest = np.abs(cost).max(initial=0.0)
        if np.isinf(largest):
            cost = np.where(np.isinf(cost), np.sign(cost), 0.0)
        elif largest > 0:
            cost = cost / largest  # Only the direction counts.
        # Show the current mixture, if there is one, and ask whether the search is over.
        if (
            self._observe is not None
            and self._u is not None
            and self._observe(self._step, self._u)
        ):
            self.max_calls = min(self.max_calls, len(self.history) + 1)
        rule, u = self._oracle(cost)
        u = np.asarray(u, dtype=float)
        cheapest: list[int] = []  # Known rules that join the pool.
        if len(self._known):
            costs = self._known_points @ cost
            cheapest = np.argsort(costs, kind="stable")[:20].tolist()
            if costs[cheapest[0]] < cost @ u:
                rule, u = self._known[cheapest[0]]
        position = self.add(rule, u)
        for i in cheapest:
            self.add(*self._known[i])
        self._step = replace(self._step, seconds=time.perf_counter() - self._start)
        self.history.append(self._step)
        return position, u

    def add(self, rule: Any, u: Float) -> int:
        """Add a rule to the pool unless the pool has it, and give its position."""
        # Adding zero makes -0.0 and 0.0 the same bytes.
        # Two rules whose functionals agree in this many digits are one rule.
        key = (np.round(u, 12) + 0.0).tobytes()
        if key not in self._index:
            self._index[key] = len(self._points)
            self.rules.append(rule)
            self._points.append(u)
        return self._index[key]

    def note(self, u: Float, bound: float = -np.inf) -> None:
        """Write into the last step, if there is one, what the mixture and the bound are worth."""
        self._u = u
        self.bound = max(self.bound, bound)
        self._step = SearchStep(
            self.programme.objective.value(u),
            self.bound,
            self.programme.violation(u),
            time.perf_counter() - self._start,
        )
        if self.history:
            self.history[-1] = self._step

    def find_best_mixture(self, start: Float | None = None) -> Float:
        """Find the best mixture of the pool, by a descent from `start` for kind ``"other"``."""
        return find_best_mixture(self.programme, self.points, start, self.constraint_cuts)

    def finish(self, weight: Float, status: Status) -> RuleMixture:
        """Make the solution of a mixture of the pool, `weight` of shape (n,) or shorter."""
        # Weights of a vertex of a linear programme are zero or far above this.
        chosen = np.flatnonzero(weight > 1e-12)
        probability = weight[chosen] / weight[chosen].sum()
        points = self.points
        u = probability @ points[chosen]
        return RuleMixture(
            rules=tuple(self.rules[i] for i in chosen),
            probability=probability,
            u=u,
            value=self.programme.objective.value(u),
            bound=self.bound,
            violation=self.programme.violation(u),
            status=status,
            history=tuple(self.history),
            pool=points,
        )
