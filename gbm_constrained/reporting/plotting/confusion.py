"""Confusion matrices of groups, one below the other."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.utils.multiclass import unique_labels

from gbm_constrained._typing import Codes
from gbm_constrained.data.alignment import check_alignment
from gbm_constrained.data.validation import check_weight, labels_and_decisions
from gbm_constrained.evaluation.classifiers import repeatable_decisions
from gbm_constrained.problem.groups import Group, quote_lookalikes
from gbm_constrained.reporting.plotting.inputs import groups_of
from gbm_constrained.reporting.plotting.style import document_plot, get_axes, literal, matplotlib

Normalize = Literal["true", "pred", "all"] | None
UNITS = {
    "true": "fraction of the true class",
    "pred": "fraction of the predicted class",
    "all": "fraction of the group",
    None: "rows",
}
NOTHING = "\N{EN DASH}"  # Stands where no rows make a fraction.
SCALE_WIDTH = 0.2  # Largest width of the colour scale, in inches.
HEADING = 0.7  # Height of a group's name, where a row of the matrix has height 1.


class GroupConfusionDisplay:
    """Confusion matrix of each group, true classes down and predicted ones across.

    Parameters
    ----------
    confusion_matrix : ndarray of shape (n_groups, n_classes, n_classes)
        Number of rows of each group, true class and predicted class: integers, or sums of weights.
    groups : sequence of str
        Names of the groups.
    display_labels : sequence, default=None
        Names of the classes; their positions by default.

    Attributes
    ----------
    shown_ : ndarray of shape (n_groups, n_classes, n_classes)
        The numbers as they are drawn, normalised.
    text_ : ndarray of matplotlib Text of that shape, or None
        Texts in the cells.
    colorbar_ : matplotlib Colorbar or None
        The scale of the colours.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.

    See Also
    --------
    sklearn.metrics.ConfusionMatrixDisplay : The confusion matrix of all rows.
    """

    shown_: NDArray[Any]
    text_: NDArray[Any] | None
    colorbar_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        confusion_matrix: NDArray[Any],
        groups: Sequence[str],
        *,
        display_labels: Sequence[Any] | None = None,
    ) -> None:
        shape = np.shape(confusion_matrix)
        if len(shape) != 3 or shape[1] != shape[2] or shape[0] != len(groups):
            raise ValueError(
                f"confusion_matrix must be of shape (n_groups, n_classes, n_classes) for "
                f"{len(groups)} groups, got {shape}."
            )
        self.confusion_matrix = np.asarray(confusion_matrix)
        self.groups = tuple(groups)
        self.display_labels = list(range(shape[1]) if display_labels is None else display_labels)
        if len(self.display_labels) != shape[1]:
            raise ValueError(
                f"display_labels must name each of the {shape[1]} classes, got "
                f"{self.display_labels}."
            )

    @classmethod
    @document_plot
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        by: Any = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        labels: Any = None,
        display_labels: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> GroupConfusionDisplay:
        """Draw the confusion matrices of a fitted classifier, constrained or not.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``; one fitted with ``iterate="randomized"`` is asked with
            ``random_state=0``.
        by : str or list of str, default=None
            Columns that make the groups, of `sensitive_features` or of a DataFrame `X`; several
            make intersections. All sensitive features by default.

        Raises
        ------
        ValueError
            If there are no such columns, labels, weights and columns are not equally many, or
            `labels` repeat themselves or are none of those here.
        """
        matplotlib("axes")
        answer = f"{type(estimator).__name__}.predict"
        decisions = repeatable_decisions(estimator, X, sensitive_features)
        true, decided = labels_and_decisions(y, decisions, ("y", answer))
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"X": X, "y": y, **given})
        groups = groups_of(by, sensitive_features, X, true.size)
        display = cls._count(true, decided, groups, sample_weight, labels, display_labels)
        return display.plot(ax, **options)

    @classmethod
    @document_plot
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        by: Any = None,
        sensitive_features: Any,
        sample_weight: Any = None,
        labels: Any = None,
        display_labels: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> GroupConfusionDisplay:
        """Draw the confusion matrices of given decisions.

        Parameters
        ----------
        by : str or list of str, default=None
            Columns of `sensitive_features` that make the groups; several make intersections. All
            of them by default.

        Raises
        ------
        ValueError
            As :meth:`from_estimator`.
        """
        matplotlib("axes")
        true, decided = labels_and_decisions(y_true, y_pred)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"y_true": y_true, "y_pred": y_pred, **given})
        groups = groups_of(by, sensitive_features, None, true.size)
        display = cls._count(true, decided, groups, sample_weight, labels, display_labels)
        return display.plot(ax, **options)

    @classmethod
    def _count(
        cls,
        true: NDArray[Any],
        decided: NDArray[Any],
        groups: tuple[Codes, list[Group]],
        sample_weight: Any,
        labels: Any,
        display_labels: Any,
    ) -> GroupConfusionDisplay:
        """Count rows by group, true class and predicted class."""
        weight = check_weight(sample_weight, true.size)
        found = unique_labels(true, decided)
        classes = found if labels is None else np.asarray(labels)
        if np.unique(classes).size < classes.size or not np.isin(classes, found).any():
            raise ValueError(
                f"labels must be different ones, some of which are here, got {classes.tolist()}: "
                f"there are {found.tolist()}."
            )
        group, levels = groups
        known = pd.Index(classes)
        at = group, known.get_indexer(true), known.get_indexer(decided)
        is_counted = (at[1] >= 0) & (at[2] >= 0)  # Rows of the classes that were asked for.
        one = np.ones(true.size, dtype=np.int64) if weight is None else weight
        counts = np.zeros((len(levels), classes.size, classes.size), dtype=one.dtype)
        np.add.at(counts, tuple(each[is_counted] for each in at), one[is_counted])
        sizes = np.bincount(group[is_counted], minlength=len(levels))
        names = [
            f"{level} (n={n:,})" for level, n in zip(quote_lookalikes(levels), sizes, strict=True)
        ]
        shown = map(literal, classes) if display_labels is None else display_labels
        return cls(counts, names, display_labels=list(shown))

    @document_plot
    def plot(
        self,
        ax: Any = None,
        *,
        normalize: Normalize = "true",
        include_values: bool = True,
        values_format: str | None = None,
        cmap: Any = "Blues",
        colorbar: bool = True,
    ) -> GroupConfusionDisplay:
        """Draw the matrices.

        Parameters
        ----------
        normalize : {"true", "pred", "all"}, default="true"
            Numbers as fractions of the rows of a group: of the true class, of the predicted
            class, or of all; None for the numbers themselves.
        include_values : bool, default=True
            Whether the numbers are written into the cells.
        values_format : str, default=None
            Format of the numbers; by default three decimals for fractions, ``",d"`` for numbers of
            rows and ``",.6g"`` for sums of weights.
        cmap : str or matplotlib Colormap, default="Blues"
            Colours of the cells.
        colorbar : bool, default=True
            Whether there is a scale of the colours.

        Returns
        -------
        GroupConfusionDisplay
            The display itself.

        Raises
        ------
        ValueError
            If `normalize` is something else.
        """
        n_groups, n, _ = self.confusion_matrix.shape
        self.shown_ = _normalize(self.confusion_matrix, normalize)
        height = n_groups * (n + HEADING)
        classes = [str(label) for label in self.display_labels]
        name, group = (max(map(len, of), default=0) for of in (classes, self.groups))
        wide = max(n * max(0.9, 0.11 * name), 0.08 * group)  # so that names are apart
        colours = matplotlib("cm").ScalarMappable(
            matplotlib("colors").Normalize(0.0, _largest(self.shown_, normalize)), cmap
        )
        ax = get_axes(ax, (2.5 + 0.085 * name + wide, 1.3 + 0.42 * height))
        tops = np.arange(n_groups) * (n + HEADING) + HEADING
        self.text_ = np.empty(self.shown_.shape, dtype=object) if include_values else None
        counted = ",d" if self.shown_.dtype.kind in "iu" else ",.6g"
        spec = values_format or (counted if normalize is None else ".3f")
        for i, top in enumerate(tops):
            edges = np.arange(n + 1) - 0.5, top + np.arange(n + 1)
            ax.pcolormesh(
                *edges, self.shown_[i], norm=colours.norm, cmap=colours.cmap,
                edgecolors="white", linewidth=1.0,
            )  # fmt: skip
            ax.text(
                -0.5, top - 0.12, literal(self.groups[i]), ha="left", va="bottom",
                fontweight="bold", fontsize="small",
            )  # fmt: skip
            if self.text_ is not None:
                self._write(ax, colours, i, top, spec)
        ax.set_yticks(np.add.outer(tops, np.arange(n) + 0.5).ravel(), classes * n_groups)
        ax.set_xticks(np.arange(n), classes)
        ax.set_xlim(-0.5, n - 0.5)
        ax.set_ylim(height, 0.0)
        ax.set_xlabel("predicted class")
        ax.set_ylabel("true class")
        ax.tick_params(length=0)
        ax.spines[:].set_visible(False)
        self.colorbar_ = None
        if colorbar:
            # By itself a high scale is as wide, and there is no room left for its label.
            inches = ax.get_window_extent().height / ax.figure.dpi
            slender = max(20.0, inches / SCALE_WIDTH)
            self.colorbar_ = ax.figure.colorbar(
                colours, ax=ax, label=UNITS[normalize], aspect=slender
            )
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _write(self, ax: Any, colours: Any, i: int, top: float, spec: str) -> None:
        """Write the numbers of a group into its cells, in a colour that is seen."""
        assert self.text_ is not None
        for (k, j), value in np.ndenumerate(self.shown_[i]):
            written, seen = NOTHING, None  # on no colour: as the other texts of the figure
            if not np.isnan(value):
                red, green, blue, _ = colours.to_rgba(value)
                bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
                written, seen = format(value, spec), "black" if bright else "white"
            self.text_[i, k, j] = ax.text(
                j, top + k + 0.5, written, ha="center", va="center", color=seen
            )


def _normalize(counts: NDArray[Any], normalize: Normalize) -> NDArray[np.float64]:
    """Divide counts by the rows of a class or group; NaN where there are none."""
    axes: dict[str, Any] = {"true": 2, "pred": 1, "all": (1, 2)}
    if normalize is None:
        return counts
    if normalize not in axes:
        raise ValueError(f"normalize must be one of {[*axes, None]}, got {normalize!r}.")
    total = counts.sum(axis=axes[normalize], keepdims=True)
    nothing = np.full(counts.shape, np.nan)
    return np.asarray(np.divide(counts, total, out=nothing, where=total > 0))


def _largest(shown: NDArray[Any], normalize: Normalize) -> float:
    if normalize in ("true", "pred"):
        return 1.0
    return float(max(np.nanmax(shown, initial=0.0), 1e-12))
