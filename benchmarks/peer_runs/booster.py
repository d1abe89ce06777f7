"""The plain booster that the peers are given. Needs LightGBM."""

from __future__ import annotations

from typing import Any

import numpy as np
from lightgbm import LGBMClassifier

from .split import Split


def parameters(trees: int, tree: dict[str, int]) -> dict[str, Any]:
    """Parameters that all peers share."""
    return {"n_estimators": trees, "learning_rate": 0.1, **tree}


def plain(parameters: dict[str, Any]) -> LGBMClassifier:
    """Return an unfitted booster of the benchmark's parameters, on one thread."""
    return LGBMClassifier(**parameters, n_jobs=1, random_state=0, verbose=-1)


def fitted_without_calibration(split: Split, parameters: dict[str, Any]) -> LGBMClassifier:
    """Fit the plain booster to the rows that are not kept for calibration."""
    X, y, _ = split.part(~split.calibration)
    return plain(parameters).fit(X, y)


def positive_scores(model: Any, X: Any) -> Any:
    """Probability of the positive class."""
    return np.asarray(model.predict_proba(X))[:, 1]
