"""The drop-in classifier and regressor of XGBoost.

With a callable objective ``XGBClassifier.fit`` still puts ``binary:logistic`` or
``multi:softprob`` into the booster, so that the trained model is a native one. XGBoost fits the
intercept ``base_score`` only under its own objective, hence the intercept is set here as XGBoost
would have set it. Under a callable objective XGBoost hands margins to callable metrics. They are
wrapped to see the probabilities, or the classes of ``multi:softmax``, that the parent hands them.

The calls run inside a communicator of XGBoost, which joins sketches and histograms of the
machines, so that each of them grows the same trees.
"""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import Any, ClassVar

import numpy as np
import xgboost as xgb

from gbm_constrained.data.exact_sums import Communicator
from gbm_constrained.data.validation import check_labels
from gbm_constrained.decision.choose import Criterion
from gbm_constrained.fit import options
from gbm_constrained.fit.callbacks import ConstraintCallback
from gbm_constrained.scorers.base import (
    ConstrainedBoosterMixin,
    ConstrainedRegressorMixin,
    FurtherArguments,
    ShardMixin,
    document_estimator,
    document_from,
)
from gbm_constrained.scorers.xgboost.fits import (
    DrivenXGBMixin,
    XGBoostAdapter,
    XGBoostRegressionAdapter,
    by_keyword,
)
from gbm_constrained.scorers.xgboost.parameters import map_metrics
from gbm_constrained.solvers.base import SolverMethod


class DrivenXGBClassifierMixin(DrivenXGBMixin, ConstrainedBoosterMixin):
    """All that a constrained classifier adds: XGBoost looks at two bases for parameters."""


@document_estimator
class ConstrainedXGBClassifier(DrivenXGBClassifierMixin, xgb.XGBClassifier):
    """XGBoost classifier trained under constraints on its error rates.

    A real :class:`xgboost.XGBClassifier`: every parameter, method and attribute of the parent is
    there, the booster is a plain XGBoost model, and ``constraints=[]`` is the parent's own fit.

    Parameters
    ----------
    {parameters}
    objective : str, default="binary:logistic"
        As in the parent. Constraints need the logistic or softmax objective.
    **kwargs
        Every other parameter of :class:`xgboost.XGBClassifier`.

    Attributes
    ----------
    {attributes}

    References
    ----------
    {references}

    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBClassifier, fnr
    >>> clf = ConstrainedXGBClassifier(constraints=[fnr() <= 0.05], n_estimators=300)
    """

    _adapter_class = XGBoostAdapter

    # Splitters of scikit-learn request groups by the same name and with the same meaning.
    __metadata_request__fit: ClassVar = {"groups": True}

    def __init__(
        self,
        *,
        constraints: Any = None,
        positive: Any = None,
        iterate: options.Iterate = "last",
        measure_on: options.MeasureOn = "auto",
        guarantee: options.GuaranteeOption = None,
        probabilities: options.Probabilities = "shifted",
        on_infeasible: options.OnInfeasible = "warn",
        early_stopping_on: options.EarlyStoppingOn = "metric",
        select: Criterion = "error",
        group_thresholds: bool = False,
        maximize: Any = None,
        minimize: Any = None,
        solver: options.SolverName | SolverMethod = "auto",
        objective: Any = "binary:logistic",
        **kwargs: Any,
    ) -> None:
        self._construct(locals())

    @options.with_known_parameters
    @by_keyword
    @document_from(FurtherArguments)
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
        max_cost: float | None = None,
    ) -> ConstrainedXGBClassifier:
        """Fit the classifier under its constraints.

        All other arguments are those of :meth:`xgboost.XGBClassifier.fit`. Constraints are
        measured as `measure_on` says. Their values on each `eval_set` are recorded, and the last
        one is the held-out set of the report. Where `base_margin` or `base_margin_eval_set` is
        given, constraints are measured on the decisions of ``predict(X, base_margin=...)``. A fit
        of more than a few seconds shows its progress unless `verbose` is false, as lines of text
        beside the lines that XGBoost prints.

        Raises
        ------
        TypeError, ValueError
            If constraints, labels or weights do not fit together; before training starts.

        Warns
        -----
        UserWarning
            If X has names of categories that this version of XGBoost cuts, or if the report
            holds only for predictions that are given a ``base_margin``.
        """
        return self._fit_by_name(super().fit, locals())

    def _raw_margin(self, X: Any, start: Any = None) -> Any:
        return super().predict(X, output_margin=True, base_margin=start)

    def _cell_margin(self, X: Any, model: bytes) -> Any:
        cells = xgb.XGBClassifier(n_jobs=self.n_jobs, missing=self.missing)
        cells.load_model(bytearray(model))
        return cells.predict(X, output_margin=True)

    @by_keyword
    @document_from(ConstrainedBoosterMixin._decide)
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

        Raises
        ------
        ValueError
            If offsets of groups are kept beside the model, and the columns are missing.
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


class DrivenXGBRegressorMixin(DrivenXGBMixin, ConstrainedRegressorMixin):
    """All that a constrained regressor adds: XGBoost looks at two bases for parameters."""


@document_estimator
class ConstrainedXGBRegressor(DrivenXGBRegressorMixin, xgb.XGBRegressor):
    """XGBoost regressor trained under constraints on means of losses and predictions.

    A real :class:`xgboost.XGBRegressor`: every parameter, method and attribute of the parent is
    there, the booster is a plain XGBoost model, and ``constraints=[]`` is the parent's own fit.

    Parameters
    ----------
    {parameters}
    objective : str, default="reg:squarederror"
        As in the parent. Constraints can be added to "reg:squarederror", "reg:pseudohubererror",
        "reg:absoluteerror", "reg:quantileerror" of one level, "count:poisson", "reg:tweedie" and
        "reg:gamma".
    **kwargs
        Every other parameter of :class:`xgboost.XGBRegressor`.

    Attributes
    ----------
    {attributes}

    Examples
    --------
    >>> from gbm_constrained import ConstrainedXGBRegressor, each, mean_loss
    >>> constraints = [each(mean_loss("squared"), by="race") <= 0.02]
    >>> model = ConstrainedXGBRegressor(constraints=constraints, n_estimators=300)
    """

    _adapter_class = XGBoostRegressionAdapter

    def __init__(
        self,
        *,
        constraints: Any = None,
        measure_on: options.MeasureOn = "auto",
        guarantee: options.GuaranteeOption = None,
        early_stopping_on: options.EarlyStoppingOn = "metric",
        group_shifts: bool = False,
        solver: options.SolverName | SolverMethod = "auto",
        objective: Any = "reg:squarederror",
        **kwargs: Any,
    ) -> None:
        self._construct(locals())

    @options.with_known_parameters
    @by_keyword
    @document_from(FurtherArguments)
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
        max_cost: float | None = None,
    ) -> ConstrainedXGBRegressor:
        """Fit the regressor under its constraints.

        All other arguments are those of :meth:`xgboost.XGBRegressor.fit`. Constraints are measured
        as `measure_on` says. Their values on each `eval_set` are recorded, and the last one is the
        held-out set of the report.

        Raises
        ------
        TypeError, ValueError
            If constraints, targets or weights do not fit together, or the objective has no
            gradients that constraints could be added to; before training starts.
        """
        return self._fit_by_name(super().fit, locals())


def _share_metric(function: Callable[..., Any], communicator: Communicator) -> Any:
    """Make XGBoost's mean over machines of a function the mean over their rows.

    A machine without rows calls it on nothing otherwise, and one of few rows counts as any other.
    """

    @functools.wraps(function)
    def shared(y_true: Any, y_score: Any, **weighted: Any) -> float:
        own = float(weighted["sample_weight"].sum()) if weighted else float(len(y_true))
        (total,) = communicator.sum(np.array([own]))
        if own == 0.0:
            return 0.0
        value = float(function(y_true, y_score, **weighted))
        return value * own * communicator.size / float(total)

    return shared


class ShardXGBClassifier(ShardMixin, ConstrainedXGBClassifier):
    """A classifier of XGBoost whose training rows are on several machines.

    Its labels on a machine need not be of all classes.
    """

    _local_class = ConstrainedXGBClassifier
    _of_shard = ("machine", "n_all_classes", "_labels")

    n_all_classes: int

    def _check_machines(self, adapter: XGBoostAdapter, *, has_constraints: bool) -> None:
        """Refuse a booster that XGBoost trains on one machine only."""
        if self.booster == "gblinear":
            raise ValueError(
                "booster='gblinear' is not trained on the rows of several machines by XGBoost: "
                "take booster='gbtree', or train on one machine."
            )

    def _fit_parent(self, native: Callable[..., Any], X: Any, y: Any, **given: Any) -> Any:
        """Train with the other machines on the rows of all of them."""
        self._labels = y
        if not hasattr(self, "n_all_classes"):
            self.n_all_classes = check_labels(y, communicator=self.machine.communicator)[0].size
        own: Any = self.eval_metric
        share = functools.partial(_share_metric, communicator=self.machine.communicator)
        self.eval_metric = map_metrics(own, share)
        try:
            return native(X, np.arange(self.n_all_classes), **given)
        finally:
            self.eval_metric = own

    def _make_matrix(self, ref: Any, **given: Any) -> Any:
        if ref is None:
            given["label"] = self._labels
        return super()._make_matrix(ref, **given)
