"""Linear support vector machines under constraints, by ramp rates."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
import pandas as pd
from scipy import sparse
from sklearn.svm import LinearSVC
from sklearn.utils import check_random_state, column_or_1d
from sklearn.utils.validation import check_is_fitted, validate_data

from gbm_constrained._docstrings import document_parameters
from gbm_constrained._findings import issue_warning
from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import refuse_priorities
from gbm_constrained.constraints.checking import (
    check_constraints,
    check_linear,
    check_straight,
    check_task,
)
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_choice, check_integer, is_finite_number
from gbm_constrained.decision.rules import Scores
from gbm_constrained.fit import model_note as saving
from gbm_constrained.fit.callbacks import ConstraintCallback, Progress, TimeLimit
from gbm_constrained.fit.finalize import (
    FinalModel,
    ReportLayout,
    describe_training_rows,
    report,
    warn,
)
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.fitted_report import FittedAttribute
from gbm_constrained.fit.options import SolverOptions, with_known_parameters
from gbm_constrained.linear_model.base import (
    FIT_PARAMETERS,
    ConstrainedLinearModel,
    check_rows,
    set_parameters,
)
from gbm_constrained.linear_model.hinge import WeightedSVM
from gbm_constrained.solvers.abpp import ABPP
from gbm_constrained.solvers.base import Record, check_positive
from gbm_constrained.solvers.cutting_plane import Chooser, CuttingPlane
from gbm_constrained.solvers.dataset_rates import (
    Loss,
    Losses,
    MajorizationMinimization,
    MajorizationStep,
    RateProblem,
    Start,
    find_intercept_shift,
    find_start,
    ramp,
    rate_problem_of,
)

Prediction: TypeAlias = Literal["deterministic", "randomized"]


class ConstrainedLinearSVC(ConstrainedLinearModel, LinearSVC):
    r"""Linear support vector machine trained under constraints on its decisions.

    A real :class:`sklearn.svm.LinearSVC`: ``constraints=[]`` is the parent's own fit. Under
    constraints the problem is that of Goh et al. (2016): with the ramp
    :math:`\sigma(z) = \max(0, \min(1, \tfrac12 + z))` in the place of a positive decision, with W
    the total weight of the rows (sample weights times class weights), and with scores z,

        min (weighted rate of errors) + ||coef||^2 / (C W)   s.t.   rate_j <= bound_j

    The rates are those that a classifier has in expectation, on the training rows, which decides
    positively with probability :math:`\sigma(z)`. Majorisation-minimisation keeps all constraints
    in every step, and bounds how far each step is from the optimum of its convex problem. Scores
    are half of the parent's, whose margin is one: with hinges in the place of ramps and without
    constraints, the problem is that of ``LinearSVC(loss="hinge")``, but for the intercept. That is
    not penalised, and `intercept_scaling` does not enter. Constraints must be linear in the
    decisions of two classes. See [1]_.

    Parameters
    ----------
    penalty, loss, dual, tol, C, multi_class, fit_intercept, intercept_scaling, class_weight
        Those of the parent. Under constraints the penalty is L2 and the intercept is fitted, `tol`
        is the progress relative to the objective at which the steps end, and `loss`, `dual`
        and `intercept_scaling` do not enter.
    verbose, random_state, max_iter
        Those of the parent. Under constraints `verbose` shows the progress, and the others do not
        enter.
    constraints : Constraint or sequence of Constraint, default=None
        The constraints, such as ``[fnr() <= 0.05]`` (see
        :mod:`gbm_constrained.constraints.rates`). Without any, the parent's own ``fit`` is called.
    positive : label, default=None
        The positive class of all rates that name none; the last of two sorted labels by default.
    objective_loss : {"ramp", "hinge"}, default="ramp"
        What stands for errors in the objective.
    constraint_loss : {"ramp", "hinge"}, default="ramp"
        What stands for decisions in the constraints. The hinge is the convex relaxation, for
        comparison: one row of a large score can make it infeasible.
    prediction : {"deterministic", "randomized"}, default="deterministic"
        Whether ``predict`` decides by the sign of the score, or positively with probability
        :math:`\sigma(z)`. A score of zero is decided negatively, as by the parent, and positively
        in the paper.
    n_iterations : int, default=8
        Most steps. Decisions by the sign are best on held-out rows after four to ten of them, and
        randomised ones gain a little up to about twenty. A
        :class:`~sklearn.exceptions.ConvergenceWarning` says where the last step still lowered the
        objective by more than a hundredth.
    initial_model : linear classifier, default=None
        A fitted model with ``coef_`` and ``intercept_``, such as a deployed one, to start from.
        Its scores are multiplied by a factor with which they meet the constraints. A warning
        (GC309) says that there is none, and the fit starts without the model.
    chooser : {"maximum", "centroid"}, default="maximum"
        Search for the multipliers; see
        :class:`~gbm_constrained.solvers.cutting_plane.CuttingPlane`.

    Attributes
    ----------
    certificate_ : DataFrame
        The start and one row per step: ramp objective with penalty, largest ramp violation, lower
        and upper bound of the convex problem of the step, cuts, Newton steps and seconds. The
        first row has the factor of `initial_model`, and the last one the shift of the intercept
        with which the deterministic decisions meet the constraints, NaN where there is none.
    ramp_values_ : Series
        What each constraint bounds, with expected rates of randomised decisions on the training
        rows.
    constraint_report_, group_report_, history_, small_groups_ : DataFrame
        Those of :class:`~gbm_constrained.ConstrainedLogisticRegression`, of deterministic
        decisions.
    feasibility_ : Feasibility
        The verdict on each constraint as an object.
    multipliers_ : Series
        Multipliers of the last convex problem, by linear row of the constraints.
    n_iter_ : int
        Steps.
    stopping_message_ : str or None
        Why the fit ended early, by a callback or the time limit; None for a whole fit.

    References
    ----------
    .. [1] Goh, Cotter, Gupta and Friedlander, "Satisfying Real-world Goals with Dataset
       Constraints", 2016.

    Examples
    --------
    >>> from sklearn.datasets import load_breast_cancer
    >>> from gbm_constrained import ConstrainedLinearSVC, fpr
    >>> X, y = load_breast_cancer(return_X_y=True)
    >>> clf = ConstrainedLinearSVC(constraints=[fpr() <= 0.05]).fit(X / X.std(axis=0), y)
    >>> bool(clf.certificate_["violation"].max() <= 1e-9)
    True
    """

    certificate_: Any = FittedAttribute()
    ramp_values_: Any = FittedAttribute()

    @with_known_parameters
    def __init__(
        self,
        penalty: str = "l2",
        loss: str = "squared_hinge",
        *,
        dual: Any = "auto",
        tol: float = 1e-4,
        C: float = 1.0,
        multi_class: str = "ovr",
        fit_intercept: bool = True,
        intercept_scaling: float = 1,
        class_weight: Any = None,
        verbose: int = 0,
        random_state: Any = None,
        max_iter: int = 1000,
        constraints: Any = None,
        positive: Any = None,
        objective_loss: Loss = "ramp",
        constraint_loss: Loss = "ramp",
        prediction: Prediction = "deterministic",
        n_iterations: int = 8,
        initial_model: Any = None,
        chooser: Chooser = "maximum",
    ) -> None:
        set_parameters(self, locals())

    @with_known_parameters
    @functools.partial(document_parameters, shared=FIT_PARAMETERS)
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
    ) -> ConstrainedLinearSVC:
        """Fit the classifier under its constraints.

        Parameters
        ----------
        datasets : dict from name to X or (X, y), default=None
            Further rows that a constraint may be taken over, with ``on=dataset(name)``. They are
            not in the objective, and need no labels where a constraint asks for none.
        time_limit : float, default=None
            Seconds after which the steps end.

        Raises
        ------
        TypeError, ValueError
            If a parameter is not supported under constraints, or constraints, labels and weights
            do not fit together; before training starts.
        InfeasibleConstraintsError
            If no scores were found whose ramp rates meet the constraints.
        """
        constraints = check_constraints(self.constraints)
        if not constraints:
            return self._fit_without_constraints(X, y, sample_weight, time_limit)
        check_linear(constraints)
        refuse_priorities(constraints, "ramp rates all keep their bounds: leave with_priority out")
        check_task(constraints, predicts_numbers=False)
        check_straight(constraints, type(self).__name__, "use ConstrainedLogisticRegression")
        self._check_parameters()
        column_or_1d(y, warn=True)  # A column of labels is warned of, as by the parent.
        sample_weight = check_rows(X, y, sample_weight)
        fit = ConstrainedFit(
            SolverOptions(constraints, self.positive, method=ABPP(rounds_per_iteration=1)),
            FitArguments(X, y, sample_weight, sensitive_features, datasets),
            self._settings(sample_weight),
            progress=Progress("iteration") if self.verbose else None,
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        fit.measure()
        fit.data.alignment.warn()
        with saving.unchanged_on_error(self):
            self._solve(fit)
        return self

    def _solve(self, fit: ConstrainedFit) -> None:
        """Solve the ramp problem, and set the fitted attributes.

        The penalty is ``2 / (C W)``: scores are half of those of a margin of one.
        """
        accepted = {"accept_sparse": "csr", "dtype": np.float64}
        validate_data(self, fit.data.arguments.X, **accepted)  # Names and number of the features.
        rows = validate_data(self, fit.data.combined.X, reset=False, **accepted)
        classes, compiled = fit.data.classes, fit.problem.compiled
        problem = rate_problem_of(fit.problem.cells, compiled, fit.problem.factors)
        svm = WeightedSVM(rows, 2.0 / (self.C * fit.solver.lagrangian.total_weight))
        losses, limit = Losses(self.objective_loss, self.constraint_loss), fit.notifier.limit
        search = CuttingPlane(
            chooser=self.chooser, is_over=lambda: not limit.has_time_for(seconds=0.0)
        )
        method = MajorizationMinimization(losses, self.n_iterations, self.tol, search=search)
        given = self._coefficients_to_start_from(classes)
        start = find_start(problem, svm, method, given)
        steps = take_steps(fit, problem, svm, method, start)
        coefficients = steps[-1].coefficients.copy()
        shift = find_intercept_shift(problem, svm.scores(coefficients), losses)
        if shift is not None:  # Deterministic decisions meet the constraints there.
            coefficients[-1] += shift
        self.classes_, self.n_iter_ = classes, len(steps) - 1
        self.coef_, self.intercept_ = coefficients[None, :-1], coefficients[-1:]
        z = svm.scores(coefficients)
        model = FinalModel(self.n_iter_, np.zeros(1), ReportLayout(compiled, ()))
        model = describe_training_rows(fit, model, Scores(z, z))
        done = self.n_iter_ if fit.notifier.is_stopped else self.n_iterations
        feasibility = report(self, fit, model, done)
        names = ("objective", "violation", "lower", "upper", "n_cuts", "n_steps", "seconds")
        table = pd.DataFrame({name: [getattr(step, name) for step in steps] for name in names})
        table["factor"] = [start.factor, *[np.nan] * self.n_iter_]
        table["shift"] = [*[np.nan] * self.n_iter_, np.nan if shift is None else shift]
        self.certificate_ = table
        # What each constraint bounds, with expected rates of randomised decisions.
        shares = [problem.shares @ ramp(-z), problem.shares @ ramp(z)]
        no_loss = np.zeros(len(shares[0]))
        expected = CellStatistics(np.column_stack(shares), no_loss, no_loss)
        values = compiled.values(compiled.functionals(expected))
        self.ramp_values_ = pd.Series(values, compiled.names, name="ramp value")
        warn(fit, model, feasibility)
        if given is not None and np.isnan(start.factor):
            issue_warning(
                "initial_model is not what the fit started from: no multiple of its scores was "
                "found whose ramp rates meet the constraints. The fit started from a constant "
                "score or from the smallest violation: give a model that is nearer to the "
                "constraints, relax these, or leave initial_model out.",
                "GC309",
            )
        is_short = self.n_iter_ == self.n_iterations and not fit.notifier.is_stopped
        warn_of_last_step(steps, is_short=is_short)
        fit.notifier.warn()

    def predict(self, X: Any, *, random_state: Any = None) -> Any:
        """Predict classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        random_state : int, RandomState or None, default=None
            Source of the decisions of ``prediction="randomized"``; the parameter of the classifier
            by default. Deterministic decisions draw nothing, and are the same with any.
        """
        check_is_fitted(self)
        is_constrained = "certificate_" in vars(self)
        if not is_constrained or self.prediction == "deterministic":
            return super().predict(X)
        source = check_random_state(self.random_state if random_state is None else random_state)
        probability = ramp(self.decision_function(X))
        decided = source.random_sample(probability.size) < probability
        return self.classes_[decided.astype(np.intp)]

    def _check_parameters(self) -> None:
        """Refuse parameters that have no meaning under constraints, or wrong values."""
        check_choice("objective_loss", self.objective_loss, get_args(Loss))
        check_choice("constraint_loss", self.constraint_loss, get_args(Loss))
        check_choice("prediction", self.prediction, get_args(Prediction))
        check_choice("chooser", self.chooser, get_args(Chooser))
        check_integer("n_iterations", self.n_iterations, 1)
        if not (is_finite_number(self.tol) and self.tol >= 0):
            raise ValueError(f"tol must be a number of at least zero, got {self.tol!r}.")
        check_positive("C", self.C)
        if self.penalty != "l2":
            raise ValueError(
                f"penalty={self.penalty!r} is not supported under constraints: use penalty='l2'."
            )
        if not self.fit_intercept:
            raise ValueError(
                "fit_intercept=False is not supported under constraints, which a constant score "
                "may have to meet: use fit_intercept=True."
            )

    def _coefficients_to_start_from(self, classes: Any) -> Float | None:
        """Read the coefficients of the initial model, with the intercept last."""
        model = self.initial_model
        if model is None:
            return None
        if not hasattr(model, "coef_"):
            raise TypeError(
                f"initial_model={model!r} has no coef_: give a fitted linear classifier, or None."
            )
        # After ``sparsify`` the coefficients are a sparse array.
        given = cast(Any, model.coef_).toarray() if sparse.issparse(model.coef_) else model.coef_
        coef = np.ravel(given).astype(np.float64)
        if coef.size != self.n_features_in_:
            raise ValueError(
                f"initial_model has {coef.size} coefficients, and X has {self.n_features_in_} "
                f"features: give a model of two classes that was fitted on the same features."
            )
        if not np.array_equal(model.classes_, classes):
            raise ValueError(
                f"initial_model has the classes {model.classes_.tolist()}, and y has "
                f"{classes.tolist()}: give a model of the same classes."
            )
        return np.append(coef, np.ravel(model.intercept_))


def take_steps(
    fit: ConstrainedFit,
    problem: RateProblem,
    svm: WeightedSVM,
    method: MajorizationMinimization,
    start: Start,
) -> list[MajorizationStep]:
    """Take steps until the progress is small, a callback ends them, or time is over.

    The history of the fit's solver gets a record of each, with the multipliers of the next one.
    """
    notifier, solver = fit.notifier, fit.solver
    lagrangian = solver.lagrangian
    steps: list[MajorizationStep] = []
    notifier.is_training_over(0)  # The call starts the clock of the time limit.
    try:
        for step in method.iterate(problem, svm, start.coefficients):
            steps.append(step)
            if len(steps) > 1:
                iteration = len(steps) - 2
                statistics = lagrangian.at(svm.scores(steps[-2].coefficients)).statistics()
                functionals = lagrangian.constraints.functionals(statistics)
                record = Record(
                    iteration=iteration,
                    rounds=iteration,
                    objective=lagrangian.objective(statistics),
                    error=lagrangian.error(statistics),
                    rates=lagrangian.constraints.rows_of(functionals),
                    functionals=functionals,
                    bounds=lagrangian.constraints.b,
                    multipliers=step.multipliers,
                    bregman=np.nan,
                    seconds=solver.elapsed,
                )
                solver.multipliers = step.multipliers
                solver.history.append(record)
                if solver.callback is not None:
                    solver.callback(record)
                if notifier.is_training_over(len(steps) - 1) or notifier.is_stopped:
                    break
            if method.is_over(steps):
                break
    finally:
        fit.hide_progress()
    return steps


def warn_of_last_step(steps: Sequence[MajorizationStep], *, is_short: bool) -> None:
    """Warn of bounds that have not closed, and of steps that ended far from the optimum."""
    last, step = steps[-2:]
    if step.upper - step.lower > step.asked:
        issue_warning(
            f"The search for multipliers ended after {step.n_cuts} cuts, and the optimum of "
            f"the last step is known to {step.upper - step.lower:.1e}, where "
            f"{step.asked:.1e} was asked for: raise tol or time_limit, or relax constraints "
            f"that can hardly be met.",
            "GC304",
        )
    progress = last.objective - step.objective
    # Progress of a last step, relative to the objective, that leaves much to gain.
    if is_short and progress > 0.01 * abs(step.objective):
        issue_warning(
            f"The last of n_iterations={len(steps) - 1} steps still lowered the objective by "
            f"{progress:.2g} to {step.objective:.3g}: raise n_iterations.",
            "GC304",
        )
