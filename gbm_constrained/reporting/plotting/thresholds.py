"""Scores at every threshold: the trade-off of both errors, and the Neyman-Pearson ROC band."""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any

import numpy as np
from numpy.typing import ArrayLike
from sklearn.metrics import roc_curve

from gbm_constrained.data.alignment import check_alignment
from gbm_constrained.evaluation.classifiers import positive_of
from gbm_constrained.evaluation.np_roc import np_roc_band
from gbm_constrained.reporting.plotting.inputs import scores_of
from gbm_constrained.reporting.plotting.style import COLOURS, GREY, finish_axes, get_axes


def plot_threshold_curve(
    y_true: ArrayLike,
    score: ArrayLike,
    ax: Any = None,
    *,
    label: str = "all thresholds",
    **line: Any,
) -> Any:
    """Plot false alarm rate against miss rate for every threshold on a score, binary.

    The line goes through the rates of every threshold, and between two of them by the worse rates.
    So some threshold reaches each point above and to the right, or a better one.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels; 1 is the positive class.
    score : array-like of shape (n_samples,)
        Scores or probabilities of the positive class.
    ax : matplotlib axes, default=None
        Axes to draw into; a new figure by default. Names that its axes have already stay.
    label : str
        Name of the curve in a legend.
    **line
        Properties of the line, such as ``color``.

    Returns
    -------
    matplotlib axes
    """
    check_alignment({"y_true": y_true, "score": score})
    false_alarms, hits, _ = roc_curve(y_true, score, drop_intermediate=False)
    ax = get_axes(ax)
    # Of tied scores all or none are decided as positive. Misses run down, so that "pre" is the
    # corner of more of both errors.
    style = {"color": GREY, "linewidth": 1.2, "drawstyle": "steps-pre", "zorder": 1.5, **line}
    ax.plot(1.0 - hits, false_alarms, label=label, **style)
    ylabel = ax.get_ylabel() or "false alarm rate (fraction)"
    finish_axes(ax, ax.get_xlabel() or "miss rate (fraction)", ylabel)
    return ax


def plot_np_roc(
    model_or_scores: Any,
    X: Any,
    y: ArrayLike,
    *,
    delta: float = 0.05,
    positive: Hashable | None = None,
    ax: Any = None,
    label: str | None = None,
) -> Any:
    """Plot the Neyman-Pearson ROC band of a score next to its empirical ROC curve.

    Across, the bound of the type I error (false positive rate); up, one minus the type II error,
    the true positive rate, that the threshold for this bound has: with probability ``1 - delta``
    the false positive rate is below the bound, and with that probability the true positive rate
    is in the band. The empirical curve (dotted) has its false positive rate on these rows across,
    which promises nothing. It, too, is of thresholds, which decide tied scores alike.

    Parameters
    ----------
    model_or_scores : fitted classifier or array-like of shape (n_samples,)
        A model with ``decision_function`` or ``predict_proba``, or its scores.
    X : array-like of shape (n_samples, n_features) or None
        Features of rows that the model was not trained on; not looked at when scores are given.
    y : array-like of shape (n_samples,)
        Labels of two classes.
    delta : float, default=0.05
        Probability of failure, for each bound by itself.
    positive : label, default=None
        The positive class, which given scores are of. By default the one that the model was
        trained with (its parameter ``positive``), else the last of the sorted labels.
    ax : matplotlib axes, default=None
        Axes to draw into; a new figure by default. Several bands can share axes.
    label : str, default=None
        Name of the model in the legend; its class by default.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    TypeError, ValueError
        If there are no scores to be had, or these and the labels do not fit together.

    See Also
    --------
    gbm_constrained.np_roc_band : The numbers.
    """
    positive = positive_of(model_or_scores) if positive is None else positive
    scores = scores_of(model_or_scores, X, positive)
    check_alignment({"X": X, "scores": model_or_scores, "y": y})
    band = np_roc_band(scores, y, delta, positive=positive)
    if label is None:
        given = hasattr(model_or_scores, "predict")
        label = type(model_or_scores).__name__ if given else "scores"
    ax = get_axes(ax)
    bands = sum(line.get_gid() == "np_roc" for line in ax.get_lines())
    colour = COLOURS[bands % len(COLOURS)]
    alpha = np.append(band["alpha"], 1.0)
    low, high = (1.0 - np.append(band[c], band[c].iloc[-1]) for c in ("fnr_upper", "fnr_lower"))
    step = {"color": colour, "linewidth": 1.4, "drawstyle": "steps-post", "gid": "np_roc"}
    name = f"{label}, band at {1.0 - delta:g}"
    ax.fill_between(alpha, low, high, step="post", color=colour, alpha=0.2, label=name)
    ax.plot(alpha, low, **step)
    ax.plot(alpha, high, **{**step, "gid": None})
    labels = np.asarray(y)
    is_positive = labels == (np.unique(labels)[1] if positive is None else positive)
    alarms, hits, _ = roc_curve(is_positive, scores, drop_intermediate=False)
    empirical = {"linewidth": 1.2, "linestyle": ":", "label": f"{label}, empirical"}
    ax.plot(alarms, hits, color=colour, drawstyle="steps-post", **empirical)
    ax.legend(loc="lower right", framealpha=0.9)
    xlabel = "bound of the type I error (false positive rate)"
    finish_axes(ax, xlabel, "1 - type II error (true positive rate)")
    return ax
