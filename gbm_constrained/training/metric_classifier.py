"""Classifiers whose objective is a metric of the confusion matrix."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
from sklearn.base import clone

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.sensitive_features import columns_of
from gbm_constrained.data.validation import as_labels, check_weight, untouched_random_state
from gbm_constrained.decision.cost_rule import CostRule, mixture_shares
from gbm_constrained.decision.rule import MarginShift, Mixture
from gbm_constrained.evaluation.classifiers import encode_labels
from gbm_constrained.evaluation.metric_value import measure_metric
from gbm_constrained.metrics.reading import read_objective
from gbm_constrained.training.fitted_report import remove_report
from gbm_constrained.training.held_out_boosters import NativeModel
from gbm_constrained.training.metric_fit import MetricFit, MetricResult
from gbm_constrained.training.metric_report import report_metric, warn_of_metric
from gbm_constrained.training.model_note import unchanged_on_error
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import LibrarySettings


class NativeAdapter(Protocol):
    """What a fit that leaves training to the library knows of the library."""

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""

    def fit_part(
        self, rows: Codes, target: Codes | None, is_joint: bool, factor: Float | None = None
    ) -> NativeModel:
        """Train the library's own model on some of the rows.

        Parameters
        ----------
        rows : ndarray of int
            Positions of the rows.
        target : ndarray of shape (n_samples,), intp or None
            Joint labels of all rows; None for the labels that the user gave.
        is_joint : bool
            Whether these are joint labels, which no parameter about classes is for.
        factor : ndarray of shape (n_samples,), default=None
            Factor of the weight of each of all rows.
        """

    def can_fold(self) -> bool:
        """Whether a shift of scores can be added to the trained model."""

    def add_to_margin(self, shift: Array) -> None:
        """Add to all scores that the trained model predicts."""


def clone_plain(model: Any) -> Any:
    """Clone a booster's classifier without its constraints and its metric."""
    with untouched_random_state(model):
        plain = clone(model)
    return plain.set_params(
        constraints=None,
        maximize=None,
        minimize=None,
        deterministic=None,
        oracle="auto",
        solver="auto",
    )


def multiply_weight(weight: Any, factor: Float | None) -> Any:
    """Multiply the weights of rows, ones where weight is None, by factors if there are any."""
    if factor is None:
        return weight
    return factor if weight is None else np.asarray(weight, dtype=np.float64) * factor


class MetricMixin:
    """What a classifier with ``maximize=`` or ``minimize=`` does."""

    classes_: Any
    maximize: Any
    minimize: Any
    positive: Any
    probabilities: Any

    def _raw_margin(self, X: Any) -> Array:
        """Scores of the booster, of shape (n_samples,) or (n_samples, n_classes)."""
        raise NotImplementedError

    def _cell_margin(self, X: Any, model: bytes) -> Array:
        """Scores of the booster of the joint labels, given its bytes."""
        raise NotImplementedError

    def _decision_margin(self, X: Any) -> Array:
        """Scores of the booster that decides."""
        rules = self.__dict__.get("_rules")
        if rules is None or rules["cell_model"] is None:
            return self._raw_margin(X)
        return self._cell_margin(X, rules["cell_model"])

    def _fit_metric(
        self, adapter: NativeAdapter, rows: FitArguments, options: SolverOptions
    ) -> None:
        """Fit with a metric of the confusion matrix as the objective."""
        metric = options.metric
        assert metric is not None
        fit = MetricFit(options, metric, rows, adapter.settings())
        with unchanged_on_error(self):
            result = fit.run(adapter.fit_part)
            adapter.fit_plain(result.row_factor)
            remove_report(self)
            cell_model = None if result.cell_model is None else result.cell_model.to_bytes()
            self._rules = _as_dict(result, cell_model)
            feasibility = report_metric(self, fit, result, self._decision_margin)
            self._fold(adapter, result)
        warn_of_metric(fit, result, feasibility)

    def _fold(self, adapter: NativeAdapter, result: MetricResult) -> None:
        """Put one rule that is a shift of the scores into the model, or beside it."""
        n_columns = 1 if len(self.classes_) == 2 else len(self.classes_)
        self.shift_ = np.zeros(n_columns)
        rules = result.rules
        shift = rules[0].as_shift() if len(rules) == 1 and result.cell_model is None else None
        if shift is None:
            return
        del self._rules
        self.shift_ = shift
        is_calibrated = getattr(self, "probabilities", "shifted") == "calibrated"
        if shift.any() and not is_calibrated and adapter.can_fold():
            adapter.add_to_margin(shift)
        elif shift.any():
            self._threshold = shift

    def _decide_by_rules(self, X: Any, random_state: Any) -> Codes:
        """Decide the class index of each row by the rules of the metric."""
        margin = self._decision_margin(X)
        mixture = Mixture(self._cost_rules, self._rules["probability"], random_state)
        return mixture.decide(lambda _: margin)

    @property
    def _cost_rules(self) -> tuple[CostRule, ...]:
        return tuple(CostRule(costs, self._rules["factors"]) for costs in self._rules["costs"])

    def decision_probabilities(self, X: Any) -> Float:
        """Probability that ``predict`` decides each class.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.

        Returns
        -------
        ndarray of shape (n_samples, n_classes)
            Zeros and ones unless the decisions are randomised.
        """
        n_classes = len(self.classes_)
        if hasattr(self, "_rules"):
            margin = self._decision_margin(X)
            decisions = [rule.decide(lambda _: margin) for rule in self._cost_rules]
            return mixture_shares(decisions, self._rules["probability"], n_classes)
        margin = self._raw_margin(X)
        shift = getattr(self, "_threshold", np.zeros(1 if n_classes == 2 else n_classes))
        codes = MarginShift(shift).decide(lambda _: margin)
        return mixture_shares([codes], np.ones(1), n_classes)

    def score(self, X: Any, y: Any, sample_weight: Any = None, **columns: Any) -> float:
        """Compute the metric that the classifier maximises or minimises, or the accuracy.

        Parameters
        ----------
        X : array-like of shape (n_samples, n_features)
            Rows.
        y : array-like of shape (n_samples,)
            Labels.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        **columns
            ``sensitive_features``, of a metric that looks at groups which are no columns of X.

        Returns
        -------
        float
            The larger, the better: a metric that is minimised has its sign changed. Of randomised
            decisions, the metric of their probabilities.
        """
        metric = read_objective(self.maximize, self.minimize)
        if metric is None:
            return float(super().score(X, y, sample_weight, **columns))  # type: ignore[misc]
        labels = as_labels(y)
        codes = encode_labels(
            labels, np.asarray(self.classes_), "y holds", "the classes of the classifier"
        )
        rows = Rows(
            codes,
            np.asarray(self.classes_),
            check_weight(sample_weight, codes.size),
            columns_of(columns.get("sensitive_features"), codes.size),
            [X],
        )
        value = measure_metric(metric, rows, self.decision_probabilities(X), self.positive)
        return value if metric.greater_is_better else -value


def _as_dict(result: MetricResult, cell_model: bytes | None) -> dict[str, Any]:
    """Collect the rules of a fitted classifier, as its file holds them."""
    return {
        "costs": result.chosen.costs,
        "probability": result.chosen.probability,
        "factors": result.factors,
        "cell_model": cell_model,
    }
