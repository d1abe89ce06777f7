"""Logistic regression under constraints, for metrics and for black-box metrics.

Decisions are found by the probabilities of models that have not seen the rows, as with boosters.
The model that decides is the parent's own, of all rows (Narasimhan et al., "Consistent
Multiclass Algorithms for Complex Metrics and Constraints", section 8).
"""

from __future__ import annotations

import functools
import inspect
import io
import warnings
from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, ClassVar, cast, get_args

import numpy as np
from scipy import sparse
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression
from sklearn.utils.extmath import safe_sparse_dot
from sklearn.utils.sparsefuncs import mean_variance_axis
from sklearn.utils.validation import check_random_state, validate_data

from gbm_constrained._dataframes import take_rows
from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import check_integer, preserve_random_state
from gbm_constrained.decision.rules import Scores
from gbm_constrained.fit import model_note as saving
from gbm_constrained.fit.black_box_fit import BlackBoxMixin, refuse_arguments
from gbm_constrained.fit.callbacks import ConstraintCallback, Progress, TimeLimit
from gbm_constrained.fit.finalize import (
    FinalModel,
    ReportLayout,
    describe_training_rows,
    report,
    warn,
)
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.metric_fit import MetricMixin
from gbm_constrained.fit.native_models import IsOver, NativeAdapter, PartRows, multiply_weight
from gbm_constrained.fit.options import (
    LINEAR_SOLVER,
    Iterate,
    SolverName,
    SolverOptions,
    with_known_parameters,
)
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.linear_model.base import (
    ConstrainedLinearModel,
    check_rows,
    document_fit,
    set_parameters,
)
from gbm_constrained.metrics.reading import read_black_box
from gbm_constrained.solvers.base import Reduction, SolverMethod


class LinearParameters:
    r"""Coefficients in units of one over the standard deviation of their features.

    In these units a perturbation changes the scores by as much with every feature.

    Parameters
    ----------
    model : LogisticRegression
        A trained model of two classes.
    X : array-like or sparse matrix of shape (n_samples, n_features)
        Training rows.
    weight : array-like of shape (n_samples,), default=None
        Their weights, in the standard deviations.
    """

    def __init__(self, model: Any, X: Any, weight: Any = None) -> None:
        self.model = model
        table = self._read(X)
        shares = None if weight is None else np.asarray(weight, dtype=np.float64)
        if sparse.issparse(table):
            variance = mean_variance_axis(table, axis=0, weights=shares)[1]
        else:
            mean = np.average(table, axis=0, weights=shares)
            variance = np.average(np.square(table - mean), axis=0, weights=shares)
        deviation = np.sqrt(variance)
        self._deviation: Float = np.where(deviation > 0.0, deviation, 1.0)
        names = getattr(model, "feature_names_in_", range(self._deviation.size))
        self.names = [f"coef[{name}]" for name in names]
        self.start: Float = model.coef_[0] * self._deviation
        self.base = float(model.intercept_[0])

    def _read(self, X: Any) -> Any:
        return validate_data(self.model, X, accept_sparse="csr", dtype=np.float64, reset=False)

    def score_columns(self, X: Any, beside: Array) -> Any:
        """Divide features by their standard deviations, and put further columns beside them."""
        table: Any = self._read(X)
        if sparse.issparse(table):
            scaled = cast(Any, table).multiply(1.0 / self._deviation)
            return sparse.hstack([scaled, sparse.csr_array(beside)], format="csr")
        return np.hstack([table / self._deviation, beside])

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the coefficients, and add to the intercept."""
        self.model.coef_ = (parameters / self._deviation)[None]
        self.model.intercept_ = self.model.intercept_ + intercept


class LogisticAdapter(NativeAdapter):
    """Arguments of one ``fit``, and how it is left to scikit-learn.

    The parameters of the trained model are the coefficients.

    Parameters
    ----------
    model : LogisticRegression
        The classifier.
    native : callable
        The parent's own ``fit``.
    rows : FitArguments
        The training rows.
    """

    takes_offsets: ClassVar[bool] = False

    def __init__(self, model: Any, native: Callable[..., Any], rows: FitArguments) -> None:
        self.model, self.native = model, native
        self._settings: LibrarySettings = model._settings(rows.sample_weight)
        self.X, self.y, self.sample_weight = rows.X, rows.y, rows.sample_weight

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""
        return self._settings

    def check_adjustable(self, space: str) -> None:
        """Refuse spaces of a booster."""
        if space != "trees":
            raise ValueError(
                f"space={space!r} is about the trees of a booster, and the parameters of a linear "
                f"model are its coefficients: leave space= out."
            )

    def restrict(self, rows: Codes) -> None:
        """Leave out all training rows but some."""
        self.X, self.y = take_rows(self.X, rows), take_rows(self.y, rows)
        if self.sample_weight is not None:
            self.sample_weight = take_rows(self.sample_weight, rows)

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        model.fit(self.X, self.y, self.sample_weight, sensitive_features=rows.sensitive_features)

    def adjustable(self, space: str) -> LinearParameters:
        """Give access to the coefficients."""
        return LinearParameters(self.model, self.X, self.sample_weight)

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        """Call the parent's own ``fit``, which nothing ends early."""
        self.native(self.X, self.y, multiply_weight(self.sample_weight, factor))

    def fit_part(self, part: PartRows) -> LogisticModel:
        """Train scikit-learn's own model on some of the rows."""
        with preserve_random_state(self.model):
            own = self.model.get_params(deep=False)
        plain = LogisticRegression()
        plain.set_params(**{name: own[name] for name in plain.get_params() if name in own})
        if part.is_joint:
            plain.set_params(class_weight=None)
        weight = part.take_weight(self.sample_weight)
        X, y = part.take_features(), part.take_labels(self.y)
        return LogisticModel(plain.fit(X, y, weight))

    def can_fold(self) -> bool:
        """Whether a shift of scores can be added to the trained model."""
        return True

    def add_to_margin(self, shift: Array) -> None:
        """Add to all scores that the trained model predicts."""
        self.model.intercept_ = self.model.intercept_ + shift


class LogisticModel:
    """A model that scikit-learn has trained.

    Parameters
    ----------
    model : LogisticRegression
        The model.
    """

    def __init__(self, model: LogisticRegression) -> None:
        self.model = model

    def margin(self, X: Any, rows: Codes) -> Array:
        """Score rows of X."""
        return np.asarray(self.model.decision_function(X))

    def to_bytes(self) -> bytes:
        """Write coefficients and intercepts."""
        file = io.BytesIO()
        np.savez(file, coef=self.model.coef_, intercept=self.model.intercept_)
        return file.getvalue()


def read_options(estimator: Any) -> SolverOptions:
    """Read the options of constraints, and refuse solvers of the parent that do not go with them.

    A metric is optimised over decisions by the probabilities of all classes.
    """
    given = estimator.solver
    is_name = isinstance(given, str) and given in get_args(SolverName)
    if is_name or isinstance(given, (SolverMethod, Reduction)):
        raise ValueError(
            f"solver={given!r} is for constraints, and solver is the parameter of scikit-learn's "
            f"LogisticRegression here: give {LINEAR_SOLVER}={given!r}."
        )
    options = SolverOptions.of(estimator)
    if options.metric is not None and given == "liblinear":
        raise ValueError(
            "solver='liblinear' fits one model for each class, and a metric is optimised over "
            "decisions by the probabilities of all classes: use solver='lbfgs'."
        )
    return options


def check_parameters(estimator: Any) -> None:
    """Refuse parameters of the parent that have no meaning under constraints."""
    if estimator.iterate in ("best", "randomized"):
        raise ValueError(
            f"iterate={estimator.iterate!r} is about prefixes of an ensemble, and a linear model "
            f"has none: use 'last' or 'ergodic'."
        )
    check_integer("n_iterations", estimator.n_iterations, 1)
    refused = {
        "penalty": (
            estimator.penalty not in (None, "l2", "deprecated"),
            "constraints take an L2 penalty (C) or none (C=np.inf)",
        ),
        "l1_ratio": (
            estimator.l1_ratio not in (None, 0),
            "constraints take an L2 penalty: use l1_ratio=0 and set C",
        ),
        "dual": (estimator.dual, "use dual=False"),
        "intercept_scaling": (
            estimator.intercept_scaling != 1,
            "the intercept is not penalised: use intercept_scaling=1",
        ),
        "solver": (
            estimator.solver == "liblinear",
            "'liblinear' penalises the intercept: use solver='lbfgs'",
        ),
    }
    for name, (is_refused, remedy) in refused.items():
        if is_refused:
            value = getattr(estimator, name)
            raise ValueError(f"{name}={value!r} is not supported under constraints: {remedy}.")


# scikit-learn 1.8 changed the defaults of `penalty` and `l1_ratio` and dropped `multi_class`.
_PENALTY, _L1_RATIO = (
    inspect.signature(LogisticRegression).parameters[name].default
    for name in ("penalty", "l1_ratio")
)


class ConstrainedLogisticRegression(
    ConstrainedLinearModel, BlackBoxMixin, MetricMixin, LogisticRegression
):
    """Logistic regression trained under constraints on its error rates or its ranking.

    A real :class:`sklearn.linear_model.LogisticRegression`: ``constraints=[]`` is the parent's
    own fit, and under constraints ``coef_`` and ``intercept_`` are what the parent's ``predict``
    and ``predict_proba`` take. The problem is the parent's, divided by the total weight W (sample
    weights times class weights),

        min (1/W) sum_i w_i l(F(x_i), y_i) + ||coef||^2 / (2 C W)   s.t.   rate_j <= bound_j

    ABPP solves the problem with exact subproblems in the distance of scores, from the parent's
    solution: the units of the features do not matter. Under mean-loss constraints the problem is
    convex, and its optimum is reached up to `tol`. A 0-1 rate or a pair rate moves its multiplier
    by its exact value, and the subproblem holds its proxy. Such a rate swings about its bound by a
    few rows, and an iterate that meets the constraints is returned if there is one. An order of
    rows has no scale: under pair rates the scores of two classes are multiplied, at the end, by
    the factor of least objective. A difference of mean losses, such as their gap between groups,
    is not convex. CBPR then goes to a KKT point from a model that meets the constraints: the
    parent's solution, the nearest such model on the way to a constant one, or a model that CBPR
    reaches from equal probabilities.

    Parameters
    ----------
    penalty, C, l1_ratio, dual, tol, fit_intercept, intercept_scaling, class_weight, \
random_state, solver, max_iter, verbose, warm_start, n_jobs
        As in the parent. Constraints take an L2 penalty or none; `class_weight` weights the
        objective and not the rates; `tol` is also the residual at which ABPP stops (see
        :class:`~gbm_constrained.linear_model.Solution`); `solver`, `max_iter`, `random_state` and
        `n_jobs` are about the parent's solution. With ``warm_start=True`` the start is `coef_` and
        `intercept_` as they are, of an earlier fit or set by you, in place of that solution.
    constraints : Constraint, str or sequence of these, default=None
        The constraints, such as ``[fnr() <= 0.05]`` (see
        :mod:`gbm_constrained.constraints.rates`). Without any, the parent's own ``fit`` is called.
    positive : label, default=None
        The positive class of all rates that name none: with ``positive="fraud"`` the
        constraint ``fnr() <= 0.05`` is ``fnr("fraud") <= 0.05``. By default the last of two sorted
        labels. Of more classes, it is one against all others. ``classes_`` and ``predict_proba``
        keep the parent's order.
    n_iterations : int, default=500
        Most iterations of ABPP.
    iterate : {"last", "ergodic"}, default="last"
        Whether the last iterate is returned, or the average of all iterates that the theory is
        about. The average takes many more iterations to meet the constraints within `tol`. Where
        the last iterate violates a constraint on a 0-1 rate, another one is returned: that of
        least objective among those that meet all constraints, or that of least violation, with a
        warning.
    maximize, minimize : metric, rate, quotient or str, default=None
        The objective, in the place of the mean log loss: a metric of the confusion matrix such as
        ``h_mean()`` (see :mod:`gbm_constrained.metrics`), under the constraints. The parent's own
        fit then gives the probabilities, and rules of decision are found out of fold.
        A :class:`~gbm_constrained.metrics.BlackBox` is optimised over the coefficients.
    constraint_solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The method: a name, or an object with its own options such as ``ABPP(tau=2.0)`` of
        :mod:`gbm_constrained.solvers`, which ``set_params`` reaches as ``constraint_solver__tau``.
        "auto" takes CBPR for differences of mean losses where a feasible start is found, and ABPP
        otherwise. By default dual steps are the largest that observed slopes allow. With a
        metric, one of "auto", "columns", "frank_wolfe", "gda", "ellipsoid" and "bisection", a
        :class:`~gbm_constrained.solvers.Reduction` with options, or
        :class:`~gbm_constrained.solvers.AdaptiveSurrogates` with a black box.

    Attributes
    ----------
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows, its multiplier, and its
        verdict by the training rows, which prove nothing about others.
    feasibility_ : Feasibility
        The verdict on each constraint as an object. Its ``status`` is the gravest verdict.
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
    metric_report_, mixture_ : DataFrame
        With a metric: its value for each candidate, and the rules that ``predict`` draws from.
    blackbox_report_, blackbox_parameters_ : DataFrame
        With a black box: as of :class:`~gbm_constrained.ConstrainedLGBMClassifier`.
    stopping_message_ : str or None
        Why the fit ended early, by a callback or the time limit; None for a whole fit.

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

    @with_known_parameters
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
        maximize: Any = None,
        minimize: Any = None,
        constraint_solver: SolverName | SolverMethod = "auto",
    ) -> None:
        set_parameters(self, locals())

    @with_known_parameters
    @document_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        sensitive_features: Any = None,
        datasets: Any = None,
        validation: Any = None,
        evaluation: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        time_limit: float | None = None,
    ) -> ConstrainedLogisticRegression:
        """Fit the classifier under its constraints.

        Parameters
        ----------
        validation, evaluation : tuple (X, y) or (X, y, sensitive_features), default=None
            Rows that a black-box metric is called with and chooses by, and further rows for its
            report. By default a quarter of the rows is held out, and a third of that kept back.
        constraint_callbacks : sequence of callable, default=None
            Called in each iteration, or with a metric before each call of its oracle, with a
            :class:`~gbm_constrained.fit.callbacks.ConstraintState`; when one returns True, it
            is the last one.
        time_limit : float, default=None
            Seconds after which the iterations end, or with a metric the search for decisions. The
            best so far is returned, which ``stopping_message_`` and a warning say.
        """
        if (black_box := read_black_box(self.maximize, self.minimize)) is not None:
            refuse_arguments(
                black_box,
                datasets=datasets,
                constraint_callbacks=constraint_callbacks,
                time_limit=time_limit,
            )
            sample_weight = check_rows(X, y, sample_weight)
            rows = FitArguments(
                X, y, sample_weight, sensitive_features, None, None, validation, evaluation
            )
            self._fit_black_box(LogisticAdapter(self, super().fit, rows), rows, black_box)
            return self
        refuse_arguments(None, validation=validation, evaluation=evaluation)
        options = read_options(self)
        if options.metric is None and not options.constraints:
            return self._fit_without_constraints(X, y, sample_weight, time_limit)
        sample_weight = check_rows(X, y, sample_weight)
        rows = FitArguments(X, y, sample_weight, sensitive_features, datasets)
        if options.metric is not None:
            self._fit_metric(
                LogisticAdapter(self, super().fit, rows),
                rows,
                replace(options, measure_on="crossfit"),
                constraint_callbacks=constraint_callbacks,
                time_limit=time_limit,
            )
            return self
        check_parameters(self)
        make_fit = functools.partial(
            ConstrainedFit,
            arguments=rows,
            library=self._settings(sample_weight),
            progress=Progress("iteration") if self.verbose else None,
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        fit = make_fit(options)
        fit.measure()
        fit.data.alignment.warn()
        with saving.unchanged_on_error(self):
            given = self._coefficients() if self.warm_start and hasattr(self, "coef_") else None
            # Fit the parent, and stack its coefficients.
            with warnings.catch_warnings():  # The start of ABPP need not be exact.
                warnings.simplefilter("ignore", ConvergenceWarning)
                super().fit(X, y, sample_weight)
            unconstrained = self._coefficients()
            start = unconstrained if given is None else given
            fit, iterates, is_named = self._follow_iterates(fit, start, make_fit, options)
            learner, solution = iterates.learner, iterates.solution
            weights, n_iterations = iterates.find_best()
            compares_pairs = (
                fit.problem.compiled.has_tables.any() and learner.margin_shape[1:] == ()
            )
            if compares_pairs and solution.multipliers.any() and self.iterate == "last":
                weights = learner.rescale(weights)
            margin = learner.margin(weights)
            layout = ReportLayout(fit.problem.compiled, ())
            model = FinalModel(n_iterations, np.zeros(fit.data.columns), layout)
            model = describe_training_rows(fit, model, Scores(margin, margin))
            self.coef_, self.intercept_ = learner.coefficients(weights)
            self.n_iter_ = np.array([len(solution.history)], dtype=np.int32)
            # A solution that has converged is whole.
            done = len(solution.history) if fit.notifier.is_stopped else self.n_iterations
            feasibility = report(self, fit, model, done)
        if not is_named:
            warn(fit, model, feasibility)
        fit.notifier.warn()
        return self

    def predict(self, X: Any, *, random_state: Any = None) -> Any:
        """Predict classes.

        Parameters
        ----------
        X : array-like or sparse matrix of shape (n_samples, n_features)
            Rows.
        random_state : int, RandomState or None, default=None
            Source of each row's rule in a mixture (``mixture_``); others draw nothing.
        """
        if hasattr(self, "_rules"):
            codes = self._decide_by_rules(X, lambda _: self._raw_margin(X), random_state)
            return self.classes_[codes]
        check_random_state(random_state)  # Nothing is drawn here.
        return super().predict(X)

    def _raw_margin(self, X: Any, start: Any = None) -> Array:
        return np.asarray(self.decision_function(X))

    def _cell_margin(self, X: Any, model: bytes) -> Array:
        X = validate_data(self, X, accept_sparse="csr", dtype=np.float64, reset=False)
        # Score validated rows by the coefficients that :meth:`LogisticModel.to_bytes` has written.
        with np.load(io.BytesIO(model)) as saved:
            scores = safe_sparse_dot(X, saved["coef"].T, dense_output=True) + saved["intercept"]
        return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)

    def _l2(self, total_weight: float) -> float:
        """Find the penalty of the objective, which is a mean over rows."""
        is_free = self.penalty is None or np.isinf(self.C)
        return 0.0 if is_free else 1.0 / (self.C * total_weight)
