r"""CBPR, the constrained Bregman proximal regularised method, and the choice between solvers.

Algorithm 2 (= 4) of Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained
Learning" (2023), for ``min f(x) s.t. g_j(x) - h_j(x) <= eta_j`` with f, g_j, h_j convex in the
scores and h_j smooth: the constraint is a difference of convex functions, as the difference of two
groups' mean losses is. From a feasible :math:`x^0`, outer iteration t solves

.. math::

   x^{t+1} \approx \arg\min f(x) + L D(x, x^t) \quad \text{s.t.} \quad
   g_j(x) - h_j(x) - \eta_j + L D(x, x^t) \le 0 .

With :math:`L > \rho = \max_j L_{h_j}` every function here is convex, and strongly so: ABPP
solves it. In its Lagrangian the coefficient of :math:`D(x, x^t)` is
:math:`L (1 + \sum_j y_j)`.

**The choice of L.** Theorem 2 bounds the outer iterations by a multiple of
:math:`L^2 / (L - \rho)`, which is least at :math:`L = 2 \rho`: the default, with rho from the
cells' fractions of the weight.

**Exact learners: the dual of a subproblem.** The Lagrangian of a subproblem is strongly convex in
the scores, nearly with one constant :math:`h = L (1 + \sum_j y_j)`, so that the inner proximal
term of ABPP is not needed (:math:`\tau = \infty`) and the dual function has the gradient
:math:`G = g + L D` and the curvature :math:`S = J J' / h`, with J the derivatives of G in
coordinates that are orthonormal in the distance. A dual step maximises this model,

.. math::

   y \leftarrow \arg\max_{v \ge 0} \; \langle G, v - y \rangle - \tfrac12 (v - y)' S (v - y) ,

a non-negative least squares problem of as many unknowns as there are constraints. It is nearly a
Newton step: a few of them solve a subproblem, from the multipliers of the one before. Where G
turns out more curved along a step than S says, S is doubled until the model bounds it again.

**0-1 rates of exact learners.** The subproblem holds a rate's proxy, and multipliers move on its
exact value, which the added distance is not part of: where the proxy ends near its own least
value, the rate and L D may together stay above the bound for any multiplier. A rate jumps where S
is the curvature of its proxy, so that S, once doubled, stays so until the subproblem ends, and a
step at most doubles :math:`1 + \sum_j y_j`, which flat proxies would send to infinity.

**When a subproblem is solved.** The tolerance is relative to the distance moved. With a fraction
:math:`\kappa` (`inner_tol`) a subproblem is solved when :math:`G_j \le \kappa L D` and
:math:`\sum_j y_j |G_j| \le \kappa L D (1 + \sum_j y_j)`, where D is the distance to :math:`x^t`.
Then :math:`g_j \le -(1 - \kappa) L D`: every outer iterate is strictly feasible (Lemma 6). The
Lagrangian being strongly convex with a constant of :math:`\frac{L}{2} (1 + \sum_j y_j)` or more,

.. math:: f(x^{t+1}) \le f(x^t) - L D - (\tfrac12 - \kappa) L D (1 + \sum_j y_j),

so that f falls by L D or more, whatever the subproblem's error. Summed over t, after
:math:`T = (f(x^0) - \inf f) \max(2 L, 1 + \kappa) / \epsilon^2` outer iterations the residual has
been below :math:`\epsilon`.

**Stationarity.** At the solution of a subproblem the gradient of f + <y, g> is
:math:`-L (1 + \sum_j y_j)(x^{t+1} - x^t)`. Divided by :math:`1 + \sum_j y_j`, which makes
multipliers of a Fritz John point of it (Definition 7), its norm is :math:`L \sqrt{2 D(x^{t+1},
x^t)}`; the residual is the larger of that and of :math:`\sqrt{y_j |g_j| / (1 + \sum_j y_j)}` (the
paper prints a derivative under that root).

**Boosters.** An ensemble has a budget of rounds, and L D on the objective, convex as it is, would
spend it on standing still. The lazy form convexifies the constraints only, each cell by as much as
its own concave part at the current multipliers needs (twice that, as above). Multipliers move on
the exact rates, without the added distance, and in one sequence: a restart would forget the change
of the rates, whose extrapolation damps them.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any, ClassVar

import numpy as np
from scipy.linalg import solve_triangular
from scipy.optimize import nnls

from gbm_constrained._typing import Array, Float
from gbm_constrained.data.validation import check_integer
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.solvers.abpp import ABPP, ABPPSolver
from gbm_constrained.solvers.base import Solver, SolverMethod, check_positive

FEASIBLE = 1e-9  # Largest violation of a start that counts as feasible.


@dataclass
class CBPRSolver(ABPPSolver):
    """Outer loop over convexified problems.

    The other parameters are those of :class:`ABPPSolver`. Exact learners need no step sizes.

    Parameters
    ----------
    strength : L, the weight of the distance to the last outer iterate. By default twice the
        concavity rho of the constraints, or the curvature of the loss at a constant model where
        they have none.
    inner_iterations : Largest number of inner iterations: for boosters 10, for exact learners 100,
        which mean losses do not need.
    inner_tol : Accuracy kappa of a subproblem of an exact learner, relative to the distance moved.
    project : Function that maps derivatives in the scores, times W, to coordinates of a learner
        that are orthonormal in the distance; by default those of all scores, an upper bound.

    Attributes
    ----------
    residuals : Fritz John residual after each outer iteration; see the module.
    """

    strength: float | None = None
    inner_iterations: int | None = None
    inner_tol: float = 0.1
    project: Callable[[Array], Float] | None = None
    residuals: list[float] = field(default_factory=list, init=False)

    def __post_init__(self) -> None:
        super().__post_init__()
        lag = self.lagrangian
        if self.strength is None:
            each = np.eye(len(lag.constraints))
            rho = max((float(lag.constants.concavity(y).max()) for y in each), default=0.0)
            self.strength = 2.0 * rho if rho > 0 else lag.constants.constant_curvature
        if self.inner_iterations is None:
            self.inner_iterations = 10 if self.lazy else 100
        self._is_rate = lag.constraints.has_rates
        self._outer_centre: Array | None = None
        self._inner = 0
        self._factor = 1.0  # of S, the curvature of the dual function of the subproblem
        self._newton_step: tuple[Float, Float, Float] | None = None

    def change_step_sizes(self) -> None:
        """Change the step sizes of a booster; those of Newton steps are set by the curvature."""
        if self.lazy:
            super().change_step_sizes()

    def ascend(self, multipliers: Float, g: Float, change: Float) -> Float:
        """Take a dual step of ABPP for boosters, and a Newton step for exact learners."""
        if self.lazy:
            return super().ascend(multipliers, g, change)
        if g.size == 0:
            return multipliers
        has_rates = self._is_rate.any()
        # Double S where the last step was more curved than the model, and halve it otherwise.
        if self._newton_step is not None:
            step, g_before, model_before = self._newton_step
            if step @ (g_before - g) > 1.5 * (step @ model_before @ step):
                self._factor *= 2.0
            elif not has_rates:  # A 0-1 rate jumps where S is the curvature of its proxy.
                self._factor = max(self._factor / 2.0, 1.0)
        y, S = multipliers, self._factor * self._curvature
        # With S = L L', the model is largest where ||L' v - L' y - L^-1 g|| is least, v >= 0.
        root = np.linalg.cholesky(S)
        target = root.T @ y + solve_triangular(root, g, lower=True)
        ahead: Float = nnls(root.T, target)[0]
        grown, most = float(ahead.sum() - y.sum()), 1.0 + float(y.sum())
        if has_rates and grown > most:
            ahead = y + (ahead - y) * most / grown
        self._newton_step = ahead - y, g, S
        return ahead

    def begin_iteration(self, point: Point) -> None:
        """Start an inner iteration, and a new outer one if the subproblem is solved."""
        statistics, residual = point.statistics(), np.nan
        constraints, y = self.lagrangian.constraints, self.multipliers
        g = constraints.rates(statistics) - self.bounds
        if self._outer_centre is None:
            relative = g / self.lagrangian.constants.units.rows
            if not self.lazy and relative.max(initial=0.0) > FEASIBLE:
                raise ValueError(
                    f"CBPR needs a feasible start, and {constraints.rows[int(g.argmax())]} is "
                    f"violated by {g.max():.3g}: start from scores of zero, under which every "
                    f"mean loss of probabilities is log(n_classes), or from a model that meets "
                    f"the constraints."
                )
        elif self._is_solved(point, g):
            assert self.strength is not None
            moved = self.strength * np.sqrt(
                2.0 * self.lagrangian.bregman(point.margin, self._outer_centre)
            )
            slack = np.sqrt(np.abs(y * g) / (1.0 + y.sum())).max(initial=0.0)
            residual = float(max(moved, slack))
            self.residuals.append(residual)
        if self._outer_centre is None or not np.isnan(residual):
            self._outer_centre, self._inner = point.margin.copy(), 0
            self._factor, self._newton_step = 1.0, None
        self._inner += 1
        added: float | Float = 0.0
        if not self.lazy:
            added = np.where(self._is_rate, 0.0, self._distance(point))
            self._curvature = self._find_curvature(point)
        self.take_dual_step(point, statistics, added, residual)

    def _distance(self, point: Point) -> float:
        """Compute ``L D(., x^t)``, which is added to the objective and to every constraint."""
        assert self._outer_centre is not None
        assert self.strength is not None
        return self.strength * self.lagrangian.bregman(point.margin, self._outer_centre)

    def _find_curvature(self, point: Point) -> Float:
        """Compute S, the curvature of the subproblem's dual function."""
        assert self.strength is not None
        y = self.multipliers
        if y.size == 0:
            return np.zeros((0, 0))
        none = np.zeros_like(y)
        origin = point.gradient(none)[0].copy()
        pull = point.gradient(none, self._outer_centre, self.strength)[0] - origin
        project, rows = self.project or self._orthonormal, self.lagrangian.rows
        J = np.array([project(point.gradient(e)[0] - origin + pull) for e in np.eye(y.size)])
        # A learner's coordinates are the same on all machines, and scores belong to one of them.
        gram = rows.gram(J) if self.project is None else (J := rows.reduce_sum(J)) @ J.T
        S = gram / (self.strength * (1.0 + y.sum()))
        # Equal rows of constraints make S singular, so that a millionth of its mean eigenvalue is
        # added, or 1e-12 where there is no curvature.
        return np.asarray(S + max(1e-6 * float(np.trace(S)) / y.size, 1e-12) * np.eye(y.size))

    def _orthonormal(self, rows: Array) -> Float:
        """Scale derivatives in all scores to coordinates that are orthonormal in the distance."""
        lag = self.lagrangian
        weight = lag.rows.apply_weights(np.ones(lag.n_samples), slice(None)) * lag.total_weight
        scale = np.where(weight > 0, weight, np.inf)[:, None] ** -0.5
        return np.asarray((rows.reshape(lag.n_samples, lag.rows.n_scores) * scale).ravel())

    def _is_solved(self, point: Point, g: Float) -> bool:
        """Say whether a subproblem is solved at a point that violates constraints by `g`."""
        assert self.inner_iterations is not None
        if self._inner >= self.inner_iterations:
            return True
        if self.lazy:
            return False
        y, moved = self.multipliers, self._distance(point)
        G = g + np.where(self._is_rate, 0.0, moved)
        rounding = 1e-13
        left = self.inner_tol * moved + rounding
        violation = G - np.where(self._is_rate, rounding, left)
        return bool((violation <= 0.0).all() and y @ np.abs(G) <= left * (1.0 + y.sum()))

    def find_proximal_term(self) -> tuple[Array | None, float | Float]:
        """Find the proximal terms around the last inner and the last outer iterate, as one."""
        assert self._outer_centre is not None
        if not self.lazy:
            assert self.strength is not None
            return self._outer_centre, self.strength * (1.0 + float(self.multipliers.sum()))
        inner = self.centre
        assert inner is not None
        total = outer = 2.0 * self.lagrangian.constants.concavity(self.multipliers)
        if self.multipliers.any():  # The inner proximal term of a booster is that of ABPP.
            total = outer + self.compute_proximal_weights(1.0 / self.tau_k)
        if not np.any(total):
            return None, 0.0
        share = np.divide(outer, total, out=np.zeros(np.shape(total)), where=np.asarray(total) > 0)
        if np.ndim(share):
            share = self.lagrangian.per_row(share)
        moved = np.multiply(self._outer_centre - inner, share, dtype=inner.dtype)
        return inner + moved, total


@dataclass(eq=False, repr=False, kw_only=True)
class CBPR(SolverMethod):
    """Options of CBPR, the method for differences of mean losses, which are not convex.

    Parameters
    ----------
    strength : float, default=None
        L, the weight of the distance to the last outer iterate. By default twice the concavity
        of the constraints, or the curvature of the loss at a constant model where they have none.
    inner_iterations : int, default=None
        Most iterations in an outer one: by default 10 for boosters and 100 for exact learners.
    inner_tol : float, default=0.1
        Accuracy of a subproblem of an exact learner, relative to the distance that it moved.
    tau, sigma, mu, proxy, rounds_per_iteration, outlier_clip, initial_multipliers : default=...
        As in :class:`ABPP`.
    """

    kind: ClassVar[type[Any]] = CBPRSolver
    strength: float | None = None
    inner_iterations: int | None = None
    inner_tol: float = 0.1

    def check(self) -> None:
        """Refuse options of a wrong type or value."""
        super().check()
        for name in ("strength", "inner_tol"):
            check_positive(name, getattr(self, name), is_optional=name == "strength")
        if self.inner_iterations is not None:
            check_integer("inner_iterations", self.inner_iterations, 1)

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why CBPR has no such iterate; None where it has."""
        if constraints.pair_blocks:
            of_pairs = next(c for c in constraints.constraints if "pair" in c.kinds)
            return (
                f"CBPR is for mean losses and rates of decisions, and {of_pairs} compares scores: "
                f"use solver='abpp', without differences of mean losses beside it."
            )
        if constraints.curves.items:
            return (
                "CBPR is for linear functions of rates and mean losses, and a constraint is none: "
                "use solver='abpp', without differences of mean losses beside it."
            )
        if iterate != "ergodic":
            return None
        return (
            "iterate='ergodic' is an average that means nothing for constraints that are not "
            "convex, which CBPR is for: use iterate='last'."
        )


CANDIDATES: tuple[type[SolverMethod], ...] = (ABPP, CBPR)


@dataclass(eq=False, repr=False, kw_only=True)
class AutoSolver(SolverMethod):
    """Options of the method that ``solver="auto"`` chooses by the constraints.

    CBPR is taken for differences of mean losses, and ABPP for all other constraints. The sigmoid
    proxy of a rate is not convex either. Its curvature, 0.06 per unit of a multiplier, is less
    than that of ABPP's own proximal term, which makes the subproblems convex.

    Parameters
    ----------
    tau, sigma, mu, proxy, rounds_per_iteration, outlier_clip, initial_multipliers : default=...
        As in :class:`ABPP`.
    """

    def begin(self, lagrangian: Lagrangian, **running: Any) -> Solver:
        """Make the solver of a problem; `running` are parameters of the solver that is chosen."""
        return self.choose(lagrangian.constraints).begin(lagrangian, **running)

    def supports(self, constraints: LinearConstraints, iterate: str = "last") -> str | None:
        """Explain why no method covers a problem; None where one does."""
        return self.choose(constraints, iterate).supports(constraints, iterate)

    def choose(self, constraints: LinearConstraints, iterate: str = "last") -> SolverMethod:
        """Choose the first method whose theory covers a problem, or the last one."""
        methods = [candidate(**self.get_params()) for candidate in CANDIDATES]
        covering = (one for one in methods if one.supports(constraints, iterate) is None)
        return next(covering, methods[-1])

    @property
    def abpp(self) -> ABPP:
        """ABPP with these options."""
        return ABPP(**self.get_params())
