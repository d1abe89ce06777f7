"""What LightGBM computes from the numbers of rows of classes: their weights and the intercept."""

from __future__ import annotations

from typing import Any

import numpy as np
from sklearn.utils.class_weight import compute_class_weight

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.metrics import EPSILON
from gbm_constrained.boosters.lightgbm.parameters import find_parameter
from gbm_constrained.data.communicator import Communicator
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.training.fit import ConstrainedFit


def count_classes(classes: Array, y: Array, communicator: Communicator) -> Array:
    """Count the rows of each class, on all machines."""
    return communicator.sum(np.bincount(y, minlength=classes.size).astype(np.float64))


def find_class_weights(
    class_weight: Any, classes: Array, y: Array, communicator: Communicator
) -> Array:
    """Find the factor of each class that ``class_weight`` asks for.

    Parameters
    ----------
    class_weight : dict, "balanced" or None
        The parameter, by label.
    classes : ndarray of shape (n_classes,)
        Sorted labels.
    y : ndarray of shape (n_samples,), intp
        Class index of each row of this machine.
    communicator : Communicator
        Connects the machines.
    """
    if isinstance(class_weight, str) and class_weight == "balanced":
        count = count_classes(classes, y, communicator)
        return np.asarray(count.sum() / (classes.size * count))
    return np.asarray(compute_class_weight(class_weight, classes=classes, y=classes))


def find_label_factors(model: Any, classes: Array, y: Array, communicator: Communicator) -> Array:
    """Find the factor of each class by ``is_unbalance`` and ``scale_pos_weight`` of two classes.

    Parameters
    ----------
    model : LGBMModel
        The estimator, which has the parameters.
    classes, y, communicator
        As of :func:`find_class_weights`.
    """
    factor = np.ones(classes.size)
    if classes.size == 2:
        if find_parameter(model, "is_unbalance", False):
            count = count_classes(classes, y, communicator)
            factor[count.argmin()] = count.max() / count.min()
        factor[1] *= find_parameter(model, "scale_pos_weight", 1.0)
    return factor


def find_intercept(fit: ConstrainedFit) -> Array:
    """Compute LightGBM's ``boost_from_average``: log-odds, or the log share of each class."""
    y, n_classes = fit.data.y, fit.data.classes.size

    def by_class(values: Array | None) -> Array:
        return np.bincount(y, values, n_classes)

    weight, communicator = fit.problem.weights.library, fit.problem.cells.communicator
    (share,) = sum_over_machines(by_class, [weight], communicator)
    share = share / share.sum()
    if share.size == 2:
        p = min(max(share[1], EPSILON), 1.0 - EPSILON)
        return np.array([np.log(p / (1.0 - p))])
    return np.asarray(np.log(np.maximum(share, EPSILON)))
