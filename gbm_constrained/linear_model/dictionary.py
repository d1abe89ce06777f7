r"""A fixed dictionary of weak learners, re-weighted under constraints.

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
from typing import Any

import numpy as np

from gbm_constrained._typing import Array, Float
from gbm_constrained.linear_model.linear_scores import MAX_DENSE, LinearScores
from gbm_constrained.linear_model.proximal_step import SubproblemSolver
from gbm_constrained.solvers.abpp import ABPPSolver
from gbm_constrained.solvers.base import Record
from gbm_constrained.solvers.cbpr import CBPRSolver
from gbm_constrained.solvers.outer_loop import OuterLoop


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


class DictionaryLearner(LinearScores):
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

    def solver(self, kind: type[OuterLoop] = ABPPSolver, **options: Any) -> OuterLoop:
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
        if isinstance(solver, CBPRSolver):
            yield from self._outer_path(n_iterations, tol, start, solver, is_over)
            return
        assert isinstance(solver, ABPPSolver)
        x = np.zeros(self.shape) if start is None else np.array(start, dtype=np.float64)
        x_sum, y_sum, total = np.zeros(self.shape), np.zeros(len(lag.constraints)), 0.0
        slopes, units = np.zeros(len(lag.constraints)), lag.constants.units
        subproblems = SubproblemSolver(self, solver)
        is_on_path = adaptive or (not lag.constants.are_global and solver.lipschitz is None)
        for k in range(n_iterations):
            point = lag.at(self.margin(x))
            if is_on_path:
                slopes = np.maximum(slopes, lag.constants.observe_lipschitz(point))
                solver.dual.lipschitz = slopes
            solver.begin_iteration(point)
            previous, x = x, subproblems.solve(x)
            y, t = solver.multipliers, solver.ergodic_weights[k]
            x_sum, y_sum, total = x_sum + t * x, y_sum + t * y, total + t
            margin = self.margin(x)
            g = lag.constraints.rates(lag.at(margin).statistics()) - solver.bounds
            if adaptive:
                solver.dual.strides.adapt(g, y)
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
        start: Float | None,
        solver: CBPRSolver,
        is_over: Callable[[int], bool],
    ) -> Iterator[Solution]:
        """Yield the outer iterates of CBPR, which meet the constraints, the start first."""
        x = np.zeros(self.shape) if start is None else np.array(start, dtype=np.float64)
        if solver.project is None and self.shape[0] <= MAX_DENSE:
            solver.project = self._project
        units = self.lagrangian.constants.units
        of_slope, subproblems = units.objective / units.score, SubproblemSolver(self, solver)
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

    def _project(self, rows: Array) -> Float:
        """Pull per-row derivatives back to coordinates that are nearly orthonormal in scores."""
        return np.asarray(self.coordinates.T @ self.pull_back(rows)).ravel()
