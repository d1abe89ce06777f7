"""Ridge regression under constraints, on the exact linear learner."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, Literal, TypeAlias, cast, get_args

import numpy as np
from sklearn.linear_model import Ridge
from sklearn.utils.validation import check_consistent_length, check_X_y

from gbm_constrained.data.fit_data import FitArguments, check_targets
from gbm_constrained.data.validation import (
    check_choice,
    check_integer,
    check_share,
    is_finite_number,
)
from gbm_constrained.decision.regression import Affine, choose_share
from gbm_constrained.evaluation.verdicts import measure_cost_of_numbers
from gbm_constrained.fit.callbacks import ConstraintCallback, TimeLimit
from gbm_constrained.fit.finalize import describe_regressor, report_regressor
from gbm_constrained.fit.fit import RegressionFit, weight_of_rows
from gbm_constrained.fit.fitted_report import remove_report
from gbm_constrained.fit.model_note import unchanged_on_error
from gbm_constrained.fit.options import Iterate, SolverName, SolverOptions, with_known_parameters
from gbm_constrained.linear_model.base import ConstrainedLinearModel, document_fit, set_parameters
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.problem.losses import RegressionObjective, curvature_range
from gbm_constrained.solvers.base import SolverMethod, check_positive

RidgeLoss: TypeAlias = Literal["squared", "huber", "quantile"]


def check_parameters(estimator: Any, options: SolverOptions) -> None:
    """Refuse parameters that have no meaning under constraints, or wrong values."""
    check_integer("n_iterations", estimator.n_iterations, 1)
    check_choice("iterate", estimator.iterate, ("last", "ergodic"))
    alpha = estimator.alpha
    if not (np.ndim(alpha) == 0 and is_finite_number(alpha) and alpha >= 0):
        raise ValueError(
            f"alpha must be one number of at least zero under constraints, got {alpha!r}."
        )
    if not (is_finite_number(estimator.tol) and estimator.tol >= 0):
        raise ValueError(f"tol must be a number of at least zero, got {estimator.tol!r}.")
    if estimator.positive:
        raise ValueError(
            "positive=True is not supported under constraints, whose solver leaves the signs of "
            "coefficients free: use positive=False."
        )
    method = options.method
    if method.outlier_clip is not None or method.proxy != "auto":
        raise ValueError(
            f"outlier_clip={method.outlier_clip!r} and proxy={method.proxy!r} are about "
            f"probabilities of classes: leave both out, and bound losses of outliers by "
            f"mean_loss('huber')."
        )


def check_curvature(compiled: LinearConstraints) -> None:
    """Refuse differences of losses that have a kink, which no method solves."""
    functions = compiled.row_functions
    terms = [term for constraint in compiled.constraints for term in constraint.terms]
    for j, name in enumerate(compiled.rows):
        row = compiled.A[[j]]
        columns = row.indices[row.data < 0.0]  # Convex functions that the row subtracts.
        for function in (functions[k] for k in np.unique(columns % max(len(functions), 1))):
            if not function.is_step and np.isinf(curvature_range(function, 1.0)[1]):
                subtracted = next(term.name for term in terms if term.event == function)
                raise ValueError(
                    f"{name} subtracts {subtracted}, whose curvature has no bound: use "
                    f"mean_loss('huber', delta=...) with a small delta, or mean_loss('squared')."
                )


class ConstrainedRidge(ConstrainedLinearModel, Ridge):
    r"""Linear regression with an L2 penalty, under constraints on means of losses and predictions.

    A real :class:`sklearn.linear_model.Ridge`: ``constraints=[]`` is the parent's own fit, and
    under constraints ``coef_`` and ``intercept_`` are what the parent's ``predict`` takes. The
    problem is the parent's, divided by twice the total weight W,

    .. math:: \min \; \frac{1}{W} \sum_i w_i \ell(y_i, F(x_i)) + \frac{\alpha}{2 W} \|w\|^2
              \quad \text{s.t.} \quad m_j \le b_j ,

    with :math:`\ell = (y - F)^2 / 2`, or another loss, and means :math:`m_j` over the training
    rows. ABPP solves the problem with exact subproblems in the distance of scores, from the
    parent's solution: the units of the features do not matter, and those of the targets neither.
    Under convex constraints, such as bounds on mean losses and on gaps of mean predictions, the
    optimum is reached up to `tol`. A difference of mean losses, such as their gap between groups,
    is not convex. CBPR then goes to a KKT point from a model that meets the constraints, if one is
    found. A share, such as ``share_above(c)``, moves its multiplier by its exact value, and the
    subproblem holds a sigmoid. See [1]_. Constraints about groups have a price: where they cost
    more than they are worth, the model is on the way from the parent's solution to that optimum.

    Parameters
    ----------
    alpha, fit_intercept, copy_X, max_iter, tol, solver, positive, random_state
        As in the parent. Under constraints `alpha` is one number, `positive` is False, and `tol`
        is also the residual at which ABPP stops, in the units that follow from the deviation of
        the targets (see :class:`~gbm_constrained.linear_model.Solution`).
    constraints : Constraint, str or sequence of these, default=None
        Constraints such as ``[each(mean_loss("squared"), by="race") <= 0.02]``: bounds on means
        over targets and predictions (:mod:`gbm_constrained.constraints.rates`).
    loss : {"squared", "huber", "quantile"}, default="squared"
        The loss :math:`\ell`: half the squared error, Huber's loss, or the pinball loss. Without
        constraints the squared one is the parent's own fit.
    huber_delta : float, default=1.0
        Distance beyond which Huber's loss is linear, in the unit of the target.
    quantile : float, default=0.5
        Level of the pinball loss; 0.5 is half the absolute error.
    n_iterations : int, default=500
        Most iterations of ABPP.
    iterate : {"last", "ergodic"}, default="last"
        Whether the last iterate is returned, or the average of all that the theory is about.
    constraint_solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The method: a name, or an object with its own options such as ``ABPP(tau=2.0)`` of
        :mod:`gbm_constrained.solvers`. "auto" takes CBPR for differences of mean losses where a
        feasible start is found, and ABPP otherwise.

    Attributes
    ----------
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows, its multiplier, and its
        verdict by the training rows, which prove nothing about others.
    cost_report_ : DataFrame
        Mean loss and constraints of the parent's solution and of the model, on the training rows.
    feasibility_ : Feasibility
        The verdicts as an object.
    history_ : DataFrame
        One row per iteration up to the returned model, and a last one for that.
    group_report_, small_groups_ : DataFrame
        One row per mean of each group that a constraint looks at, and per group of few rows.
    multipliers_ : Series
        Multipliers of the returned model, by linear row of the constraints.
    n_iter_ : ndarray of shape (1,)
        Iterations of ABPP, those after the returned model too.
    stopping_message_ : str or None
        Why the fit ended early, by a callback or the time limit; None for a whole fit.

    References
    ----------
    .. [1] Lin and Deng, "GBM-based Bregman Proximal Algorithms for Constrained Learning", 2023,
       Algorithm 1, section 5 and Remark 3.

    Examples
    --------
    >>> from sklearn.datasets import load_diabetes
    >>> from gbm_constrained import ConstrainedRidge, gap, mean_prediction
    >>> X, y = load_diabetes(return_X_y=True, as_frame=True)
    >>> sex = {"sex": X["sex"] > 0}
    >>> rule = gap(mean_prediction(), by="sex") <= 2.0
    >>> model = ConstrainedRidge(constraints=[rule]).fit(X, y, sensitive_features=sex)
    >>> bool(model.constraint_report_["train"][0] <= 2.01)
    True
    """

    @with_known_parameters
    def __init__(
        self,
        alpha: Any = 1.0,
        *,
        fit_intercept: bool = True,
        copy_X: bool = True,
        max_iter: int | None = None,
        tol: float = 1e-4,
        solver: str = "auto",
        positive: bool = False,
        random_state: Any = None,
        constraints: Any = None,
        loss: RidgeLoss = "squared",
        huber_delta: float = 1.0,
        quantile: float = 0.5,
        n_iterations: int = 500,
        iterate: Iterate = "last",
        constraint_solver: SolverName | SolverMethod = "auto",
    ) -> None:
        set_parameters(self, locals())

    def __sklearn_tags__(self) -> Any:
        tags = super().__sklearn_tags__()
        if self.loss != "squared":
            tags.target_tags.multi_output = False
        return tags

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
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        time_limit: float | None = None,
    ) -> ConstrainedRidge:
        """Fit the model under its constraints.

        Parameters
        ----------
        y : array-like of shape (n_samples,)
            Targets.
        sample_weight : float or array-like of shape (n_samples,), default=None
            Weights, in the objective and in the means.
        """
        options = SolverOptions.of(self)
        check_choice("loss", self.loss, get_args(RidgeLoss))
        check_positive("huber_delta", self.huber_delta)
        check_share("quantile", self.quantile)
        parameter = {"huber": self.huber_delta, "quantile": self.quantile}
        objective = RegressionObjective(self.loss, float(parameter.get(self.loss, np.nan)))
        if not options.constraints and self.loss == "squared":
            return self._fit_without_constraints(X, y, sample_weight, time_limit)
        check_parameters(self, options)
        check_X_y(X, y, accept_sparse=("csr", "csc", "coo"), y_numeric=True)
        sample_weight = weight_of_rows(sample_weight, y)
        check_consistent_length(X, sample_weight)
        make_fit = functools.partial(
            RegressionFit,
            arguments=FitArguments(X, y, sample_weight, sensitive_features, datasets),
            library=self._settings(kernel={"objective": objective, "is_smooth": True}),
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        fit = make_fit(options)
        check_curvature(fit.problem.compiled)
        fit.measure()
        fit.data.alignment.warn()
        with unchanged_on_error(self):
            super().fit(X, check_targets(y), sample_weight)
            own = self._coefficients()
            followed, iterates, is_named = self._follow_iterates(fit, own, make_fit, options)
            fit, learner = cast(RegressionFit, followed), iterates.learner
            weights, n_iterations = iterates.find_best()
            rows, plain = fit.training_rows(), own.T.reshape(learner.shape)
            if options.constraints:  # The model may be on the way from the parent's solution.
                rows.plain_score = learner.margin(plain)
                share = choose_share(rows.credible, rows.plain_score, learner.margin(weights))
                weights = weights if share == 1.0 else (1.0 - share) * plain + share * weights
            score = learner.margin(weights)
            model = describe_regressor(fit, Affine(), n_iterations, score, (rows, score))
            coef, intercept = learner.coefficients(weights)
            self.coef_ = coef.ravel()
            self.intercept_ = float(intercept[0]) if self.fit_intercept else 0.0
            self.n_iter_ = np.array([len(iterates.solution.history)], dtype=np.int32)
            remove_report(self)
            if options.constraints:
                model.cost = measure_cost_of_numbers(rows, score)
                done = self.n_iter_[0] if fit.notifier.is_stopped else self.n_iterations
                feasibility = report_regressor(self, fit, model, int(done))
        if options.constraints and not is_named:
            feasibility.warn(raises=False)
        fit.notifier.warn()
        return self

    def _l2(self, total_weight: float) -> float:
        """Find the penalty of the objective, which is a mean over rows."""
        return float(self.alpha) / total_weight
