"""The drop-in classifier of XGBoost.

With a callable objective ``XGBClassifier.fit`` still puts ``binary:logistic`` or
``multi:softprob`` into the booster, so that the trained model is a native one. XGBoost fits the
intercept ``base_score`` only under its own objective, hence the intercept is set here as XGBoost
would have set it. Under a callable objective XGBoost hands margins to callable metrics. They are
wrapped to see the probabilities, or the classes of ``multi:softmax``, that the parent hands them.
"""

from __future__ import annotations

import functools
from collections.abc import Sequence
from typing import Any, ClassVar

import xgboost as xgb

from gbm_constrained.boosters.base import ConstrainedBoosterMixin
from gbm_constrained.boosters.fit_docs import document_fit, document_predict
from gbm_constrained.boosters.xgboost.adapter import XGBoostAdapter
from gbm_constrained.boosters.xgboost.driven import DrivenXGBMixin, by_keyword
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.decision.guarantees import Guarantee
from gbm_constrained.decision.prefix_choice import Criterion
from gbm_constrained.solvers.base import SolverMethod
from gbm_constrained.training.callbacks import ConstraintCallback
from gbm_constrained.training.early_stopping import EarlyStoppingOn
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


class _DrivenClassifierMixin(DrivenXGBMixin, ConstrainedBoosterMixin):
    """All that a constrained classifier adds: XGBoost looks at two bases for parameters."""


class ConstrainedXGBClassifier(_DrivenClassifierMixin, xgb.XGBClassifier):  # noqa: D101 - the docstring is an f-string
    __doc__ = f"""XGBoost classifier trained under constraints on its error rates.

    A real :class:`xgboost.XGBClassifier`: every parameter, method and attribute of the parent is
    there, the booster is a plain XGBoost model, and ``constraints=[]`` is the parent's own fit.

    Parameters
    ----------{SOLVER_PARAMETERS_DOC}{UNSEEN_PARAMETERS_DOC}\
{METRIC_PARAMETERS_DOC}
    objective : str, default="binary:logistic"
        As in the parent. Constraints need the logistic or softmax objective.
    **kwargs
        Every other parameter of :class:`xgboost.XGBClassifier`.

    Attributes
    ----------{FITTED_ATTRIBUTES_DOC}
    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBClassifier, fnr
    >>> clf = ConstrainedXGBClassifier(constraints=[fnr() <= 0.05], n_estimators=300)
    """

    objective: Any
    eval_metric: Any
    callbacks: Any
    early_stopping_rounds: Any
    feature_weights: Any

    _adapter_class: ClassVar[type[XGBoostAdapter]] = XGBoostAdapter

    # Splitters of scikit-learn request groups by the same name and with the same meaning.
    __metadata_request__fit: ClassVar = {"groups": True}

    def __init__(
        self,
        *,
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
        objective: Any = "binary:logistic",
        **kwargs: Any,
    ) -> None:
        refuse_moved_parameters(self, kwargs)
        super().__init__(objective=objective, **kwargs)
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
    @by_keyword
    @document_fit
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
        validation: Any = None,
        evaluation: Any = None,
        time: Any = None,
        constraint_callbacks: Sequence[ConstraintCallback] | None = None,
        checkpoint: Any = None,
        time_limit: float | None = None,
    ) -> ConstrainedXGBClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`xgboost.XGBClassifier.fit`. Constraints are
        measured as `measure_on` says. Their values on each `eval_set` are recorded, and the last
        one is the held-out set of the report. Where `base_margin` or `base_margin_eval_set` is
        given, constraints are measured on the decisions of ``predict(X, base_margin=...)``. A fit
        of more than a few seconds shows its progress unless `verbose` is false, as lines of text
        beside the lines that XGBoost prints.

        Parameters
        ----------
        {fit_arguments}

        Warns
        -----
        UserWarning
            If X has names of categories that this version of XGBoost cuts, or if the report
            holds only for predictions that are given a ``base_margin``.
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
        others = groups, validation, evaluation, time
        self._fit_constrained(
            self._adapter_class(self, super().fit, X, y, arguments),
            FitArguments(X, y, sample_weight, sensitive_features, datasets, *others),
            sensitive_features_eval_set,
            constraint_callbacks,
            checkpoint,
            time_limit,
        )
        return self

    def _raw_margin(self, X: Any, start: Any = None) -> Any:
        return super().predict(X, output_margin=True, base_margin=start)

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        cells = xgb.XGBClassifier(n_jobs=self.n_jobs, missing=self.missing)
        cells.load_model(bytearray(model))
        return cells.predict(X, output_margin=True)

    @by_keyword
    @document_predict
    def predict(
        self,
        X: Any,
        *,
        output_margin: bool = False,
        validate_features: bool = True,
        base_margin: Any = None,
        iteration_range: tuple[int, int] | None = None,
        random_state: Any = None,
        sensitive_features: Any = None,
    ) -> Any:
        """Predict classes.

        All other arguments are those of :meth:`xgboost.XGBClassifier.predict`.

        Parameters
        ----------
        {predict_arguments}
        """
        of_parent = functools.partial(
            super().predict, X, validate_features=validate_features, base_margin=base_margin
        )

        def margins(rounds: int) -> Any:
            some = (0, rounds) if rounds else iteration_range
            return of_parent(output_margin=True, iteration_range=some)

        decided = self._decide(
            X,
            None if output_margin else margins,
            random_state,
            sensitive_features,
            is_whole=iteration_range is None,
        )
        if decided is not None:
            return decided
        return of_parent(output_margin=output_margin, iteration_range=iteration_range)
