"""What the constrained linear models have in common: parameters, iterates and documentation."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Callable
from typing import Any, Self, cast

import numpy as np
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.validation import refuse_lazy
from gbm_constrained.fit.callbacks import CallbackNotifier, refuse_without_constraints
from gbm_constrained.fit.fit import ConstrainedFit, weight_of_rows
from gbm_constrained.fit.fitted_report import (
    ConstrainedFitAttributes,
    remove_report,
    with_constraints,
)
from gbm_constrained.fit.model_note import PackedState
from gbm_constrained.fit.options import LINEAR_SOLVER, SolverOptions, set_solver_options
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.linear_model.exact import LinearLearner, Solution
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.solvers.abpp import ABPPSolver
from gbm_constrained.solvers.cbpr import FEASIBLE, AutoSolver, CBPRSolver

# Balanced classes are of equal weight since scikit-learn 1.7, and of equal count before.
_WEIGHTED_BALANCE = "sample_weight" in inspect.signature(compute_class_weight).parameters


def find_class_factor(class_weight: Any, classes: Array, y: Array, sample_weight: Any) -> Array:
    """Find the factor of each class in the objective.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        The parameter, by label.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y : ndarray of shape (n_samples,), intp
        Class index of each row.
    sample_weight : ndarray of shape (n_samples,) or None
        Weight of each row.
    """
    if isinstance(class_weight, dict):
        named = enumerate(classes.tolist())
        class_weight = {k: class_weight[c] for k, c in named if c in class_weight}
    given = {"sample_weight": sample_weight} if _WEIGHTED_BALANCE else {}
    positions = np.arange(classes.size)
    return np.asarray(compute_class_weight(class_weight, classes=positions, y=y, **given))


def check_rows(X: Any, y: Any, sample_weight: Any) -> Any:
    """Check labels and lengths, and return the weight of each row."""
    refuse_lazy(X, "X")
    sample_weight = weight_of_rows(sample_weight, y)
    check_consistent_length(X, y, sample_weight)
    check_classification_targets(y)
    return sample_weight


class IterateChoice:
    """Choose the iterate that is returned.

    0-1 rates jump about their bounds to the end. Where the last iterate violates a constraint, the
    iterate of least objective among the feasible ones is returned, or the one of least violation.
    The average of k iterates converges as 1 / k, and later than the last one.
    """

    def __init__(self, learner: LinearLearner, options: SolverOptions, tol: float) -> None:
        self.learner = learner
        self.ergodic = options.iterate == "ergodic"
        compiled = learner.lagrangian.constraints
        jumps = compiled.has_rates | compiled.has_tables
        self.has_rates = bool(jumps.any())
        self.units = learner.lagrangian.constants.units.rows
        # Mean losses end within `tol` of their bounds, on either side.
        self._slack = np.where(jumps, ROUNDING, tol) * self.units
        self.tol = tol
        self._best: tuple[tuple[float, bool, float], Float, int] | None = None

    def violations(self, weights: Float) -> Float:
        """Compute the violation of each row of constraints, zero where it is rounding."""
        g = self.learner.violations(weights)
        return np.where(g > self._slack, g, 0.0)

    def add(self, solution: Solution) -> None:
        """Compare the next iterate with the best one so far."""
        weights, n = solution.weights, len(solution.history)
        self.residual, self.converged = solution.residual, solution.converged
        if self.ergodic:
            weights = solution.average_weights
            # The residual ``max_j |max(g_j, -y_j)|`` of the ergodic iterates.
            moved = solution.history[-1].bounds - self.learner.lagrangian.constraints.b
            g = self.learner.violations(weights) - moved
            of_objective = self.learner.lagrangian.constants.units.objective
            y = solution.average_multipliers * self.units / of_objective
            own = np.abs(np.maximum(g / self.units, -y)).max(initial=0.0)
            self.residual = max(self.residual, float(own))
            self.converged &= self.residual <= self.tol
        self._last, self.solution = (weights, n), solution
        if self.ergodic or not self.has_rates:
            return
        worst = float((self.violations(weights) / self.units).max(initial=0.0))
        self._is_met = worst == 0.0
        # CBPR may start from a constant model, which has the least loss under tight constraints.
        is_start = np.isinf(solution.residual)
        rank = worst, is_start, self.learner.objective(weights) if self._is_met else 0.0
        if self._best is None or rank <= self._best[0]:
            self._best = rank, weights, n
        self.converged &= self._best[0][0] == 0.0  # Rates are met in full, and not within `tol`.

    def warn(self, notifier: CallbackNotifier, n_iterations: int) -> bool:
        """Warn where the solver has not converged; return whether a constraint was named."""
        stopped = f"The solver stopped after n_iterations={n_iterations}"
        more = "increase n_iterations"
        if notifier.is_out_of_time:
            stopped, more = f"The solver stopped at {notifier.limit}", "increase time_limit"
        remedy = f"{more}, scale the features, or relax constraints that cannot all"
        if not self.has_rates:
            if not self.converged:
                what = "an average whose residual is" if self.ergodic else "a residual of"
                issue_warning(
                    f"{stopped} with {what} {self.residual:.1e} > tol={self.tol}: {remedy} be "
                    f"met.",
                    "GC304",
                )
            return False
        violations = self.violations(self.find_best()[0])
        if violations.any():
            worst = int((violations / self.units).argmax())
            constraint = self.learner.lagrangian.constraints.rows[worst]
            if self.ergodic:
                found, remedy = "the average of all iterates", f"use iterate='last', {remedy}"
            else:
                found = "no iterate met the constraints. The one that is returned"
            issue_warning(
                f"{stopped}, and {found} violates {constraint} by {violations[worst]:.3g} on the "
                f"training rows: {remedy} be met.",
                "GC107",
            )
        return bool(violations.any())

    def find_best(self) -> tuple[Float, int]:
        """Find the weights of the returned model, and the number of iterations up to them."""
        if self._best is None or self._is_met:
            return self._last
        return self._best[1:]


def find_feasible_start(
    learner: LinearLearner, start: Float, fit: ConstrainedFit, n_iterations: int, tol: float
) -> Float | None:
    """Find weights that satisfy the constraints, which CBPR starts from.

    None is returned where no start was found and "auto" can take ABPP instead.
    """
    lagrangian = learner.lagrangian
    prior, uniform = np.zeros(learner.shape), np.zeros(learner.shape)
    if learner.fit_intercept:
        prior[-1] = lagrangian.constants.constant_scores
    # Number of models that are tried on the way to a constant one.
    for share in np.linspace(1.0, 0.0, 40 + 1):
        for constant in (prior, uniform):
            weights = share * start + (1.0 - share) * constant
            if learner.violations(weights).max() <= FEASIBLE:
                return np.asarray(weights)
    # Groups have the same loss at equal probabilities. From there CBPR lowers the objective,
    # and what is bounded with it, while no constraint is violated more.
    solver = learner.solver(CBPRSolver)
    g = learner.violations(uniform)
    solver.bounds = solver.bounds + np.maximum(g, 0.0)
    limit = fit.notifier.limit
    for solution in learner.path(
        n_iterations, tol, uniform, solver, is_over=lambda _: not limit.has_time_for(0.0)
    ):
        g = learner.violations(solution.weights)
        if g.max() <= FEASIBLE:
            return solution.weights
        if solution.converged:
            break
    if isinstance(fit.options.method, AutoSolver):
        return None
    worst = int(g.argmax())
    raise ValueError(
        f"CBPR starts from a model that meets the constraints, and none was found: the last "
        f"one tried violates {lagrangian.constraints.rows[worst]} by {g[worst]:.3g}. Give one "
        f"as coef_ and intercept_ with warm_start=True, relax the bound, or use "
        f"constraint_solver='abpp', which starts anywhere."
    )


def set_parameters(estimator: Any, given: dict[str, Any]) -> None:
    """Set the parameters of a constructor, given its local variables, and nothing else."""
    for name in estimator._get_param_names():
        setattr(estimator, name, given[name])


class ConstrainedLinearModel(PackedState, ConstrainedFitAttributes):
    """Base of the linear models under constraints, before the parent in the order of methods."""

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``constraint_solver__tau``."""
        if hasattr(self, LINEAR_SOLVER):
            params = set_solver_options(self, params)
        return super().set_params(**params)  # type: ignore[misc]

    def __sklearn_tags__(self) -> Any:
        tags, model = super().__sklearn_tags__(), cast(Any, self)  # type: ignore[misc]
        return with_constraints(tags, model.constraints, model.positive)

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _fit_without_constraints(self, X: Any, y: Any, sample_weight: Any, limit: Any) -> Self:
        """Call the parent's own ``fit``, which no time limit ends."""
        refuse_without_constraints(time_limit=limit)
        super().fit(X, y, sample_weight)  # type: ignore[misc]
        remove_report(self)
        return self

    def _settings(self, sample_weight: Any = None, **own: Any) -> LibrarySettings:
        """Say what a constrained fit must know of a linear model, with its factors of classes."""
        if hasattr(self, "class_weight"):
            own["objective_factor"] = functools.partial(
                find_class_factor, self.class_weight, sample_weight=sample_weight
            )
        return LibrarySettings(
            1.0,
            self.n_iterations,  # type: ignore[attr-defined]
            is_linear=True,
            without_stages="a linear model, which has no rounds,",
            **own,
        )

    def _follow_iterates(
        self,
        fit: ConstrainedFit,
        coefficients: Float,
        make_fit: Callable[[SolverOptions], ConstrainedFit],
        options: SolverOptions,
    ) -> tuple[ConstrainedFit, IterateChoice, bool]:
        """Iterate until the solution has converged or a callback stops, and warn if it has not.

        CBPR starts from a feasible model. Where "auto" finds none, ABPP takes its place.

        Parameters
        ----------
        fit : ConstrainedFit
            The fit, whose solver moves the multipliers.
        coefficients : ndarray of shape (n_rows, n_weights)
            Coefficients of an unconstrained solution, the intercepts last.
        make_fit : callable
            Makes the fit of other options.
        options : SolverOptions
            Options of the estimator.

        Returns
        -------
        fit : ConstrainedFit
            The fit, that of ABPP where no start is feasible for CBPR.
        iterates : IterateChoice
            The iterates, among them the one that is returned.
        is_named : bool
            Whether a warning has named a violated constraint.
        """
        model: Any = self
        learner = self._make_learner(fit)
        start = coefficients.T.reshape(learner.shape)
        if isinstance(fit.solver, CBPRSolver):
            feasible = find_feasible_start(learner, start, fit, model.n_iterations, model.tol)
            if feasible is not None:
                start = feasible
            else:
                with warnings.catch_warnings():
                    warnings.simplefilter("ignore")  # The first fit has issued its warnings.
                    fit = make_fit(options.with_abpp())
                    fit.measure()
                learner = self._make_learner(fit)
        assert isinstance(fit.solver, ABPPSolver)
        method, notifier = fit.options.method, fit.notifier
        adaptive = method.sigma is None and method.outlier_clip is None
        iterates = IterateChoice(learner, fit.options, model.tol)
        notifier.is_training_over(0)  # The call starts the clock of the time limit.
        try:
            for solution in learner.path(
                model.n_iterations, model.tol, start, fit.solver, adaptive=adaptive,
                is_over=lambda n: notifier.is_training_over(n) or notifier.is_stopped,
            ):  # fmt: skip
                iterates.add(solution)
                if iterates.converged:
                    break
        finally:
            fit.hide_progress()
        may_miss = notifier.is_out_of_time or not notifier.is_stopped
        return fit, iterates, may_miss and iterates.warn(notifier, model.n_iterations)

    def _coefficients(self) -> Float:
        """Stack the present coefficients, one row for each score, with the intercept last."""
        model = cast(Any, self)
        parts = [np.atleast_2d(model.coef_), np.reshape(model.intercept_, (-1, 1))]
        return np.hstack(parts[: 1 + model.fit_intercept], dtype=np.float64)

    def _make_learner(self, fit: ConstrainedFit) -> LinearLearner:
        """Make the learner of the rows of a fit."""
        model, lagrangian = cast(Any, self), fit.solver.lagrangian
        X = validate_data(
            model, fit.data.combined.X, accept_sparse="csr", dtype=np.float64, reset=False
        )
        l2 = model._l2(lagrangian.total_weight)
        return LinearLearner(
            lagrangian, X, fit_intercept=model.fit_intercept, l2=l2, metric="scores"
        )


FIT_PARAMETERS = {
    "X": """\
X : array-like or sparse matrix of shape (n_samples, n_features)
    Features.""",
    "y": """\
y : array-like of shape (n_samples,)
    Labels.""",
    "sample_weight": """\
sample_weight : array-like of shape (n_samples,), default=None
    Weights, in the objective and in the rates.""",
    "sensitive_features": """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.""",
    "datasets": """\
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are not in
    the objective. Prepared as X is, for no step of a ``Pipeline`` transforms them; their groups
    are columns of X.""",
    "constraint_callbacks": """\
constraint_callbacks : sequence of callable, default=None
    Called in each iteration with a
    :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, it is the
    last one.""",
    "time_limit": """\
time_limit : float, default=None
    Seconds after which the iterations end, and the best so far is returned, which
    ``stopping_message_`` and a warning say.""",
}
RAISES = """\
Raises
------
TypeError, ValueError
    If a parameter is not supported under constraints, or constraints, targets and weights do not
    fit together; before training starts."""


def document_fit(method: Function) -> Function:
    """Add the arguments that the method does not describe, and its errors."""
    return document_parameters(method, FIT_PARAMETERS, RAISES)
