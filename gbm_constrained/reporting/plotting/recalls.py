"""Recall of each class, of one classifier or of several."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
from gbm_constrained.data.validation import as_labels, check_share, check_weight
from gbm_constrained.evaluation.classifiers import repeatable_decisions
from gbm_constrained.reporting.plotting.style import (
    check_columns,
    colour_and_marker,
    document_plot,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
)
from gbm_constrained.statistics.binomial import clopper_pearson

COLUMNS = ("class", "rows", "recall", "low", "high")
APART = 0.22  # Distance of two classifiers, where classes are at distance 1.


class ClassRecallsDisplay:
    """Recall of each class with its exact interval.

    Parameters
    ----------
    recalls : dict from str to DataFrame
        By the name of a classifier, one row for each class: ``class``, ``rows``, ``recall``, and
        the interval from ``low`` to ``high``.
    level : float, default=0.95
        Level of the intervals.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    ax_: Any
    figure_: Any

    def __init__(self, recalls: Mapping[str, pd.DataFrame], level: float = 0.95) -> None:
        if not recalls:
            raise ValueError("recalls holds no classifier: give the table of one or of several.")
        for table in recalls.values():
            check_columns(table, **{name: name for name in COLUMNS})
        self.recalls, self.level = dict(recalls), level

    @classmethod
    @document_plot
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        others: Mapping[str, Any] | None = None,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str | None = None,
        ax: Any = None,
    ) -> ClassRecallsDisplay:
        """Measure and draw the recalls of a fitted classifier, and of others beside.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``. Randomised decisions count by their probabilities.
        others : dict from str to fitted classifier, default=None
            Further classifiers by their names in the legend, such as the one before; they are
            drawn first.
        name : str, default=None
            Name of the estimator in the legend; that of its class by default.

        Raises
        ------
        TypeError, ValueError
            If labels or weights do not fit the rows.
        """
        models = dict(others or {}) | {name or type(estimator).__name__: estimator}
        decided = {title: _decide(model, X) for title, model in models.items()}
        given = {"sample_weight": sample_weight, "level": level, "ax": ax}
        return cls.from_predictions(y, decided, **given)

    @classmethod
    @document_plot
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str = "predictions",
        ax: Any = None,
    ) -> ClassRecallsDisplay:
        """Measure and draw the recalls of given decisions.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels.
        y_pred : array-like of shape (n_samples,), DataFrame, or dict of them
            Decisions. In a DataFrame of shape (n_samples, n_classes) they are probabilities of
            the decisions, whose columns are the classes. A dict has them by name.
        name : str, default="predictions"
            Name of decisions without a dict in the legend.

        Raises
        ------
        TypeError, ValueError
            If labels, decisions or weights do not fit each other.
        """
        matplotlib("axes")
        check_share("level", level)
        labels = as_labels(y_true)
        weight = check_weight(sample_weight, labels.size)
        weight = np.ones(labels.size) if weight is None else weight
        given = y_pred if isinstance(y_pred, dict) else {name: y_pred}
        recalls = {
            title: _tabulate(labels, decisions, weight, level)
            for title, decisions in given.items()
        }
        return cls(recalls, level).plot(ax)

    @document_plot
    def plot(self, ax: Any = None) -> ClassRecallsDisplay:
        """Draw the recalls, one class below the other.

        Returns
        -------
        ClassRecallsDisplay
            The display itself.
        """
        first = next(iter(self.recalls.values()))
        names = [
            literal(f"{label} (n={size:,})")
            for label, size in zip(first["class"], first["rows"], strict=True)
        ]
        n = len(self.recalls)
        ax = get_axes(ax, (4.5 + 0.085 * max(map(len, names)), 1.6 + 0.3 * (n + 1) * len(names)))
        for i, (title, table) in enumerate(self.recalls.items()):
            colour, marker = colour_and_marker(i)
            at = np.arange(len(table)) + APART * (i - (n - 1) / 2)
            low, found, high = (table[c].to_numpy(np.float64) for c in ("low", "recall", "high"))
            ax.errorbar(
                found, at, xerr=np.array([found - low, high - found]).clip(0.0), fmt="none",
                ecolor=colour, elinewidth=1.6, capsize=3, alpha=0.7,
            )  # fmt: skip
            label = f"{literal(title)}, {100 * self.level:g}% intervals"
            ax.plot(found, at, marker, color=colour, markersize=6, label=label)
        ax.set_yticks(np.arange(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        ax.set_xlim(-0.02, 1.02)
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
        finish_axes(ax, "recall (fraction)", "")
        ax.grid(False, axis="y")
        self.ax_, self.figure_ = ax, ax.figure
        return self


def _decide(model: Any, X: Any) -> Any:
    """Decide by a classifier; a randomised one gives probabilities of its decisions."""
    if hasattr(model, "decision_probabilities"):
        return pd.DataFrame(model.decision_probabilities(X), columns=model.classes_)
    return repeatable_decisions(model, X)


def _tabulate(labels: Any, decisions: Any, weight: Float, level: float) -> pd.DataFrame:
    """Tabulate the recall of each class."""
    if len(decisions) != labels.size:
        raise ValueError(
            f"y_pred has {len(decisions)} rows and y_true has {labels.size}: give one decision "
            f"for each row."
        )
    if isinstance(decisions, pd.DataFrame):
        columns = list(decisions.columns)
        hits = np.array([0.0 if k not in columns else np.nan for k in labels])
        of_column = decisions.to_numpy(np.float64)
        for j, column in enumerate(columns):
            hits = np.where(labels == column, of_column[:, j], hits)
    else:
        hits = (as_labels(decisions) == labels).astype(np.float64)
    records = []
    for label in np.unique(labels):
        w, hit = weight[labels == label], hits[labels == label]
        found = float(np.average(hit, weights=w))
        n_effective = w.sum() ** 2 / (w**2).sum()
        low, high = clopper_pearson(found * n_effective, n_effective, level)
        records.append((label, int((labels == label).sum()), found, float(low), float(high)))
    return pd.DataFrame(records, columns=list(COLUMNS))
