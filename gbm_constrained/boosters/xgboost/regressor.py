"""The drop-in regressor of XGBoost."""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any

import xgboost as xgb

from gbm_constrained.boosters.fit_docs import complete_doc
from gbm_constrained.boosters.regressor import (
    REGRESSOR_ATTRIBUTES_DOC,
    REGRESSOR_FIT_DOC,
    REGRESSOR_PARAMETERS_DOC,
    ConstrainedRegressorMixin,
)
from gbm_constrained.boosters.xgboost.driven import DrivenXGBMixin, by_keyword
from gbm_constrained.boosters.xgboost.regression_adapter import XGBoostRegressionAdapter
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training.callbacks import ConstraintCallback
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.given_folds import MeasureOn
from gbm_constrained.training.options import (
    SolverName,
    check_spelling,
    refuse_moved_parameters,
    with_known_parameters,
)


class _DrivenRegressorMixin(DrivenXGBMixin, ConstrainedRegressorMixin):
    """All that a constrained regressor adds: XGBoost looks at two bases for parameters."""


class ConstrainedXGBRegressor(_DrivenRegressorMixin, xgb.XGBRegressor):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""XGBoost regressor trained under constraints on means of losses and predictions.

    A real :class:`xgboost.XGBRegressor`: every parameter, method and attribute of the parent is
    there, the booster is a plain XGBoost model, and ``constraints=[]`` is the parent's own fit.

    Parameters
    ----------{REGRESSOR_PARAMETERS_DOC}
    objective : str, default="reg:squarederror"
        As in the parent. Constraints can be added to "reg:squarederror", "reg:pseudohubererror",
        "reg:absoluteerror", "reg:quantileerror" of one level, "count:poisson", "reg:tweedie" and
        "reg:gamma".
    **kwargs
        Every other parameter of :class:`xgboost.XGBRegressor`.

    Attributes
    ----------{REGRESSOR_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBRegressor, each, mean_loss
    >>> constraints = [each(mean_loss("squared"), by="race") <= 0.02]
    >>> model = ConstrainedXGBRegressor(constraints=constraints, n_estimators=300)
    """

    objective: Any
    eval_metric: Any
    callbacks: Any
    early_stopping_rounds: Any
    feature_weights: Any

    def __init__(
        self,
        *,
        constraints: Any = None,
        measure_on: MeasureOn = "auto",
        n_folds: int = 4,
        cv: Any = None,
        holdout_fraction: float | None = None,
        guarantee: Guarantee = None,
        delta: float = 0.05,
        calibration_fraction: float = 0.2,
        early_stopping_on: EarlyStoppingOn = "metric",
        group_shifts: bool = False,
        solver: SolverName | SolverMethod = "auto",
        objective: Any = "reg:squarederror",
        **kwargs: Any,
    ) -> None:
        refuse_moved_parameters(self, kwargs)
        super().__init__(objective=objective, **kwargs)
        self.constraints = constraints
        self.measure_on = measure_on
        self.n_folds = n_folds
        self.cv = cv
        self.holdout_fraction = holdout_fraction
        self.guarantee = guarantee
        self.delta = delta
        self.calibration_fraction = calibration_fraction
        self.early_stopping_on = early_stopping_on
        self.group_shifts = group_shifts
        self.solver = solver

    @with_known_parameters
    @by_keyword
    @functools.partial(complete_doc, placeholder="{fit_arguments}", arguments=REGRESSOR_FIT_DOC)
    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        base_margin: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        verbose: bool | int | None = True,
        xgb_model: Any = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        base_margin_eval_set: Sequence[Any] | None = None,
        feature_weights: Any = None,
        sensitive_features: Any = None,
        datasets: Any = None,
        sensitive_features_eval_set: Sequence[Any] | None = None,
        groups: Any = None,
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedXGBRegressor:
        """Fit the regressor under its constraints.

        All other arguments are those of :meth:`xgboost.XGBRegressor.fit`. Constraints are measured
        as `measure_on` says. Their values on each `eval_set` are recorded, and the last one is the
        held-out set of the report.

        Parameters
        ----------
        {fit_arguments}
        """
        check_spelling(self, getattr(self, "kwargs", None) or {})
        arguments = {
            "sample_weight": sample_weight,
            "base_margin": base_margin,
            "eval_set": eval_set,
            "verbose": verbose,
            "xgb_model": xgb_model,
            "sample_weight_eval_set": sample_weight_eval_set,
            "base_margin_eval_set": base_margin_eval_set,
            "feature_weights": feature_weights,
        }
        native = super().fit
        self._fit_constrained(
            lambda: XGBoostRegressionAdapter(self, native, X, y, arguments),
            FitArguments(X, y, sample_weight, sensitive_features, datasets, groups, time=time),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self
