"""Classifiers that ``fit`` trains."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np

from gbm_constrained.boosters.base import BoosterAdapter
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.xgboost.classifier import ConstrainedXGBClassifier
from gbm_constrained.data.fit_data import FitArguments


class LabelledXGBClassifier(ConstrainedXGBClassifier):
    """Train XGBoost on class positions, and the constraints on the labels of these classes.

    XGBoost takes the labels 0, 1, 2 ... only. Constraints, reports and the note of the saved file
    hold the labels themselves, and predictions are labels.
    """

    _class_labels: Any = None

    @property
    def classes_(self) -> Any:
        """Sorted labels; 0, 1 ... of a file that does not name its classes."""
        return super().classes_ if self._class_labels is None else self._class_labels

    def fit(self, X: Any, y: Any, **given: Any) -> LabelledXGBClassifier:
        """Fit the classifier to labels of any kind."""
        self._training_labels, positions = np.unique(y, return_inverse=True)
        self._class_labels = None  # XGBoost checks the positions against classes_.
        super().fit(X, positions, **given)
        self._class_labels = self._training_labels
        return self

    def _fit_constrained(self, adapter: BoosterAdapter, rows: FitArguments, *given: Any) -> None:
        rows = replace(rows, y=self._training_labels[rows.y])
        super()._fit_constrained(adapter, rows, *given)

    def predict(self, X: Any, **given: Any) -> Any:
        """Predict labels, or scores where these are asked for."""
        found = super().predict(X, **given)
        return found if given.get("output_margin") else self.classes_[found]


CLASSIFIERS: dict[str, Any] = {
    "xgboost": LabelledXGBClassifier,
    "lightgbm": ConstrainedLGBMClassifier,
}
