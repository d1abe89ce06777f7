"""The drop-in regressor of LightGBM."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any

import lightgbm as lgb

from gbm_constrained.boosters.fit_docs import complete_doc
from gbm_constrained.boosters.lightgbm.checks import check_categories
from gbm_constrained.boosters.lightgbm.driven import DrivenLGBMMixin
from gbm_constrained.boosters.lightgbm.model_text import regressor_of
from gbm_constrained.boosters.lightgbm.parameters import ALIASES
from gbm_constrained.boosters.lightgbm.regression_adapter import LightGBMRegressionAdapter
from gbm_constrained.boosters.lightgbm.trained_model import adopt_booster
from gbm_constrained.boosters.regressor import (
    REGRESSOR_ATTRIBUTES_DOC,
    REGRESSOR_FIT_DOC,
    REGRESSOR_PARAMETERS_DOC,
    ConstrainedRegressorMixin,
)
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training.callbacks import ConstraintCallback
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.given_folds import MeasureOn
from gbm_constrained.training.options import (
    SolverName,
    check_spelling,
    refuse_moved_parameters,
    with_known_parameters,
)


class _DrivenRegressorMixin(DrivenLGBMMixin, ConstrainedRegressorMixin):
    """All that a constrained regressor adds: LightGBM looks at two bases for parameters."""


class ConstrainedLGBMRegressor(_DrivenRegressorMixin, lgb.LGBMRegressor):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""LightGBM regressor trained under constraints on means of losses and predictions.

    A real :class:`lightgbm.LGBMRegressor`: every parameter, method and attribute of the parent is
    there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own fit.
    Constraints can be added to the objectives "regression", "regression_l1", "huber", "fair",
    "quantile", "poisson", "tweedie" and "gamma", also by their other names.

    Parameters
    ----------{REGRESSOR_PARAMETERS_DOC}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMRegressor`.

    Attributes
    ----------{REGRESSOR_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMRegressor, gap, mean_prediction
    >>> constraints = [gap(mean_prediction(), by="sex") <= 0.1]
    >>> model = ConstrainedLGBMRegressor(constraints=constraints)
    """

    objective: Any
    _objective: Any
    _Booster: Any

    def __init__(
        self,
        *,
        boosting_type: str = "gbdt",
        num_leaves: int = 31,
        max_depth: int = -1,
        learning_rate: float = 0.1,
        n_estimators: int = 100,
        subsample_for_bin: int = 200000,
        objective: Any = None,
        class_weight: Any = None,
        min_split_gain: float = 0.0,
        min_child_weight: float = 1e-3,
        min_child_samples: int = 20,
        subsample: float = 1.0,
        subsample_freq: int = 0,
        colsample_bytree: float = 1.0,
        reg_alpha: float = 0.0,
        reg_lambda: float = 0.0,
        random_state: Any = None,
        n_jobs: int | None = None,
        importance_type: str = "split",
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
        **kwargs: Any,
    ) -> None:
        refuse_moved_parameters(self, kwargs)
        super().__init__(
            boosting_type=boosting_type,
            num_leaves=num_leaves,
            max_depth=max_depth,
            learning_rate=learning_rate,
            n_estimators=n_estimators,
            subsample_for_bin=subsample_for_bin,
            objective=objective,
            class_weight=class_weight,
            min_split_gain=min_split_gain,
            min_child_weight=min_child_weight,
            min_child_samples=min_child_samples,
            subsample=subsample,
            subsample_freq=subsample_freq,
            colsample_bytree=colsample_bytree,
            reg_alpha=reg_alpha,
            reg_lambda=reg_lambda,
            random_state=random_state,
            n_jobs=n_jobs,
            importance_type=importance_type,
            **kwargs,
        )
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
    @functools.partial(complete_doc, placeholder="{fit_arguments}", arguments=REGRESSOR_FIT_DOC)
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: list[str] | None = None,
        eval_sample_weight: list[Any] | None = None,
        eval_init_score: list[Any] | None = None,
        eval_metric: Any = None,
        feature_name: Any = "auto",
        categorical_feature: Any = "auto",
        callbacks: list[Callable[..., Any]] | None = None,
        init_model: Any = None,
        *,
        eval_X: Any = None,
        eval_y: Any = None,
        sensitive_features: Any = None,
        datasets: Any = None,
        sensitive_features_eval_set: list[Any] | None = None,
        groups: Any = None,
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedLGBMRegressor:
        """Fit the regressor under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMRegressor.fit`. Constraints are
        measured as `measure_on` says. Their values on each evaluation set are recorded, and the
        last one is the held-out set of the report.

        Parameters
        ----------
        eval_X, eval_y : array-like or tuple of array-like, default=None
            Evaluation sets as LightGBM 4.7 takes them, in the place of `eval_set`.
        {fit_arguments}
        """
        given = {
            "init_score": init_score,
            "eval_set": eval_set,
            "eval_names": eval_names,
            "eval_sample_weight": eval_sample_weight,
            "eval_init_score": eval_init_score,
            "eval_metric": eval_metric,
            "feature_name": feature_name,
            "categorical_feature": categorical_feature,
            "callbacks": callbacks,
            "init_model": init_model,
        }
        if eval_X is not None or eval_y is not None:  # new in LightGBM 4.7
            given.update(eval_X=eval_X, eval_y=eval_y)
        check_categories(X, "X")
        known = {"deterministic", "early_stopping_round", *ALIASES["early_stopping_round"]}
        check_spelling(self, self._other_params, known)
        weight = weight_of_rows(sample_weight, y)
        is_observed = bool(constraint_callbacks) or time_limit is not None
        native = super().fit
        self._fit_constrained(
            lambda: LightGBMRegressionAdapter(
                self, native, (X, y, weight), given, is_observed=is_observed
            ),
            FitArguments(X, y, weight, sensitive_features, datasets, groups, time=time),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self

    def _read_kind(self, text: str) -> tuple[str, int]:
        return regressor_of(text)

    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        adopt_booster(self, booster, objective, note)
