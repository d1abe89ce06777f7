"""Metrics of the user, which both libraries hand raw scores while the objective is a function."""

from __future__ import annotations

import functools
from collections.abc import Callable
from typing import Any

import numpy as np
from scipy.special import expit, softmax

from gbm_constrained._typing import Array


def compute_probabilities(margin: Array) -> Array:
    """Compute probabilities from scores: logistic in one dimension, softmax in two."""
    return np.asarray(expit(margin) if margin.ndim == 1 else softmax(margin, axis=1))


def map_scores(
    metric: Callable[..., Any], function: Callable[[Array], Array]
) -> Callable[..., Any]:
    """Make a metric that is handed scores from one that is handed a function of them."""

    @functools.wraps(metric)
    def on_scores(y_true: Array, scores: Array, *args: Any, **kwargs: Any) -> Any:
        return metric(y_true, function(scores), *args, **kwargs)

    return on_scores
