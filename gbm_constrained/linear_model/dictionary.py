r"""A fixed dictionary of weak learners, re-weighted under constraints.

Scores are linear in the weights, :math:`F(x) = \tilde F(A) x + F_0`, with the score matrix
:math:`\tilde F(A)` given (Lin and Deng, 2023, section 5), so that the problem

.. math:: \min_x \; f(F(x)) + \tfrac{\lambda}{2} \|x\|^2 \quad \text{s.t.} \quad g(F(x)) \le 0

is convex for mean losses and every subproblem of ABPP is solved to machine precision: nothing
separates the iterates from the theory. The Bregman distance is one of two,

- ``"scores"``: :math:`D = \frac{1}{2W} \sum_i w_i \|F_i(x) - F_i(x')\|^2`, the paper's distance of
  GBMs. It ignores how the dictionary is written: any invertible change of weak learners gives
  the same scores.
- ``"weights"``: :math:`D = \frac12 \|x - x'\|^2`, the paper's distance of linear classifiers.

**Lipschitz constants in the distance of weights.** Constraint j is a mean of row kernels with
row weights :math:`r_{ji} \ge 0`, Lipschitz constants included, so with :math:`S_i` the rows of the
score matrix that belong to row i, and by Cauchy and Schwarz,

.. math::

   |Dg_j(x)[v]|^2 \le \Big( \sum_i r_{ji} \|S_i v\| \Big)^2 \le v' \bar M_j v, \qquad
   \bar M_j = \Big( \sum_i r_{ji} \Big) \sum_i r_{ji} S_i' S_i ,

hence :math:`L_j^2 = \lambda_{\max}(\bar M_j)`, and :math:`L^2 = \lambda_{\max}(\sum_j \bar M_j /
L_j^2)` of all constraints together, each scaled to one (see :mod:`gbm_constrained.solvers.abpp`).
Equality holds for a single row, and for rows that are all alike.

**Strong convexity.** With a ridge :math:`\lambda` on every weight, :math:`\mu = \lambda` in the
distance of weights, and :math:`\mu = \lambda / \lambda_{\max}(\frac1W \sum_i w_i S_i' S_i)` in
the distance of scores; with a free weight, zero.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg, svds

from gbm_constrained._typing import Array, Float
from gbm_constrained.problem.lagrangian import Lagrangian, Point
from gbm_constrained.solvers.abpp import ABPPSolver
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.solvers.cbpr import CBPRSolver
from gbm_constrained.solvers.outer_loop import OuterLoop

DENSE = 1500  # Weights up to which second moments are factorised.
SLOPE_FLOOR = 0.05  # Smallest slope of a mean loss that a dual step trusts.
NEAR = 1e-6  # Norm of the gradient from which Newton steps are taken.
EXACT = 1e-12  # Norm of the gradient, in the subproblem's own coordinates, that is left.


@dataclass(frozen=True)
class Solution:
    """State after an outer iteration.

    Parameters
    ----------
    weights : ndarray like ``learner.shape``
        Last iterate x_{k+1}.
    multipliers : ndarray of shape (m,)
        y_{k+1}.
    average_weights, average_multipliers : ndarray
        Ergodic iterates, ``sum_k t_k x_{k+1} / sum_k t_k`` and the same of y; of CBPR the last.
    residual : float
        The larger of the two parts of the optimality of the last iterate: ``|max(g_j, -y_j)|``
        (feasibility and complementarity) and ``sqrt(2 D(x_{k+1}, x_k)) / tau_k`` (stationarity).
        Of CBPR, the Fritz John residual of the last outer iteration.
    converged : bool
        Whether the residual is below the tolerance.
    history : list of Record
        One entry per outer iteration, each of the state x_k it began from.
    """

    weights: Float
    multipliers: Float
    average_weights: Float
    average_multipliers: Float
    residual: float
    converged: bool
    history: list[Record]


class DictionaryLearner:
    """Weights of a fixed set of weak learners.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the rows of the score matrix, in float64.
    scores : array or sparse array of shape (n_samples, N) or (n_samples * K, N)
        Scores of the N weak learners. One row per sample gives the margin of a binary problem, or
        a basis that all K > 2 classes share, with weights of shape (N, K). K rows per sample
        (row ``i * K + k`` for class k of sample i) let each weak learner act on its own classes,
        with weights of shape (N,).
    offset : array-like, default=0
        Fixed part of the scores, broadcast against (n_samples,) or (n_samples, K).
    l2 : float, default=0
        Ridge penalty ``l2 / 2 ||x||^2`` of the objective, which is a mean over rows.
    penalised : bool array of shape (N,), default=None
        The weak learners it falls on; all by default.
    metric : {"scores", "weights"}, default="scores"
        What the Bregman distance is taken between.

    Attributes
    ----------
    shape : tuple of int
        Shape of the weights.
    """

    def __init__(
        self,
        lagrangian: Lagrangian,
        scores: Any,
        *,
        offset: ArrayLike = 0.0,
        l2: float = 0.0,
        penalised: ArrayLike | None = None,
        metric: Literal["scores", "weights"] = "scores",
    ) -> None:
        n, n_classes = lagrangian.n_samples, lagrangian.n_classes
        heights = [n] if n_classes == 2 else [n, n * n_classes]
        if scores.ndim != 2 or scores.shape[0] not in heights:
            raise ValueError(
                f"scores must have {' or '.join(map(str, heights))} rows for {n} samples of "
                f"{n_classes} classes, got shape {scores.shape}."
            )
        if metric not in ("scores", "weights"):
            raise ValueError(f"metric must be 'scores' or 'weights', got {metric!r}.")
        self.lagrangian = lagrangian
        self.metric = metric
        self.l2 = l2
        self._sparse = bool(sparse.issparse(scores))
        as_array: Any = sparse.csr_array if self._sparse else np.asarray
        self._scores: Any = as_array(scores, dtype=np.float64)
        N = scores.shape[1]
        self.shape = (N, n_classes) if n_classes > 2 and scores.shape[0] == n else (N,)
        self._margin_shape = (n,) if n_classes == 2 else (n, n_classes)
        self.offset = np.asarray(offset, dtype=np.float64)
        on = np.ones(N, dtype=bool) if penalised is None else np.asarray(penalised, dtype=bool)
        self._ridge = (l2 * on).reshape(-1, *[1] * (len(self.shape) - 1))
        self._row_weight = lagrangian._weighted(np.ones(n), slice(None))

    def margin(self, weights: Float) -> Float:
        """Scores of the training rows at given weights.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        ndarray of shape (n_samples,) or (n_samples, n_classes)
        """
        return np.asarray((self._scores @ weights).reshape(self._margin_shape) + self.offset)

    def objective(self, weights: Float) -> float:
        """Objective f at given weights: weighted mean cross-entropy plus ridge.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        float
        """
        fit = self.lagrangian.objective(self.lagrangian.at(self.margin(weights)).statistics())
        return fit + float((self._ridge * weights**2).sum()) / 2

    def violations(self, weights: Float) -> Float:
        """Constraints g at given weights: rate minus bound.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the weak learners.

        Returns
        -------
        ndarray of shape (m,)
        """
        statistics = self.lagrangian.at(self.margin(weights)).statistics()
        return self.lagrangian.constraints.violations(statistics)

    def _adjoint(self, rows: Array) -> Float:
        """Pull per-row derivatives, which the Lagrangian multiplies by W, back to weights."""
        pulled = self._scores.T @ rows.reshape(-1, *self.shape[1:])
        return np.asarray(pulled / self.lagrangian.total_weight)

    # -- constants of the problem ---------------------------------------------------------------

    def _rooted(self, row_weight: Float) -> Any:
        """Score matrix with row i multiplied by the root of its weight."""
        root = np.sqrt(np.repeat(row_weight, self._scores.shape[0] // row_weight.size))
        multiply = self._scores.multiply if self._sparse else self._scores.__mul__
        return multiply(root[:, None])

    def _norm(self, row_weight: Float) -> float:
        """Largest eigenvalue of ``sum_i row_weight_i S_i' S_i``."""
        rooted = self._rooted(row_weight)
        if rooted.shape[1] > DENSE:
            start = np.ones(min(rooted.shape))
            return float(svds(rooted, k=1, v0=start, return_singular_vectors=False)[0] ** 2)
        return float(np.linalg.eigvalsh(self._second_moment(rooted))[-1])

    def _second_moment(self, rooted: Any) -> Float:
        moment = rooted.T @ rooted
        return np.asarray(moment.toarray() if self._sparse else moment)

    @cached_property
    def smoothness(self) -> float:
        """Largest eigenvalue of the mean second moment of scores: 2 D = it, for a unit change."""
        return self._norm(self._row_weight / self._row_weight.sum())

    @property
    def mu(self) -> float:
        """Strong convexity of the objective relative to the Bregman distance."""
        if self.l2 == 0 or (self._ridge == 0).any():
            return 0.0
        return self.l2 if self.metric == "weights" else self.l2 / self.smoothness

    @cached_property
    def lipschitz(self) -> tuple[Float, float]:
        """Constants L_j of the constraints, and L of all of them scaled to one.

        For the distance of weights; in scores they follow from the cells alone.
        """
        lag = self.lagrangian
        weight = lag.cell_weight
        reaction = lag.sensitivities.toarray() * np.sqrt(weight / lag.total_weight)  # to fractions
        per_row = np.divide(reaction, weight, out=np.zeros_like(reaction), where=weight > 0)
        r = np.zeros((len(lag.constraints), lag.n_samples))
        for view in lag.cells.views:  # a constraint lives in one of them
            r += per_row[:, view.codes]
        r *= self._row_weight * reaction.sum(axis=1, keepdims=True)
        squares = np.array([self._norm(r_j) for r_j in r])
        inverse = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
        together = self._norm(inverse @ r)
        return np.sqrt(squares), float(np.sqrt(max(together, 1.0)))  # 0 without constraints

    def _observed_lipschitz(self, point: Point) -> Float:
        """Constants L_j in scores, with root mean square slopes in the place of largest ones."""
        lag = self.lagrangian
        rows, _ = point.gradient(np.zeros(len(lag.constraints)))
        squares = (rows.reshape(lag.n_samples, -1) ** 2).sum(axis=1)
        used = self._row_weight > 0
        per_row = np.divide(squares, self._row_weight, out=np.zeros_like(squares), where=used)
        total = lag.cells.total(per_row)
        slope = np.sqrt(np.divide(total, lag.cell_weight, out=total, where=lag.cell_weight > 0))
        rates, losses = lag.reactions
        reaction = rates + losses @ sparse.diags_array(np.maximum(slope, SLOPE_FLOOR))
        return np.asarray(sparse.linalg.norm(reaction, axis=1))

    # -- the loop ---------------------------------------------------------------------------------

    def solver(self, kind: type[OuterLoop] = ABPPSolver, **options: Any) -> OuterLoop:
        """ABPP (or CBPR) with the constants of this learner.

        tau defaults to a quarter of what boosters take, 1 for a binary margin and 1/2 for softmax
        scores: the smaller tau, the larger dual steps may be, and a subproblem that is solved
        exactly costs the same (measured: a third of the iterations). In the distance of weights
        it is divided by the largest eigenvalue of the scores' second moment.

        Parameters
        ----------
        kind : {ABPPSolver, CBPRSolver}, default=ABPPSolver
            The outer loop.
        **options
            Its parameters.

        Returns
        -------
        ABPPSolver or CBPRSolver
        """
        if kind is CBPRSolver and self.metric == "weights":
            raise ValueError(
                "CBPR needs the distance of scores: make the learner metric='scores'."
            )
        options.setdefault("mu", self.mu)
        if options.get("tau") is None:
            options["tau"] = 1.0 if len(self._margin_shape) == 1 else 0.5
            options["tau"] /= self.smoothness if self.metric == "weights" else 1.0
        if self.metric == "weights":
            own, together = self.lipschitz
            if options.get("sigma") is None:
                options["sigma"] = 1.0 / (options["tau"] * together**2)
            options.setdefault("lipschitz", own)
        return kind(self.lagrangian, **options)

    def solve(
        self,
        n_iterations: int = 1000,
        tol: float = 1e-6,
        start: Float | None = None,
        solver: OuterLoop | None = None,
        **options: Any,
    ) -> Solution:
        """Run ABPP until the residual is at most `tol`, or for `n_iterations` iterations.

        Parameters
        ----------
        n_iterations : int, default=1000
            Most outer iterations.
        tol : float, default=1e-6
            Residual at which to stop; see :class:`Solution`.
        start : ndarray like ``shape``, default=None
            Initial weights; zeros by default.
        solver : ABPPSolver or CBPRSolver, default=None
            The solver itself (see :meth:`solver`), in the place of its options.
        **options
            Parameters of :class:`~gbm_constrained.solvers.ABPPSolver`.
        """
        for solution in self.path(n_iterations, tol, start, solver, **options):
            if solution.converged:
                break
        return solution

    def path(
        self,
        n_iterations: int,
        tol: float = 0.0,
        start: Float | None = None,
        solver: OuterLoop | None = None,
        adaptive: bool = False,
        is_over: Callable[[int], bool] = lambda n_iterations: False,
        **options: Any,
    ) -> Iterator[Solution]:
        """Yield the state after each outer iteration.

        Parameters
        ----------
        n_iterations : int
            Most outer iterations.
        tol : float, default=0
            Residual at which to stop; see :class:`Solution`.
        start : ndarray like ``shape``, default=None
            Initial weights; zeros by default.
        solver : ABPPSolver or CBPRSolver, default=None
            The solver itself, in the place of its options. Of CBPR only the outer iterates are
            yielded, the start first, and `n_iterations` counts the inner ones.
        adaptive : bool, default=False
            Whether Lipschitz constants are the largest that were observed on the path, instead
            of bounds for any scores. Rows that are right hardly react, so that dual steps grow by
            the square of that; the theorem no longer speaks of them. In the distance of scores.
        is_over : callable, default=never
            Whether to stop after so many iterations; asked in each, the inner ones of CBPR too.
        **options
            Parameters of :class:`~gbm_constrained.solvers.ABPPSolver`.

        Yields
        ------
        Solution
        """
        if n_iterations < 1:
            raise ValueError(f"n_iterations must be at least 1, got {n_iterations}.")
        lag, solver = self.lagrangian, solver or self.solver(**options)
        if isinstance(solver, CBPRSolver):
            yield from self._outer_path(n_iterations, tol, start, solver, is_over)
            return
        assert isinstance(solver, ABPPSolver)
        x = np.zeros(self.shape) if start is None else np.array(start, dtype=np.float64)
        x_sum, y_sum, total = np.zeros(self.shape), np.zeros(len(lag.constraints)), 0.0
        slopes = np.zeros(len(lag.constraints))
        for k in range(n_iterations):
            point = lag.at(self.margin(x))
            if adaptive:
                slopes = np.maximum(slopes, self._observed_lipschitz(point))
                solver.dual.lipschitz = slopes
            solver.begin_iteration(point)
            previous, x = x, self._proximal_step(solver, x)
            y, t = solver.multipliers, solver.ergodic_weights[k]
            x_sum, y_sum, total = x_sum + t * x, y_sum + t * y, total + t
            margin = self.margin(x)
            g = lag.constraints.rates(lag.at(margin).statistics()) - solver.bounds
            assert solver.centre is not None
            D = (
                lag.bregman(margin, solver.centre)
                if self.metric == "scores"
                else float(((x - previous) ** 2).sum()) / 2
            )
            residual = max(
                np.abs(np.maximum(g, -y)).max(initial=0.0), np.sqrt(2 * D) * solver.inverse_tau
            )
            yield Solution(
                x, y, x_sum / total, y_sum / total, residual, residual <= tol,
                solver.history,
            )  # fmt: skip
            if is_over(k + 1):
                return

    def _outer_path(
        self,
        n_iterations: int,
        tol: float,
        start: Float | None,
        solver: CBPRSolver,
        is_over: Callable[[int], bool],
    ) -> Iterator[Solution]:
        """Yield the outer iterates of CBPR, the start first: those meet the constraints."""
        x = np.zeros(self.shape) if start is None else np.array(start, dtype=np.float64)
        if solver.project is None and self.shape[0] <= DENSE:
            solver.project = self._project
        for _ in range(n_iterations + 1):
            y, done, k = solver.multipliers, len(solver.residuals), len(solver.history)
            solver.begin_iteration(self.lagrangian.at(self.margin(x)))
            residual = solver.residuals[-1] if solver.residuals else np.inf
            if len(solver.residuals) > done or k == 0:
                history = solver.history[: max(k, 1)]
                yield Solution(x, y, x, y, residual, residual <= tol, history)
            if is_over(len(solver.history)):
                return
            x = self._proximal_step(solver, x)

    def _project(self, rows: Array) -> Float:
        """Pull per-row derivatives back to coordinates that are nearly orthonormal in scores."""
        return np.asarray(self._coordinates.T @ self._adjoint(rows)).ravel()

    @cached_property
    def _coordinates(self) -> Any:
        """Matrix T whose columns are orthonormal in the second moment of scores plus ridge.

        In ``x = x_k + T z`` the Hessian of every subproblem is nearly a multiple of the identity,
        whatever the units and correlations of the weak learners; directions that change no score
        and no penalty are left out. Large dictionaries are only scaled.
        """
        rooted = self._rooted(self._row_weight / self._row_weight.sum())
        extra = self._ridge.ravel() + (self.smoothness if self.metric == "weights" else 0.0)
        N = rooted.shape[1]
        diagonal = np.asarray((rooted**2).sum(axis=0)) + extra
        scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(N), where=diagonal > 0)
        if N > DENSE:
            return sparse.diags_array(scale)
        gram = self._second_moment(rooted) + np.diag(extra)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        kept = values > N * np.finfo(float).eps * values[-1]
        return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])

    def _proximal_step(self, solver: Solver, x: Float) -> Float:
        """Minimise ``f + <y, g> + D(., x) / tau``: a trust region, then Newton steps."""
        lag, y, T = self.lagrangian, solver.multipliers, self._coordinates
        centre = solver.subproblem.centre
        in_scores, in_weights = float(np.max(solver.subproblem.proximal_weight)), 0.0
        if self.metric == "weights":
            in_scores, in_weights = in_weights, in_scores
        ridge = self._ridge + in_weights
        shape = (T.shape[1], *self.shape[1:])
        seen: dict[bytes, Any] = {}

        def at(z: Array) -> tuple[Float, Any]:
            step = T @ z.reshape(shape)
            key = z.tobytes()
            if key not in seen:
                seen.clear()
                seen[key] = lag.at(self.margin(x + step))
            return step, seen[key]

        def value_and_gradient(z: Array) -> tuple[float, Float]:
            step, point = at(z)
            value = point.value(y, centre, in_scores)
            value += float((self._ridge * (x + step) ** 2 + in_weights * step**2).sum()) / 2
            rows, _ = point.gradient(y, centre, in_scores)
            gradient = self._adjoint(rows) + self._ridge * (x + step) + in_weights * step
            return value, (T.T @ gradient).ravel()

        def hessian_product(z: Array, u: Array) -> Float:
            _, point = at(z)
            du = T @ u.reshape(shape)
            rows = (self._scores @ du).reshape(self._margin_shape)
            product = self._adjoint(point.hessian_product(y, rows, in_scores)) + ridge * du
            return np.asarray(T.T @ product).ravel()

        def newton(z: Array, gradient: Float) -> tuple[Array, Float]:
            for _ in range(8):
                hessian = LinearOperator((z.size, z.size), lambda u: hessian_product(z, u))  # noqa: B023
                if np.linalg.norm(gradient) <= EXACT:
                    break
                step, _ = cg(hessian, -gradient, rtol=1e-3, atol=EXACT / 10, maxiter=200)
                _, at_step = value_and_gradient(z + step)
                if not np.linalg.norm(at_step) < np.linalg.norm(gradient):
                    break
                z, gradient = z + step, at_step
            return z, gradient

        z = np.zeros(int(np.prod(shape)))
        gradient = value_and_gradient(z)[1]
        if isinstance(solver, CBPRSolver):  # strongly convex, and x is near
            z, gradient = newton(z, gradient)
        if np.linalg.norm(gradient) > NEAR:
            found = minimize(
                value_and_gradient, z, jac=True, hessp=hessian_product, method="trust-ncg",
                options={"gtol": NEAR, "maxiter": 200},
            )  # fmt: skip
            z, gradient = found.x, found.jac
        z, _ = newton(z, gradient)
        return np.asarray(x + at(z)[0])


def leaf_indicators(
    leaves: ArrayLike, n_classes: int = 2, n_leaves: ArrayLike | None = None
) -> sparse.csr_array:
    """Score matrix whose weak learners are the leaves of a trained ensemble.

    Parameters
    ----------
    leaves : int array-like of shape (n_samples, n_trees)
        The leaf each row falls into: ``apply(X)`` of XGBoost, ``predict(X, pred_leaf=True)`` of
        LightGBM.
    n_classes : int, default=2
        Classes of the ensemble. With more than two, tree t belongs to class ``t % n_classes``.
    n_leaves : int array-like of shape (n_trees,), default=None
        Leaves of each tree; by default one more than the largest seen. Give it to score other
        rows with the same weights.

    Returns
    -------
    csr_array of shape (n_samples, sum(n_leaves)) or (n_samples * n_classes, sum(n_leaves))
        For :class:`DictionaryLearner`; times the leaf values it is the ensemble's own score.
    """
    leaves = np.asarray(leaves).astype(np.intp)
    n, n_trees = leaves.shape
    counts = leaves.max(axis=0) + 1 if n_leaves is None else np.asarray(n_leaves)
    if (leaves >= counts).any():
        raise ValueError("leaves holds a leaf beyond n_leaves: they are of another ensemble.")
    columns = leaves + np.concatenate([[0], np.cumsum(counts)[:-1]])
    per_sample = 1 if n_classes == 2 else n_classes
    rows = np.arange(n)[:, None] * per_sample + np.arange(n_trees) % per_sample
    shape = (n * per_sample, int(np.sum(counts)))
    ones = np.ones(leaves.size)
    return sparse.csr_array((ones, (rows.ravel(), columns.ravel())), shape=shape)
