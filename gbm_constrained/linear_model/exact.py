r"""Exact learners: linear scores, and the exact solution of proximal subproblems.

A squared loss takes one step, which solves a linear system. The kinks of absolute and pinball
losses are rounded about slopes s of their rows, :math:`|r|` being

.. math:: \max_{|u| \le 1} u r - \tfrac{\epsilon}{2} (u - s)^2

up to a constant. Once Newton steps have lowered this, s moves to the u of the maximum, as the
multipliers of an augmented Lagrangian do (Li, Sun and Toh, "A highly efficient semismooth Newton
augmented Lagrangian method for solving Lasso problems", 2018). The minimiser is exact where s no
longer moves, at a width :math:`\epsilon` at which the Hessian still sees rows. The slopes are kept
for the next subproblem, whose solution is near.

Scores are linear in the weights, :math:`F(x) = \tilde F(A) x + F_0`, with the score matrix
:math:`\tilde F(A)` given (Lin and Deng, 2023, section 5), so that the problem

.. math:: \min_x \; f(F(x)) + \tfrac{\lambda}{2} \|x\|^2 \quad \text{s.t.} \quad g(F(x)) \le 0

is convex for mean losses, and for pair rates under the square proxy at fixed multipliers, and
every subproblem of ABPP is solved to machine precision: nothing separates the iterates from the
theory. The Bregman distance is one of two,

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
the distance of scores; with a free weight, zero. The squared error adds one to :math:`\mu`
in the distance of scores.

**Regression.** Losses of numbers have no largest slope. The constants :math:`L_j` are then the
largest root mean square slopes on the path, which hold between its scores for squared losses.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cached_property
from typing import Any, Literal

import numpy as np
from numpy.typing import ArrayLike
from scipy import linalg, sparse
from scipy.optimize import minimize
from scipy.sparse.linalg import LinearOperator, cg, svds

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.problem.lagrangian import Lagrangian
from gbm_constrained.problem.regression import (
    RegressionLagrangian,
    RegressionPoint,
    RegressionRows,
)
from gbm_constrained.solvers.abpp import ABPPSolver
from gbm_constrained.solvers.base import Record, Solver
from gbm_constrained.solvers.cbpr import CBPRSolver

MAX_DENSE = 1500  # Largest number of weights whose second moments are factorised.


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
        (feasibility and complementarity) and ``sqrt(2 D(x_{k+1}, x_k)) / tau_k`` (stationarity),
        of a regression each in the unit that follows from the deviation of the targets.
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
    """Weights of a fixed set of weak learners, which solvers find.

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
        Space of the Bregman distance.

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
        n, n_scores = lagrangian.n_samples, lagrangian.rows.n_scores
        heights = [n] if n_scores == 1 else [n, n * n_scores]
        if scores.ndim != 2 or scores.shape[0] not in heights:
            raise ValueError(
                f"scores must have {' or '.join(map(str, heights))} rows for {n} samples of "
                f"{n_scores} score{'s' * (n_scores > 1)} each, got shape {scores.shape}."
            )
        if metric not in ("scores", "weights"):
            raise ValueError(f"metric must be 'scores' or 'weights', got {metric!r}.")
        if metric == "weights" and not lagrangian.constants.are_global:
            raise ValueError(
                "metric='weights' needs losses whose slopes are bounded, and those of numbers are "
                "not: use metric='scores'."
            )
        self.lagrangian = lagrangian
        self.metric = metric
        self.l2 = l2
        self._sparse = bool(sparse.issparse(scores))
        as_array: Any = sparse.csr_array if self._sparse else np.asarray
        self.scores: Any = as_array(scores, dtype=np.float64)
        N = scores.shape[1]
        self.shape = (N, n_scores) if n_scores > 1 and scores.shape[0] == n else (N,)
        self.margin_shape = (n,) if n_scores == 1 else (n, n_scores)
        self.offset = np.asarray(offset, dtype=np.float64)
        on = np.ones(N, dtype=bool) if penalised is None else np.asarray(penalised, dtype=bool)
        self.ridge = (l2 * on).reshape(-1, *[1] * (len(self.shape) - 1))
        self.row_weight = lagrangian.rows.apply_weights(np.ones(n), slice(None))

    def margin(self, weights: Float) -> Float:
        """Compute the scores of rows; shape (n_samples,) or (n_samples, n_classes).

        Parameters
        ----------
        weights : ndarray
            Weights of the scores, of the shape of the starting ones.
        """
        return np.asarray((self.scores @ weights).reshape(self.margin_shape) + self.offset)

    def objective(self, weights: Float) -> float:
        """Compute the objective f: weighted mean loss plus ridge.

        Parameters
        ----------
        weights : ndarray
            Weights of the scores, of the shape of the starting ones.
        """
        fit = self.lagrangian.objective(self.lagrangian.at(self.margin(weights)).statistics())
        return fit + float((self.ridge * weights**2).sum()) / 2

    def violations(self, weights: Float) -> Float:
        """Compute the constraints g, rate minus bound; shape (m,).

        Parameters
        ----------
        weights : ndarray
            Weights of the scores, of the shape of the starting ones.
        """
        statistics = self.lagrangian.at(self.margin(weights)).statistics()
        return self.lagrangian.constraints.violations(statistics)

    def pull_back(self, rows: Array) -> Float:
        """Pull per-row derivatives, which the Lagrangian multiplies by W, back to weights.

        Parameters
        ----------
        rows : ndarray of shape (n_samples,) or (n_samples, n_classes)
            Derivatives of the rows in their scores.
        """
        pulled = self.scores.T @ rows.reshape(-1, *self.shape[1:])
        return np.asarray(pulled / self.lagrangian.total_weight)

    def weight_by_root(self, row_weight: Float, index: Codes | None = None) -> Any:
        """Multiply rows of the score matrix, all or those of some samples, by roots of weights.

        Parameters
        ----------
        row_weight : ndarray of shape (n_samples,)
            Weight of each row.
        index : ndarray of int, default=None
            Positions of the samples; None stands for all.
        """
        scores = self.scores if index is None else self.scores[index]
        root = np.sqrt(np.repeat(row_weight, scores.shape[0] // max(row_weight.size, 1)))
        multiply = scores.multiply if self._sparse else scores.__mul__
        return multiply(root[:, None])

    def largest_eigenvalue(self, row_weight: Float) -> float:
        """Compute the largest eigenvalue of ``sum_i row_weight_i S_i' S_i``.

        Parameters
        ----------
        row_weight : ndarray of shape (n_samples,)
            Weight of each row.
        """
        rooted = self.weight_by_root(row_weight)
        if rooted.shape[1] > MAX_DENSE:
            start = np.ones(min(rooted.shape))
            return float(svds(rooted, k=1, v0=start, return_singular_vectors=False)[0] ** 2)
        return float(np.linalg.eigvalsh(self.second_moment(rooted))[-1])

    def second_moment(self, rooted: Any) -> Float:
        """Multiply a score matrix whose rows have weights by its transpose.

        Parameters
        ----------
        rooted : ndarray or sparse array
            Rows of the score matrix by :meth:`weight_by_root`.
        """
        moment = rooted.T @ rooted
        return np.asarray(moment.toarray() if self._sparse else moment)

    @cached_property
    def smoothness(self) -> float:
        """Largest eigenvalue of the mean second moment of scores, which is 2 D of a unit step."""
        return self.largest_eigenvalue(self.row_weight / self.row_weight.sum())

    @cached_property
    def coordinates(self) -> Any:
        """Matrix T whose columns are orthonormal in the second moment of scores plus ridge.

        In ``x = x_k + T z`` the Hessian of every subproblem is nearly a multiple of the identity,
        whatever the units and correlations of the weak learners. Directions that change no score
        and no penalty are left out; large dictionaries are only scaled.
        """
        rooted = self.weight_by_root(self.row_weight / self.row_weight.sum())
        extra = self.ridge.ravel() + (self.smoothness if self.metric == "weights" else 0.0)
        N = rooted.shape[1]
        diagonal = np.asarray((rooted**2).sum(axis=0)) + extra
        scale = np.divide(1.0, np.sqrt(diagonal), out=np.zeros(N), where=diagonal > 0)
        if N > MAX_DENSE:
            return sparse.diags_array(scale)
        gram = self.second_moment(rooted) + np.diag(extra)
        values, vectors = np.linalg.eigh(scale[:, None] * gram * scale)
        kept = values > N * np.finfo(float).eps * values[-1]
        return scale[:, None] * vectors[:, kept] / np.sqrt(values[kept])

    @property
    def mu(self) -> float:
        """Strong convexity of the objective relative to the Bregman distance."""
        of_loss = self.lagrangian.constants.strong_convexity
        if self.l2 == 0 or (self.ridge == 0).any():
            return of_loss
        return self.l2 if self.metric == "weights" else of_loss + self.l2 / self.smoothness

    @cached_property
    def lipschitz(self) -> tuple[Float, float]:
        """Constants L_j of the constraints, and L of all of them scaled to one.

        For the distance of weights; in scores they follow from the cells alone.
        """
        lag = self.lagrangian
        weight = lag.cell_weight
        # The share makes a constant one of fractions.
        share = lag.rows.effective_weight / lag.total_weight
        reaction = lag.constants.sensitivities.toarray() * np.sqrt(share)
        per_row = np.divide(reaction, weight, out=np.zeros_like(reaction), where=weight > 0)
        r = np.zeros((len(lag.constraints), lag.n_samples))
        for view in lag.cells.views:  # Each constraint is in one view.
            r += view.weigh(per_row[:, view.codes].T).T
        r *= self.row_weight * reaction.sum(axis=1, keepdims=True)
        squares = np.array([self.largest_eigenvalue(r_j) for r_j in r])
        inverse = np.divide(1.0, squares, out=np.zeros_like(squares), where=squares > 0)
        together = self.largest_eigenvalue(inverse @ r)
        return np.sqrt(squares), float(np.sqrt(max(together, 1.0)))  # It is 0 without constraints.

    def solver(self, kind: type[ABPPSolver] = ABPPSolver, **options: Any) -> ABPPSolver:
        """Make an ABPP or CBPR solver with the constants of this learner.

        tau defaults to a quarter of what boosters take, 1 for a binary margin, 1/2 for softmax
        scores and 1/4 for the squared error: the smaller tau, the larger dual steps may be, and a
        subproblem that is solved exactly costs the same. In the distance of weights tau is divided
        by the largest eigenvalue of the scores' second moment.

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
            options["tau"] = self.lagrangian.constants.primal_step / 4.0
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
        solver: ABPPSolver | None = None,
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
        solver: ABPPSolver | None = None,
        *,
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
            the square of that. They also grow where a constraint does not move, as those of
            boosters do. The theorem no longer speaks of them. In the distance of scores.
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
        x = np.zeros(self.shape) if start is None else np.array(start, dtype=np.float64)
        has_kinks = isinstance(lag, RegressionLagrangian) and self.shape[0] <= MAX_DENSE
        subproblems = (KinkSolver if has_kinks else SubproblemSolver)(self, solver)
        if isinstance(solver, CBPRSolver):
            yield from self._outer_path(n_iterations, tol, x, solver, subproblems, is_over)
            return
        assert isinstance(solver, ABPPSolver)
        x_sum, y_sum, total = np.zeros(self.shape), np.zeros(len(lag.constraints)), 0.0
        slopes, units = np.zeros(len(lag.constraints)), lag.constants.units
        is_on_path = adaptive or (not lag.constants.are_global and solver.lipschitz is None)
        for k in range(n_iterations):
            point = lag.at(self.margin(x))
            if is_on_path:
                slopes = np.maximum(slopes, lag.constants.observe_lipschitz(point))
                solver.current_lipschitz = slopes
            solver.begin_iteration(point)
            previous, x = x, subproblems.solve(x)
            y, t = solver.multipliers, solver.ergodic_weights[k]
            x_sum, y_sum, total = x_sum + t * x, y_sum + t * y, total + t
            margin = self.margin(x)
            g = lag.constraints.rates(lag.at(margin).statistics()) - solver.bounds
            if adaptive:
                solver.adapt_strides(g, y)
            assert solver.centre is not None
            D = (
                lag.bregman(margin, solver.centre)
                if self.metric == "scores"
                else float(((x - previous) ** 2).sum()) / 2
            )
            slack = np.maximum(g / units.rows, -y * units.rows / units.objective)
            moved = np.sqrt(2 * D) * solver.inverse_tau * units.score / units.objective
            residual = max(np.abs(slack).max(initial=0.0), moved)
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
        x: Float,
        solver: CBPRSolver,
        subproblems: SubproblemSolver,
        is_over: Callable[[int], bool],
    ) -> Iterator[Solution]:
        """Yield the outer iterates of CBPR, which meet the constraints, the start first."""
        if solver.project is None and self.shape[0] <= MAX_DENSE:
            # Coordinates in which rows are pulled back are nearly orthonormal in scores.
            solver.project = lambda rows: (self.coordinates.T @ self.pull_back(rows)).ravel()
        units = self.lagrangian.constants.units
        of_slope = units.objective / units.score
        for _ in range(n_iterations + 1):
            y, done, k = solver.multipliers, len(solver.residuals), len(solver.history)
            solver.begin_iteration(self.lagrangian.at(self.margin(x)))
            residual = solver.residuals[-1] / of_slope if solver.residuals else np.inf
            if len(solver.residuals) > done or k == 0:
                history = solver.history[: max(k, 1)]
                yield Solution(x, y, x, y, residual, residual <= tol, history)
            if is_over(len(solver.history)):
                return
            x = subproblems.solve(x)


class LinearLearner(DictionaryLearner):
    r"""Coefficients of features, and an intercept.

    The "linear classifier-based" variant of Lin and Deng (2023), section 5: the score matrix is
    the table of features and the Bregman distance :math:`\frac12 \|x - x'\|^2` that of W = I, so
    that a subproblem is a ridge regression around the last iterate.

    Parameters
    ----------
    lagrangian : Lagrangian
        The problem on the rows of `X`, in float64.
    X : array or sparse array of shape (n_samples, n_features)
        Features.
    fit_intercept : bool, default=True
        Whether the last weight is an intercept. It is not penalised.
    l2 : float, default=0
        Ridge penalty ``l2 / 2 ||coef||^2`` of the objective, which is a mean over rows.
    metric : {"weights", "scores"}, default="weights"
        Space of the Bregman distance. "scores" does not depend on the units of the features.
    """

    def __init__(
        self,
        lagrangian: Lagrangian,
        X: Any,
        *,
        fit_intercept: bool = True,
        l2: float = 0.0,
        metric: Literal["scores", "weights"] = "weights",
    ) -> None:
        self.fit_intercept = fit_intercept
        self.n_features = X.shape[1]
        if fit_intercept:
            hstack: Any = sparse.hstack if sparse.issparse(X) else np.hstack
            X = hstack([X, np.ones((X.shape[0], 1))])
        penalised = np.arange(X.shape[1]) < self.n_features
        super().__init__(lagrangian, X, l2=l2, penalised=penalised, metric=metric)

    def rescale(self, weights: Float) -> Float:
        """Find the multiple of the scores, and the intercept, of least objective.

        An order of rows depends on neither, while the proxies of pair rates have a scale of their
        own. Decisions depend on the intercept. The weights stay as they are where a constraint
        moves, as a mean loss does.

        Parameters
        ----------
        weights : ndarray of shape (N,)
            Weights of a binary margin, the intercept last.
        """
        at, before = np.zeros_like(weights), self.violations(weights)
        may_shift = self.fit_intercept and self.lagrangian.constraints.has_tables_alone
        at[-1] = may_shift

        def move(step: Float) -> Float:
            return np.asarray(np.exp(step[0]) * weights + step[1] * at)

        def objective(step: Any) -> float:
            return self.objective(move(step))

        found: Any = minimize(objective, np.zeros(2), method="BFGS")
        moved = move(found.x)
        is_same = np.allclose(self.violations(moved), before, rtol=0, atol=ROUNDING)
        return moved if is_same and found.fun < self.objective(weights) else weights

    def coefficients(self, weights: Float) -> tuple[Float, Float]:
        """Split weights into coefficients and intercepts, in the shapes of scikit-learn.

        Parameters
        ----------
        weights : ndarray of shape ``shape``
            Weights of the features, and of the intercept last.

        Returns
        -------
        coef, intercept : ndarray
        """
        rows = np.atleast_2d(weights.T)
        intercept = rows[:, -1] if self.fit_intercept else np.zeros(rows.shape[0])
        return rows[:, : self.n_features].copy(), intercept.copy()


def leaf_indicators(
    leaves: ArrayLike, n_classes: int = 2, n_leaves: ArrayLike | None = None
) -> sparse.csr_array:
    """Make the score matrix whose weak learners are the leaves of a trained ensemble.

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
        For :class:`~gbm_constrained.linear_model.DictionaryLearner`; times the leaf values the
        matrix is the ensemble's own score.
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


EXACT = 1e-12  # Norm of the gradient, in the subproblem's own coordinates, that is left.
NEAR = 1e-6  # Norm of the gradient from which Newton steps are taken.


class SubproblemSolver:
    """Minimiser of the subproblems of a solver: a trust region, then Newton steps.

    A subproblem is the function ``f + <y, g> + D(., x) / tau`` of steps from weights x, which are
    taken in coordinates z of the learner.

    Parameters
    ----------
    learner : DictionaryLearner
        The learner.
    solver : Solver
        The solver, which has a subproblem in each of its iterations.
    """

    def __init__(self, learner: DictionaryLearner, solver: Solver) -> None:
        self.learner, self.solver = learner, solver
        self.shape = (learner.coordinates.shape[1], *learner.shape[1:])

    def solve(self, weights: Float) -> Float:
        """Minimise the current subproblem of the solver, from some weights."""
        self._begin(weights)
        z = np.zeros(int(np.prod(self.shape)))
        gradient = self.value_and_gradient(z)[1]
        if isinstance(self.solver, CBPRSolver):  # strongly convex, and the start is near
            z, gradient = self._take_newton_steps(z, gradient)
        if np.linalg.norm(gradient) > NEAR:
            found = minimize(
                self.value_and_gradient,
                z,
                jac=True,
                hessp=self.hessian_product,
                method="trust-ncg",
                options={"gtol": NEAR, "maxiter": 200},
            )
            z, gradient = found.x, found.jac
        z, _ = self._take_newton_steps(z, gradient)
        return np.asarray(weights + self.at(z)[0])

    def _begin(self, weights: Float) -> None:
        """Take the subproblem of the present iteration, which starts from some weights."""
        self.start, self.multipliers = weights, self.solver.multipliers
        self.centre, weight = self.solver.proximal_term
        self.in_scores = float(np.max(weight))
        self.in_weights = 0.0
        if self.learner.metric == "weights":
            self.in_scores, self.in_weights = self.in_weights, self.in_scores
        self._seen: tuple[bytes, Any] | None = None

    def at(self, z: Array) -> tuple[Float, Any]:
        """Take the step in weights, and the Lagrangian at its end."""
        step = self.learner.coordinates @ z.reshape(self.shape)
        key = z.tobytes()
        if self._seen is None or self._seen[0] != key:
            margin = self.learner.margin(self.start + step)
            self._seen = key, self.learner.lagrangian.at(margin)
        return step, self._seen[1]

    def value_and_gradient(self, z: Array) -> tuple[float, Float]:
        """Compute value and gradient after a step z."""
        learner, w = self.learner, self.in_weights
        step, point = self.at(z)
        x = self.start + step
        value = point.value(self.multipliers, self.centre, self.in_scores)
        value += float((learner.ridge * x**2 + w * step**2).sum()) / 2
        rows, _ = point.gradient(self.multipliers, self.centre, self.in_scores)
        gradient = learner.pull_back(rows) + learner.ridge * x + w * step
        return value, (learner.coordinates.T @ gradient).ravel()

    def hessian_product(self, z: Array, u: Array) -> Float:
        """Compute the Hessian after a step z times u."""
        learner = self.learner
        _, point = self.at(z)
        du = learner.coordinates @ u.reshape(self.shape)
        rows = (learner.scores @ du).reshape(learner.margin_shape)
        pulled = learner.pull_back(point.hessian_product(self.multipliers, rows, self.in_scores))
        product = pulled + (learner.ridge + self.in_weights) * du
        return np.asarray(learner.coordinates.T @ product).ravel()

    def _take_newton_steps(self, z: Array, gradient: Float) -> tuple[Array, Float]:
        """Take Newton steps until the gradient is exact or falls no more."""
        for _ in range(8):
            hessian = LinearOperator((z.size, z.size), lambda u: self.hessian_product(z, u))  # noqa: B023
            if np.linalg.norm(gradient) <= EXACT:
                break
            step, _ = cg(hessian, -gradient, rtol=1e-3, atol=EXACT / 10, maxiter=200)
            _, at_step = self.value_and_gradient(z + step)
            if not np.linalg.norm(at_step) < np.linalg.norm(gradient):
                break
            z, gradient = z + step, at_step
        return z, gradient


WIDEST, NARROWEST = 1e-3, 1e-6  # Widths of rounded kinks, in deviations of the targets.
NARROWER = 10.0  # Factor between widths, and the least one between moves at one width.


class KinkSolver(SubproblemSolver):
    """Minimiser of the subproblems of a regression, whose losses may have kinks.

    Newton steps with factorised Hessians minimise the rounded losses, whose slopes then move.
    """

    def __init__(self, learner: DictionaryLearner, solver: Solver) -> None:
        super().__init__(learner, solver)
        self.rows: RegressionRows = learner.lagrangian.rows  # type: ignore[assignment]
        self.slopes = np.zeros(self.rows.n_samples)
        units = learner.lagrangian.constants.units
        self.small = EXACT * units.objective / units.score
        # Weighted mean second moment of the scores of rows.
        share = learner.row_weight / self.rows.total_weight
        self.moment = learner.second_moment(learner.weight_by_root(share))

    def solve(self, weights: Float) -> Float:
        """Minimise the current subproblem of the solver, from some weights."""
        self._begin(weights)
        rows, width, before = self.rows, WIDEST, np.inf
        has_kink = rows.kink_weights(self.multipliers) > 0.0
        x, margin = weights, self.learner.margin(weights)
        for _ in range(60):  # The slopes move so often at most.
            x, margin, is_minimiser = self._take_steps(x, margin, width)
            residual = (rows.targets - margin) / (width * rows.scale)
            moved = np.where(has_kink, np.clip(self.slopes + residual, -1.0, 1.0), self.slopes)
            distance = width * float(np.abs(moved - self.slopes).max())
            self.slopes = moved
            if is_minimiser and distance <= 1e-9:  # In standard deviations of the targets.
                break
            if distance > before / NARROWER:
                width = max(width / NARROWER, NARROWEST)
            before = distance
        return x

    def _take_steps(self, x: Float, margin: Float, width: float) -> tuple[Float, Float, bool]:
        """Take Newton steps until the gradient is small; return whether it vanished."""
        gradient, curvature = self._differentiate(x, margin, width)
        norm = float(np.linalg.norm(gradient))
        enough = max(self.small, 0.1 * norm)  # Slopes move once the gradient is a tenth.
        for _ in range(50):
            if norm <= enough:
                break
            z = -linalg.solve(self._hessian(curvature), gradient, assume_a="pos")
            step = self.learner.coordinates @ z
            change = self.learner.scores @ step
            start = float(z @ gradient)
            length = self._find_length((x, margin), (step, change), width, start)
            moved = x + length * step, margin + length * change
            gradient, curvature = self._differentiate(*moved, width)
            before, norm = norm, float(np.linalg.norm(gradient))
            if norm >= before and before <= 1e4 * self.small:  # Only rounding is left.
                return x, margin, True
            x, margin = moved
        return x, margin, norm <= self.small

    def _differentiate(self, x: Float, margin: Float, width: float) -> tuple[Float, Float]:
        """Compute the gradient in z, and W times the second derivative of each row."""
        learner = self.learner
        slope, curvature = self._differentiate_rows(margin, width)
        pulled = learner.pull_back(slope) + learner.ridge * x
        return np.asarray(learner.coordinates.T @ pulled).ravel(), curvature

    def _differentiate_rows(self, margin: Float, width: float) -> tuple[Float, Float]:
        """Compute first and second derivative of each row in its score, times W."""
        rounded = RegressionPoint(self.rows, margin, width, self.slopes)
        return rounded.gradient(self.multipliers, self.centre, self.in_scores)

    def _find_length(
        self,
        point: tuple[Float, Float],
        direction: tuple[Float, Float],
        width: float,
        start: float,
    ) -> float:
        """Find a step length at which the slope along a direction has nearly vanished.

        Point and direction are weights and scores of rows, and `start` is the slope at the point.
        """
        (x, margin), (step, change) = point, direction
        low, high, length = (0.0, start), (np.inf, np.nan), 1.0
        for _ in range(30):
            rows, _ = self._differentiate_rows(margin + length * change, width)
            ridge = self.learner.ridge * (x + length * step)
            slope = float(rows @ change) / self.rows.total_weight
            slope += float(ridge @ step)
            if abs(slope) <= 0.5 * abs(start):
                break
            low, high = ((length, slope), high) if slope < 0.0 else (low, (length, slope))
            if np.isinf(high[0]):
                length *= 2.0
            else:  # Interpolate the zero of the slope between two lengths, away from both.
                share = min(max(low[1] / (low[1] - high[1]), 0.1), 0.9)
                length = low[0] + share * (high[0] - low[0])
        return length

    def _hessian(self, curvature: Float) -> Float:
        """Compute the Hessian, without rows whose function bends downwards.

        Rows that bend more than the least bent one are few where kinks are narrow.
        """
        learner = self.learner
        weight = learner.row_weight
        curvature = np.maximum(curvature, 0.0)
        has_weight = weight > 0
        least = float(np.min(curvature[has_weight] / weight[has_weight]))
        more = np.maximum(curvature - least * weight, 0.0) / self.rows.total_weight
        bent = np.flatnonzero(more)
        moment = least * self.moment + np.diag(learner.ridge)
        moment += learner.second_moment(learner.weight_by_root(more[bent], bent))
        found = np.asarray(learner.coordinates.T @ moment @ learner.coordinates)
        # The Hessian may be singular, so that a small share of its mean diagonal is added.
        added = 1e-14 * max(float(np.trace(found)) / len(found), np.finfo(float).tiny)
        return found + added * np.eye(len(found))
