r"""Probabilities of scores that are no log-odds, such as those of DART or of a random forest.

.. math:: P(k \mid x) \propto \exp(a s_k(x) + b_k)

with one scale :math:`a > 0` and one bias of each class, of maximum likelihood on held-out rows
(Platt, "Probabilistic outputs for support vector machines", 1999; of several classes, Guo et al.,
"On calibration of modern neural networks", 2017, section 4.2). A bias is the logarithm of a factor
of the class in the objective, with its sign changed.
"""

from __future__ import annotations

import numpy as np
from scipy.optimize import minimize
from scipy.special import logsumexp, xlogy

from gbm_constrained._typing import Array, Codes, Float

# Largest size of a bias and of the logarithm of the scale: scores that separate the classes have
# no largest likelihood, nor does a class without held-out rows.
MAX_PARAMETER = 30.0


def calibrate_scores(
    margin: Array, codes: Codes, n_classes: int, weight: Float | None
) -> tuple[Float, float]:
    """Find the factors of the classes and the scale by which scores become probabilities.

    Parameters
    ----------
    margin : ndarray of shape (n_samples,) or (n_samples, n_classes)
        Scores of held-out rows.
    codes : ndarray of shape (n_samples,), intp
        Class of each row.
    n_classes : int
        Number of classes.
    weight : ndarray of shape (n_samples,) or None
        Weight of each row.

    Returns
    -------
    factors : ndarray of shape (n_classes,)
        The largest is one.
    scale : float
    """
    scores = np.asarray(margin, dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(scores.size), scores])
    # A booster that has not seen a class scores it with minus infinity: no others are below it.
    is_finite = np.isfinite(scores)
    scores = np.where(is_finite, scores, scores[is_finite].min())
    w = np.ones(codes.size) if weight is None else weight
    w = w / w.sum()
    unit = max(float(scores.std()), np.finfo(np.float64).tiny)
    rows = np.arange(codes.size)
    share = np.bincount(codes, w, n_classes)

    def loss(parameters: Float) -> tuple[float, Float]:
        scale, bias = np.exp(parameters[0]) / unit, np.append(0.0, parameters[1:])
        z = scale * scores + bias
        log_p = z - logsumexp(z, axis=1, keepdims=True)
        residual = w[:, None] * np.exp(log_p)
        residual[rows, codes] -= w
        gradient = np.append((residual * scores).sum() * scale, residual.sum(axis=0)[1:])
        return -float(w @ log_p[rows, codes]), gradient

    bounds = [(-MAX_PARAMETER, MAX_PARAMETER)] * n_classes
    start = np.append(np.log(np.clip(unit, *np.exp(bounds[0]))), np.zeros(n_classes - 1))
    found = minimize(loss, start, jac=True, method="L-BFGS-B", bounds=bounds)
    is_worse = found.fun > -xlogy(share, share).sum() + 1e-6  # than the shares of the classes
    parameters = start if is_worse else found.x
    bias = np.append(0.0, parameters[1:])
    return np.exp(bias.min() - bias), float(np.exp(parameters[0]) / unit)
