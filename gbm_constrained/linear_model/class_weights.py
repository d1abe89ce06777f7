"""Weights of classes, as scikit-learn's logistic regression takes them."""

from __future__ import annotations

import inspect
from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from gbm_constrained._typing import Array

# Balanced classes are of equal weight since scikit-learn 1.7, and of equal count before.
_WEIGHTED_BALANCE = "sample_weight" in inspect.signature(compute_class_weight).parameters


def find_class_factor(class_weight: Any, classes: Array, y: Array, sample_weight: Any) -> Array:
    """Find the factor of each class in the objective.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        The parameter, by label.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y : ndarray of shape (n_samples,), intp
        Class index of each row.
    sample_weight : ndarray of shape (n_samples,) or None
        Weight of each row.
    """
    if isinstance(class_weight, dict):
        named = enumerate(classes.tolist())
        class_weight = {k: class_weight[c] for k, c in named if c in class_weight}
    given = {"sample_weight": sample_weight} if _WEIGHTED_BALANCE else {}
    positions = np.arange(classes.size)
    return np.asarray(compute_class_weight(class_weight, classes=positions, y=y, **given))
