"""Logistic regression whose objective is a metric of the confusion matrix.

Decisions are found by the probabilities of models that have not seen the rows, as with boosters.
The model that decides is the parent's own, of all rows (Narasimhan et al., "Consistent
Multiclass Algorithms for Complex Metrics and Constraints", section 8).
"""

from __future__ import annotations

import io
from collections.abc import Callable
from typing import Any

import numpy as np
from sklearn.linear_model import LogisticRegression
from sklearn.utils.extmath import safe_sparse_dot

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.data.combined_rows import CombinedRows
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.training.metric_classifier import NativeAdapter
from gbm_constrained.training.native_models import IsOver, PartRows, multiply_weight
from gbm_constrained.training.problem import LibrarySettings


class LogisticAdapter(NativeAdapter):
    """Arguments of one ``fit``, and how it is left to scikit-learn.

    Parameters
    ----------
    model : LogisticRegression
        The classifier.
    native : callable
        The parent's own ``fit``.
    rows : FitArguments
        The training rows.
    settings : LibrarySettings
        What a fit must know of the parameters.
    """

    def __init__(
        self,
        model: Any,
        native: Callable[..., Any],
        rows: FitArguments,
        settings: LibrarySettings,
    ) -> None:
        self.model, self.native, self._settings = model, native, settings
        self.X, self.y, self.sample_weight = rows.X, rows.y, rows.sample_weight

    def settings(self) -> LibrarySettings:
        """Say what a fit must know of the parameters."""
        return self._settings

    def check_rows(self, combined: CombinedRows) -> None:
        """Accept further rows, for no other argument has one value for each row."""

    def fit_plain(self, factor: Float | None = None, is_over: IsOver | None = None) -> None:
        """Call the parent's own ``fit``, which nothing ends early."""
        self.native(self.X, self.y, multiply_weight(self.sample_weight, factor))

    def leave_out_rounds(self) -> None:
        """Leave none out: a linear model has no rounds."""

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

    def finish(self) -> None:
        """Add no conditions."""

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


def linear_margin(X: Any, model: bytes) -> Array:
    """Score validated rows by the coefficients that :meth:`LogisticModel.to_bytes` has written."""
    with np.load(io.BytesIO(model)) as saved:
        scores = safe_sparse_dot(X, saved["coef"].T, dense_output=True) + saved["intercept"]
    return np.asarray(scores[:, 0] if scores.shape[1] == 1 else scores)
