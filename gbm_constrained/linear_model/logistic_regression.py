"""Logistic regression under constraints, on the exact linear learner."""

from __future__ import annotations

import functools
import inspect
import warnings
from collections.abc import Sequence
from typing import Any

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.class_weight import compute_class_weight
from sklearn.utils.multiclass import check_classification_targets
from sklearn.utils.validation import check_consistent_length, validate_data

from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Array, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.rule import Scores
from gbm_constrained.linear_model.dictionary import Solution
from gbm_constrained.linear_model.linear import LinearLearner
from gbm_constrained.problem.linear_constraints import ROUNDING
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.solvers.auto import AutoSolver
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.solvers.cbpr import FEASIBLE, CBPRSolver
from gbm_constrained.solvers.outer_loop import OuterLoop
from gbm_constrained.training import model_note as saving
from gbm_constrained.training.callbacks import Announcer, ConstraintCallback
from gbm_constrained.training.finalize import FinalModel, describe_training_rows
from gbm_constrained.training.fit import ConstrainedFit, weight_of_rows
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report, report, warn
from gbm_constrained.training.options import (
    Iterate,
    SolverName,
    SolverOptions,
    refuse_moved_parameters,
    set_solver_options,
    with_constraints,
)
from gbm_constrained.training.problem import LibrarySettings
from gbm_constrained.training.progress import Progress
from gbm_constrained.training.report_layout import ReportLayout
from gbm_constrained.training.time_limit import TimeLimit, refuse_time_limit_without_constraints

STEPS = 40  # Models that are tried on the way to a constant one.
# scikit-learn 1.8 changed the defaults of `penalty` and `l1_ratio` and dropped `multi_class`.
_PENALTY, _L1_RATIO = (
    inspect.signature(LogisticRegression).parameters[name].default
    for name in ("penalty", "l1_ratio")
)
# Balanced classes are of equal weight since scikit-learn 1.7, and of equal count before.
_WEIGHTED_BALANCE = "sample_weight" in inspect.signature(compute_class_weight).parameters


class ConstrainedLogisticRegression(LogisticRegression, ConstrainedFitAttributes):
    """Logistic regression trained under constraints on its error rates.

    A real :class:`sklearn.linear_model.LogisticRegression`: ``constraints=[]`` is the parent's
    own fit, and under constraints ``coef_`` and ``intercept_`` are what the parent's ``predict``
    and ``predict_proba`` take. The problem is the parent's, divided by the total weight W (sample
    weights times class weights),

        min (1/W) sum_i w_i l(F(x_i), y_i) + ||coef||^2 / (2 C W)   s.t.   rate_j <= bound_j

    It is solved by ABPP with exact subproblems, starting from the parent's solution, in the
    distance of scores: the units of the features do not matter. Under mean-loss constraints it is
    convex, and its optimum is reached up to `tol`. A 0-1 rate moves its multiplier by its exact
    value while the subproblem holds its proxy; such a rate swings about its bound by a few rows,
    and an iterate that meets the rules is returned if there is one.
    A difference of mean losses, such as their gap between groups, is not convex: CBPR then goes to
    a KKT point from a model that meets the rules: the parent's solution, or else the nearest to it
    on the way to a constant one, or else one that CBPR reaches from equal probabilities.

    Parameters
    ----------
    penalty, C, l1_ratio, dual, tol, fit_intercept, intercept_scaling, class_weight, \
random_state, solver, max_iter, verbose, warm_start, n_jobs
        As in the parent. Constraints take an L2 penalty or none; `class_weight` weights the
        objective and not the rates; `tol` is also the residual at which ABPP stops (see
        :class:`~gbm_constrained.linear_model.Solution`); `solver`, `max_iter`, `random_state` and
        `n_jobs` are about the parent's solution. With ``warm_start=True`` the start is `coef_` and
        `intercept_` as they are, of an earlier fit or set by you, in place of that solution.
    constraints : Constraint or sequence of Constraint, default=None
        The rules, such as ``[fnr() <= 0.05]`` (see :mod:`gbm_constrained.constraints.rates`). With
        none, the parent's own ``fit`` is called and nothing else happens.
    positive : label, default=None
        The positive class of all rates that name none: with ``positive="fraud"`` the rule
        ``fnr() <= 0.05`` is ``fnr("fraud") <= 0.05``. By default the last of two sorted labels.
        Of more classes, it is one against all others. ``classes_`` and ``predict_proba`` keep the
        parent's order.
    n_iterations : int, default=500
        Most iterations of ABPP.
    iterate : {"last", "ergodic"}, default="last"
        Whether the last iterate is returned, or the average of all that the theory speaks of,
        which takes many more iterations to meet the rules within `tol`. In the place of a last
        one that violates a 0-1 rule comes the one of least objective among those that meet all
        rules, or if none does, the one of least violation, with a warning.
    constraint_solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The method: a name, or an object with its own options such as ``ABPP(tau=2.0)`` of
        :mod:`gbm_constrained.solvers`, which ``set_params`` reaches as ``constraint_solver__tau``.
        "auto" takes CBPR for differences of mean losses, where it finds a model that meets the
        rules to start from, and ABPP otherwise. By default the dual steps are the largest that
        the slopes of the constraints allow, as observed on the path.
    **kwargs
        Refused, with the place of options that belong to the solver.

    Attributes
    ----------
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows, its multiplier, and its
        verdict by the training rows, which prove nothing about others.
    feasibility_ : Feasibility
        The verdict on each rule as an object. Its ``status`` is the gravest verdict.
    history_ : DataFrame
        One row per iteration of ABPP up to the returned model, and a last one for that.
    group_report_ : DataFrame
        One row per rate of each group that a constraint looks at.
    small_groups_ : DataFrame
        One row per group of each constraint that compares groups, in which its rate is taken over
        fewer than `min_group_size` rows: their number, and what became of the group.
    multipliers_ : Series
        Multipliers of the returned model, by linear row of the constraints.
    n_iter_ : ndarray of shape (1,)
        Iterations of ABPP, those after the returned model too.
    stopping_message_ : str or None
        What ended the fit early, a callback or the time limit; None if nothing did.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1 and section 5.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
    >>> from gbm_constrained import label, log_loss
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = ConstrainedLogisticRegression(constraints=[log_loss(on=label(0)) <= 0.1])
    """

    multi_class = "deprecated"  # Read by scikit-learn < 1.8, where this is the default.

    def __init__(
        self,
        penalty: Any = _PENALTY,
        *,
        C: float = 1.0,
        l1_ratio: float | None = _L1_RATIO,
        dual: bool = False,
        tol: float = 1e-4,
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        random_state: Any = None,
        solver: str = "lbfgs",
        max_iter: int = 100,
        verbose: int = 0,
        warm_start: bool = False,
        n_jobs: int | None = None,
        constraints: Any = None,
        positive: Any = None,
        n_iterations: int = 500,
        iterate: Iterate = "last",
        constraint_solver: SolverName | SolverMethod = "auto",
        **kwargs: Any,
    ) -> None:
        super().__init__(
            penalty=penalty,
            C=C,
            l1_ratio=l1_ratio,
            dual=dual,
            tol=tol,
            fit_intercept=fit_intercept,
            intercept_scaling=intercept_scaling,
            class_weight=class_weight,
            random_state=random_state,
            solver=solver,
            max_iter=max_iter,
            verbose=verbose,
            warm_start=warm_start,
            n_jobs=n_jobs,
        )
        self.constraints = constraints
        self.positive = positive
        self.n_iterations = n_iterations
        self.iterate = iterate
        self.constraint_solver = constraint_solver
        refuse_moved_parameters(self, kwargs)
        for name in kwargs:
            raise TypeError(f"{type(self).__name__} has no parameter {name!r}.")

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``constraint_solver__tau``."""
        return super().set_params(**set_solver_options(self, params))

    def __sklearn_tags__(self) -> Any:
        return with_constraints(super().__sklearn_tags__(), self.constraints, self.positive)

    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        datasets: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        time_limit: float | None = None,
    ) -> ConstrainedLogisticRegression:
        """Fit the classifier under its constraints.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Features.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights, in the objective and in the rates.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns, one value per training row, that constraints may group by. Columns of X are
            found there when X is a DataFrame. Prediction never needs them.
        datasets : dict from name to X or (X, y), default=None
            Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are
            not in the objective. Prepared as X is, for no step of a ``Pipeline`` transforms them;
            their groups are columns of X.
        constraint_callbacks : sequence of callable, default=None
            Called in each iteration with a
            :class:`~gbm_constrained.training.callbacks.ConstraintState`; when one returns True, it
            is the last one.
        time_limit : float, default=None
            Seconds after which the iterations end. The model is then the best of those so far,
            as after `n_iterations`, which ``stopping_message_`` and a warning say.

        Raises
        ------
        TypeError, ValueError
            If a parameter is not supported under constraints, or constraints, labels and weights
            do not fit together; before training starts.
        """
        options = SolverOptions.of(self)
        if not options.constraints:
            refuse_time_limit_without_constraints(time_limit)
            super().fit(X, y, sample_weight)
            remove_report(self)
            return self
        if options.iterate in ("best", "randomized"):
            raise ValueError(
                f"iterate={options.iterate!r} is about prefixes of an ensemble, and a linear "
                f"model has none: use 'last' or 'ergodic'."
            )
        self._check_supported(options)
        sample_weight = weight_of_rows(sample_weight, y)
        check_consistent_length(X, y, sample_weight)
        check_classification_targets(y)
        make_fit = functools.partial(
            ConstrainedFit,
            arguments=FitArguments(X, y, sample_weight, sensitive_features, datasets),
            library=LibrarySettings(
                1.0,
                self.n_iterations,
                objective_factor=functools.partial(
                    self._class_factor, sample_weight=sample_weight
                ),
                unit="iterations",
                is_lazy=False,  # data that a line separates have no unconstrained optimum
            ),
            progress=Progress("iteration") if self.verbose else None,
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        fit = make_fit(options)
        fit.measure()
        fit.data.alignment.warn()
        with saving.unchanged_on_error(self):
            given = self._coefficients() if self.warm_start and hasattr(self, "coef_") else None
            start = self._unconstrained(X, y, sample_weight)
            start = start if given is None else given
            learner = self._learner(fit)
            start = start.T.reshape(learner.shape)
            if isinstance(fit.solver, CBPRSolver):
                feasible = self._feasible(learner, start, fit)
                if feasible is not None:
                    start = feasible
                else:
                    with warnings.catch_warnings():
                        warnings.simplefilter("ignore")  # the first fit has given them
                        fit = make_fit(options.with_abpp())
                        fit.measure()
                    learner = self._learner(fit)
            ends, solution = self._follow(fit, learner, start, options)
            weights, n_iterations = ends.chosen()
            may_miss = fit.notifier.is_out_of_time or not fit.notifier.is_stopped
            is_told = may_miss and self._check_converged(ends, weights, fit.notifier)
            margin = learner.margin(weights)
            layout = ReportLayout(fit.problem.compiled, ())
            model = FinalModel(n_iterations, np.zeros(fit.data.columns), layout)
            model = describe_training_rows(fit, model, Scores(margin, margin))
            self.coef_, self.intercept_ = learner.coefficients(weights)
            self.n_iter_ = np.array([len(solution.history)], dtype=np.int32)
            is_stopped = fit.notifier.is_stopped
            done = len(solution.history) if is_stopped else self.n_iterations
            # A solution that has converged is whole.
            feasibility = report(self, fit, model, done)
        if not is_told:
            warn(fit, model, feasibility)
        fit.notifier.warn()
        return self

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _unconstrained(self, X: Any, y: Any, sample_weight: Any) -> Float:
        """Coefficients of the parent's own fit, the intercept last: where ABPP starts."""
        with warnings.catch_warnings():  # the start need not be exact
            warnings.simplefilter("ignore", ConvergenceWarning)
            super().fit(X, y, sample_weight)
        return self._coefficients()

    def _coefficients(self) -> Float:
        """Coefficients as they are, the intercept last."""
        parts = [self.coef_, self.intercept_[:, None]] if self.fit_intercept else [self.coef_]
        return np.hstack(parts, dtype=np.float64)

    def _learner(self, fit: ConstrainedFit) -> LinearLearner:
        X = validate_data(
            self, fit.data.combined.X, accept_sparse="csr", dtype=np.float64, reset=False
        )
        lagrangian = fit.solver.lagrangian
        unpenalised = self.penalty is None or np.isinf(self.C)
        return LinearLearner(
            lagrangian,
            X,
            fit_intercept=self.fit_intercept,
            l2=0.0 if unpenalised else 1.0 / (self.C * lagrangian.total_weight),
            metric="scores",
        )

    def _follow(
        self, fit: ConstrainedFit, learner: LinearLearner, start: Float, options: SolverOptions
    ) -> tuple[_Ends, Solution]:
        """Iterate from a start until the solution has converged, or a callback stops."""
        assert isinstance(fit.solver, OuterLoop)
        method = options.method
        adaptive = method.sigma is None and method.outlier_clip is None
        ends = _Ends(learner, options, self.tol)
        announcer = fit.notifier
        announcer.is_training_over(0)  # which begins to count the time

        def is_over(n_iterations: int) -> bool:
            return announcer.is_training_over(n_iterations) or announcer.is_stopped

        try:
            for solution in learner.path(
                self.n_iterations, self.tol, start, fit.solver, adaptive, is_over
            ):
                ends.add(solution)
                if ends.converged:
                    break
        finally:
            fit.run.hide_progress()
        return ends, solution

    def _feasible(self, learner: LinearLearner, start: Float, fit: ConstrainedFit) -> Float | None:
        """Start of CBPR, which meets the constraints; None where "auto" had better take ABPP."""
        lagrangian = learner.lagrangian
        prior, uniform = np.zeros(learner.shape), np.zeros(learner.shape)
        if self.fit_intercept:
            prior[-1] = lagrangian.constant_scores
        for share in np.linspace(1.0, 0.0, STEPS + 1):
            for constant in (prior, uniform):
                weights = share * start + (1.0 - share) * constant
                if learner.violations(weights).max() <= FEASIBLE:
                    return np.asarray(weights)
        # Groups have the same loss at equal probabilities. From there CBPR lowers the objective,
        # and what is bounded with it, while no rule is violated more.
        solver = learner.solver(CBPRSolver)
        g = learner.violations(uniform)
        solver.bounds = solver.bounds + np.maximum(g, 0.0)

        def is_over(n_iterations: int) -> bool:
            return not fit.notifier.limit.has_time_for(0.0)

        for solution in learner.path(
            self.n_iterations, self.tol, uniform, solver, is_over=is_over
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

    def _class_factor(self, classes: Array, y: Array, sample_weight: Any) -> Array:
        weights = self.class_weight
        if isinstance(weights, dict):
            weights = {k: weights[c] for k, c in enumerate(classes.tolist()) if c in weights}
        given = {"sample_weight": sample_weight} if _WEIGHTED_BALANCE else {}
        positions = np.arange(classes.size)
        return np.asarray(compute_class_weight(weights, classes=positions, y=y, **given))

    def _check_supported(self, options: SolverOptions) -> None:
        """Refuse parameters of the parent that have no meaning under constraints."""
        n = self.n_iterations
        if isinstance(n, bool) or not isinstance(n, (int, np.integer)) or n < 1:
            raise ValueError(f"n_iterations must be an integer >= 1, got {n!r}.")
        remedies = {
            "penalty": "constraints take an L2 penalty (C) or none (C=np.inf)",
            "l1_ratio": "constraints take an L2 penalty: use l1_ratio=0 and set C",
            "dual": "use dual=False",
            "intercept_scaling": "the intercept is not penalised: use intercept_scaling=1",
            "solver": "'liblinear' penalises the intercept: use solver='lbfgs'",
        }
        refused = {
            "penalty": self.penalty not in (None, "l2", "deprecated"),
            "l1_ratio": self.l1_ratio not in (None, 0),
            "dual": self.dual,
            "intercept_scaling": self.intercept_scaling != 1,
            "solver": self.solver == "liblinear",
        }
        for name, remedy in remedies.items():
            if refused[name]:
                value = getattr(self, name)
                raise ValueError(f"{name}={value!r} is not supported under constraints: {remedy}.")

    def _check_converged(self, ends: _Ends, weights: Float, announcer: Announcer) -> bool:
        """Warn where the solver has not converged; return whether a missed rule was named."""
        stopped = f"The solver stopped after n_iterations={self.n_iterations}"
        more = "increase n_iterations"
        if announcer.is_out_of_time:
            stopped, more = f"The solver stopped at {announcer.limit}", "increase time_limit"
        remedy = f"{more}, scale the features, or relax constraints that cannot all"
        if not ends.has_rates and not ends.converged:
            what = "an average whose residual is" if ends.ergodic else "a residual of"
            issue_warning(
                f"{stopped} with {what} {ends.residual:.1e} > tol={self.tol}: {remedy} be met.",
                "GC304",
            )
        excess = ends.excess(weights)
        is_missed = bool(ends.has_rates and excess.any())
        if is_missed:
            worst = int(excess.argmax())
            rule = ends.learner.lagrangian.constraints.rows[worst]
            if ends.ergodic:
                found, remedy = "the average of all iterates", f"use iterate='last', {remedy}"
            else:
                found = "no iterate met the rules. The one that is returned"
            issue_warning(
                f"{stopped}, and {found} violates {rule} by {excess[worst]:.3g} on the training "
                f"rows: {remedy} be met.",
                "GC107",
            )
        return is_missed


class _Ends:
    """Which iterate is returned.

    0-1 rates jump about their bounds to the end. Where the last iterate violates a rule, the best
    that met all takes its place: that of least objective, or if none did, of least violation. The
    average of all iterates converges as one over their number, after the last one.
    """

    def __init__(self, learner: LinearLearner, options: SolverOptions, tol: float) -> None:
        self.learner = learner
        self.ergodic = options.iterate == "ergodic"
        is_loss = np.array([c.is_loss for c in options.constraints])
        self.has_rates = not is_loss.all()
        # Mean losses end within `tol` of their bounds, on either side.
        self._slack = np.where(is_loss[learner.lagrangian.constraints.owner], tol, ROUNDING)
        self.tol = tol
        self._best: tuple[tuple[float, bool, float], Float, int] | None = None

    def excess(self, weights: Float) -> Float:
        """Violation of each row of constraints, zero where it is rounding."""
        g = self.learner.violations(weights)
        return np.where(g > self._slack, g, 0.0)

    def add(self, solution: Solution) -> None:
        """Take note of the next iterate."""
        weights, n = solution.weights, len(solution.history)
        self.residual, self.converged = solution.residual, solution.converged
        if self.ergodic:
            weights = solution.average_weights
            self.residual = max(self.residual, self._residual_of_average(solution))
            self.converged &= self.residual <= self.tol
        self._last = weights, n
        if self.ergodic or not self.has_rates:
            return
        worst = float(self.excess(weights).max(initial=0.0))
        self._is_met = worst == 0.0
        # A constant model, which CBPR may start from, has the least loss where rules ask for much.
        is_start = np.isinf(solution.residual)
        rank = worst, is_start, self.learner.objective(weights) if self._is_met else 0.0
        if self._best is None or rank <= self._best[0]:
            self._best = rank, weights, n

    def _residual_of_average(self, solution: Solution) -> float:
        """Feasibility and complementarity of the ergodic iterates."""
        moved = solution.history[-1].bounds - self.learner.lagrangian.constraints.b
        g = self.learner.violations(solution.average_weights) - moved
        return float(np.abs(np.maximum(g, -solution.average_multipliers)).max(initial=0.0))

    def chosen(self) -> tuple[Float, int]:
        """Weights of the returned model, and after how many iterations they were reached."""
        if self._best is None or self._is_met:
            return self._last
        return self._best[1:]
