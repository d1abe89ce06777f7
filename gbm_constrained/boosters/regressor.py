"""Parts that the drop-in regressors of both libraries share."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, Protocol

from gbm_constrained.boosters.base import BoosterAdapter, attach_rows, measure_fit
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.affine import Affine
from gbm_constrained.reporting.notebook import html_of, mime_bundle
from gbm_constrained.training.checkpoint import refuse_without_constraints
from gbm_constrained.training.fitted_attributes import ConstrainedFitAttributes
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.options import SolverOptions, set_solver_options
from gbm_constrained.training.regression import RegressionFit
from gbm_constrained.training.regression_report import finalize_regression, report_regressor
from gbm_constrained.training.tags import with_constraints
from gbm_constrained.training.time_limit import TimeLimit, refuse_time_limit_without_constraints

REGRESSOR_PARAMETERS_DOC = """
    constraints : Constraint or sequence of Constraint, default=None
        Constraints such as ``[each(mean_loss("squared"), by="race") <= 0.02]``: bounds on means
        over targets and predictions (:mod:`gbm_constrained.constraints.row_means`). With none, the
        parent's own ``fit`` is called and nothing else happens.
    solver : {"auto", "abpp", "cbpr"} or object, default="auto"
        The outer loop, as for classifiers: a name, or an object with its own options such as
        ``ABPP(rounds_per_iteration=1)`` of :mod:`gbm_constrained.solvers`.
    measure_on : {"auto", "train", "holdout", "crossfit", "forward"}, default="auto"
        The rows whose means move the multipliers, and by which scale and shift are chosen:
        "crossfit" grows `n_folds` boosters in step, "holdout" one, and the model is then trained
        on all rows with the multipliers found. "auto" takes "holdout" if every mean is taken over
        50,000 rows, and "crossfit" if not; "train" in continued training. "forward" needs `time`
        in ``fit``.
    n_folds : int, default=4
        Folds of "crossfit".
    cv : splitter or sequence of (train, test), default=None
        Folds that take the place of those of "crossfit".
    holdout_fraction : float, default=None
        Share of the rows of "holdout". By default the last evaluation set given to ``fit``; a
        quarter of the rows without one.
    guarantee : {None, "high_probability"}, default=None
        Guarantee for new rows, by rows that are set aside for it: all constraints hold in the
        population with probability ``1 - delta``. Values of a row need a range, as in
        ``mean_loss("squared", range=(0, 25))``.
    delta : float, default=0.05
        Probability that the constraints are violated in spite of the guarantee.
    calibration_fraction : float, default=0.2
        Share of the rows that are set aside for a guarantee.
    early_stopping_on : {"metric", "constraints", "both"}, default="metric"
        Criterion of early stopping: the parent's metric; the mean loss plus the price of the
        violation on the last evaluation set; or the metric among the rounds that meet the
        constraints there.
    group_shifts : bool, default=False
        Whether predictions use the group, by a shift of the scores of each group of the columns
        that constraints group by. These must be columns of X. The shifts are one more tree of the
        model (``group_shifts_``), and chosen on held-out rows. A warning says once that decisions
        by group are unlawful in places; see :mod:`gbm_constrained.decision.regression_shifts`."""
REGRESSOR_ATTRIBUTES_DOC = """
    constraint_report_ : DataFrame
        One row per constraint: its bound, its value on the training rows (``train``), its value on
        held-out rows (``held_out``) with a 95% interval (``low``, ``high``), the rows that the
        verdict is by (``rows``), its multiplier, and the ``verdict``.
    cost_report_ : DataFrame
        What the constraints cost: the mean loss on held-out rows and the value of each constraint
        there, of the plain model (row ``plain``, NaN where none was grown) and of the one returned
        (row ``returned``).
    group_report_ : DataFrame
        One row per mean of each group that a constraint looks at.
    small_groups_ : DataFrame
        One row per group of few rows.
    period_report_ : DataFrame
        With ``measure_on="forward"``: one row per constraint and held-out period, as of
        classifiers.
    unseen_r2_ : Estimate
        R^2 on the held-out rows, with its interval.
    adjustment_ : Series
        Scale and shift of the scores, which held-out rows chose and the model holds: one and zero
        where the model itself meets the constraints.
    group_shifts_ : DataFrame
        With `group_shifts`: one row per group, with its values of the columns, the ``shift`` of
        its scores, and its training ``rows``. Groups that have too few rows or a missing value
        have the common shift, as have values that training lacks.
    history_ : DataFrame
        One row per outer iteration, and a last one for the returned model.
    multipliers_ : Series
        Multipliers of the returned model, by linear row of the constraints.
    feasibility_ : Feasibility
        The verdicts as an object.
    stopping_message_ : str or None
        Why the fit ended early; None for a whole fit.
"""
REGRESSOR_FIT_DOC = """\
sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
    Columns, one value per training row, that constraints may group by. Columns of X are found
    there when X is a DataFrame. Prediction never needs them.
datasets : dict from name to X or (X, y), default=None
    Further rows that a constraint may be taken over, with ``on=dataset(name)``. The objective
    leaves them out.
sensitive_features_eval_set : list, default=None
    Sensitive features of each evaluation set.
groups : array-like of shape (n_samples,), default=None
    Rows of one group are kept together where rows are split to measure constraints.
time : str or array-like of shape (n_samples,), default=None
    With ``measure_on="forward"``, the time of each row.
constraint_callbacks : sequence of callable, default=None
    Called in each outer iteration with a
    :class:`~gbm_constrained.training.callbacks.ConstraintState`; when one returns True, training
    ends with that iteration.
checkpoint : str or path-like, default=None
    File that the boosters of the folds are saved to after each pass.
time_limit : float, default=None
    Seconds after which measuring and training end, at the next outer iteration.

Raises
------
TypeError, ValueError
    If constraints, targets or weights do not fit together, or the objective has no gradients that
    constraints could be added to; before training starts."""


class RegressionAdapter(BoosterAdapter, Protocol):
    """Interface by which a regressor's fit drives a library."""

    def rescale(self, affine: Affine) -> None:
        """Map the scores of the trained booster, in the booster itself."""


class ConstrainedRegressorMixin(ConstrainedFitAttributes):
    """A regressor of a library that is trained under constraints."""

    constraints: Any

    def __sklearn_tags__(self) -> Any:
        return with_constraints(super().__sklearn_tags__(), self.constraints)  # type: ignore[misc]

    def set_params(self, **params: Any) -> Any:
        """Set parameters, those of the solver by names such as ``solver__tau``."""
        return super().set_params(**set_solver_options(self, params))  # type: ignore[misc]

    def _repr_html_inner(self) -> str:
        return html_of(self)

    def _repr_mimebundle_(self, **kwargs: Any) -> dict[str, str]:
        return mime_bundle(self)

    def _fit_constrained(
        self,
        make_adapter: Callable[[], RegressionAdapter],
        rows: FitArguments,
        sensitive_features_eval_set: Any,
        constraint_callbacks: Any,
        checkpoint: Any,
        time_limit: float | None,
        /,
    ) -> None:
        """Fit under constraints, or leave the fit to the parent if there are none."""
        adapter = make_adapter()
        if not check_constraints(self.constraints):
            refuse_without_constraints(checkpoint)
            refuse_time_limit_without_constraints(time_limit)
            adapter.fit_plain()
            remove_report(self)
            return
        options = SolverOptions.of(self)
        if options.solver == "threshold":
            raise ValueError(
                "solver='threshold' moves a threshold between classes, and a regressor predicts "
                "numbers: use 'auto', 'abpp' or 'cbpr'."
            )
        adapter.check_parameters()
        fit = RegressionFit(
            options,
            rows,
            adapter.settings(),
            progress=adapter.progress(),
            constraint_callbacks=constraint_callbacks,
            limit=TimeLimit(time_limit),
        )
        attach_rows(self, fit, adapter, rows, checkpoint, sensitive_features_eval_set)
        measure_fit(fit, adapter)
        with unchanged_on_error(self):
            trained = adapter.train()
            remove_report(self)
            model = finalize_regression(fit, trained.model, trained.rounds, trained.margin)
            if not model.affine.is_identity:
                adapter.rescale(model.affine)
            if model.offsets is not None and model.offsets.values.any():
                trained.model.add_to_groups(model.offsets)
            feasibility = report_regressor(self, fit, model)
            adapter.finish()
        if fit.run.checkpoint is not None:
            fit.run.checkpoint.remove()
        fit.notifier.warn()
        feasibility.warn(raises=False)
