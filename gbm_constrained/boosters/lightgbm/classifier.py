"""The drop-in classifier of LightGBM.

LightGBM takes custom gradients only without an objective of its own. LightGBM then drops the
intercept, evaluates its metrics on raw scores and writes a model that predicts raw scores. Hence
the intercept is given as a constant ``init_score``, and metrics of probabilities as callables.
After training, intercept and objective are put into the model's text
(:mod:`gbm_constrained.boosters.lightgbm.model_text`). The text is then equal to what LightGBM
itself would have written, but for the names of those metrics.
"""

from __future__ import annotations

import functools
import itertools
import warnings
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.boosters.base import ConstrainedBoosterMixin
from gbm_constrained.boosters.fit_docs import document_fit, document_predict
from gbm_constrained.boosters.lightgbm.adapter import LightGBMAdapter
from gbm_constrained.boosters.lightgbm.checks import check_categories
from gbm_constrained.boosters.lightgbm.driven import DrivenLGBMMixin
from gbm_constrained.boosters.lightgbm.model_text import classifier_of
from gbm_constrained.boosters.lightgbm.native_fits import average_scores
from gbm_constrained.boosters.lightgbm.parameters import ALIASES
from gbm_constrained.boosters.lightgbm.trained_model import (
    adopt_file,
)
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.prefix_choice import Criterion
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training.callbacks import ConstraintCallback
from gbm_constrained.training.early_stopping import EarlyStoppingOn
from gbm_constrained.training.fit import weight_of_rows
from gbm_constrained.training.given_folds import MeasureOn
from gbm_constrained.training.options import (
    Ensemble,
    Iterate,
    OnInfeasible,
    OracleName,
    Probabilities,
    SolverName,
    check_spelling,
    refuse_moved_parameters,
    with_known_parameters,
)
from gbm_constrained.training.parameter_docs import (
    FITTED_ATTRIBUTES_DOC,
    METRIC_PARAMETERS_DOC,
    SOLVER_PARAMETERS_DOC,
    UNSEEN_PARAMETERS_DOC,
)


class _DrivenClassifierMixin(DrivenLGBMMixin, ConstrainedBoosterMixin):
    """All that a constrained classifier adds: LightGBM looks at two bases for parameters."""


class ConstrainedLGBMClassifier(_DrivenClassifierMixin, lgb.LGBMClassifier):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""LightGBM classifier trained under constraints on its error rates.

    A real :class:`lightgbm.LGBMClassifier`: every parameter, method and attribute of the parent
    is there, the booster is a plain LightGBM model, and ``constraints=[]`` is the parent's own
    fit.

    Parameters
    ----------{SOLVER_PARAMETERS_DOC}{UNSEEN_PARAMETERS_DOC}\
{METRIC_PARAMETERS_DOC}
    **kwargs
        Every other parameter of :class:`lightgbm.LGBMClassifier`.

    Attributes
    ----------{FITTED_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier, class_error
    >>> constraints = [class_error(0) <= 0.01, class_error(3) <= 0.03]
    >>> clf = ConstrainedLGBMClassifier(constraints=constraints)
    """

    objective: Any
    _objective: Any
    _Booster: Any

    _adapter_class: ClassVar[type[LightGBMAdapter]] = LightGBMAdapter

    # Splitters of scikit-learn request groups by the same name and with the same meaning.
    __metadata_request__fit: ClassVar = {"groups": True}

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
        positive: Any = None,
        iterate: Iterate = "last",
        measure_on: MeasureOn = "auto",
        n_folds: int = 4,
        cv: Any = None,
        holdout_fraction: float | None = None,
        guarantee: Guarantee = None,
        delta: float = 0.05,
        calibration_fraction: float = 0.2,
        probabilities: Probabilities = "shifted",
        on_infeasible: OnInfeasible = "warn",
        early_stopping_on: EarlyStoppingOn = "metric",
        select: Criterion = "error",
        group_thresholds: bool = False,
        maximize: Any = None,
        minimize: Any = None,
        deterministic: bool | None = None,
        ensemble: Ensemble = None,
        oracle: OracleName = "plug_in",
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
        self.positive = positive
        self.iterate = iterate
        self.measure_on = measure_on
        self.n_folds = n_folds
        self.cv = cv
        self.holdout_fraction = holdout_fraction
        self.guarantee = guarantee
        self.delta = delta
        self.calibration_fraction = calibration_fraction
        self.probabilities = probabilities
        self.on_infeasible = on_infeasible
        self.early_stopping_on = early_stopping_on
        self.select = select
        self.group_thresholds = group_thresholds
        self.maximize = maximize
        self.minimize = minimize
        self.deterministic = deterministic
        self.ensemble = ensemble
        self.oracle = oracle
        self.solver = solver

    @with_known_parameters
    @document_fit
    def fit(
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        init_score: Any = None,
        eval_set: Any = None,
        eval_names: list[str] | None = None,
        eval_sample_weight: list[Any] | None = None,
        eval_class_weight: list[Any] | None = None,
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
        validation: Any = None,
        evaluation: Any = None,
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedLGBMClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.fit`. Constraints are
        measured as `measure_on` says. Their values on each evaluation set are recorded, and the
        last one is the held-out set of the report. Constraints are measured on the decisions of
        ``predict``, which adds no `init_score`. A fit of more than a few seconds shows its
        progress, as lines of text beside ``log_evaluation``, unless ``verbose``
        (``verbosity``) is below 1.

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
            "eval_class_weight": eval_class_weight,
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
        known = {"early_stopping_round", *ALIASES["early_stopping_round"]}
        check_spelling(self, self._other_params, known)
        sample_weight = weight_of_rows(sample_weight, y)
        is_observed = bool(constraint_callbacks) or time_limit is not None
        others = groups, validation, evaluation, time
        self._fit_constrained(
            self._adapter_class(
                self, super().fit, (X, y, sample_weight), given, is_observed=is_observed
            ),
            FitArguments(X, y, sample_weight, sensitive_features, datasets, *others),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self

    def _read_kind(self, text: str) -> tuple[str, int]:
        return classifier_of(text)

    def _adopt(self, booster: lgb.Booster, objective: str, n_classes: int, note: Any) -> None:
        adopt_file(self, booster, objective, note, n_classes)

    def _raw_margin(self, X: Any, start: Any = None) -> Any:
        return average_scores(self, self.booster_, super().predict(X, raw_score=True))

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        booster = lgb.Booster(model_str=model.decode())
        return average_scores(self, booster, booster.predict(X, raw_score=True))

    @document_predict
    def predict(
        self,
        X: Any,
        raw_score: bool = False,
        start_iteration: int = 0,
        num_iteration: int | None = None,
        pred_leaf: bool = False,
        pred_contrib: bool = False,
        validate_features: bool = False,
        *,
        random_state: Any = None,
        sensitive_features: Any = None,
        **kwargs: Any,
    ) -> Any:
        """Predict classes.

        All other arguments are those of :meth:`lightgbm.LGBMClassifier.predict`.

        Parameters
        ----------
        {predict_arguments}
        """
        given = {
            "start_iteration": start_iteration,
            "pred_leaf": pred_leaf,
            "pred_contrib": pred_contrib,
            "validate_features": validate_features,
            **kwargs,
        }
        of_parent = functools.partial(super().predict, X, **given)
        answered = itertools.count()

        def margins(rounds: int) -> Array:
            with warnings.catch_warnings():
                if next(answered):  # The first prefix has given the warning.
                    warnings.filterwarnings("ignore", "X does not have valid feature names")
                scores = of_parent(raw_score=True, num_iteration=rounds or num_iteration)
            return average_scores(self, self.booster_, np.asarray(scores), rounds or num_iteration)

        decided = self._decide(
            X,
            None if raw_score or pred_leaf or pred_contrib else margins,
            random_state,
            sensitive_features,
            is_whole=num_iteration is None and not start_iteration,
        )
        if decided is not None:
            return self.classes_[decided]
        return of_parent(raw_score=raw_score, num_iteration=num_iteration)
