"""Shared parts of all figures: displays, matplotlib on demand, colours, axes and labels."""

from __future__ import annotations

import math
import re
from collections.abc import Callable, Hashable, Iterable, Sequence
from typing import Any, Self

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained._docstrings import document_parameters
from gbm_constrained._optional import import_optional
from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.comparisons import Each, Gap, Ratio
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.problem.functionals import Group

# Okabe and Ito's palette differs for any colour vision. Tol's wine is in the place of its black,
# which dark styles hide, and its yellow is left out, which light styles hide.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#882255")
# The same colours for texts, whose contrast with white and with black is at least 4.5 to 1, as
# WCAG 2.2 asks for (1.4.3). Amber itself has 2.3 to 1 on white.
TEXT_COLOURS = dict(
    zip(
        COLOURS,
        ("#107BB7", "#C35600", "#008763", "#A46186", "#9E6D00", "#3C7DA2", "#A85D82"),
        strict=True,
    )
)
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "0.45"
APART = 0.22  # Distance between two models, where groups or classes are 1 apart.
_SHARED_PARAMETERS = {
    "X": """X : array-like of shape (n_samples, n_features)
    Features of rows that the classifier was not trained on.""",
    "y": """y : array-like of shape (n_samples,)
    Labels.""",
    "y_true": """y_true, y_pred : array-like of shape (n_samples,)
    Labels, and decisions.""",
    "positive": """positive : label, default=None
    The positive class of a rate that names none, as in :func:`gbm_constrained.audit`.""",
    "sensitive_features": """sensitive_features : Series, DataFrame, dict of arrays or array-like
    Columns that make groups, next to those of a DataFrame `X`.""",
    "sample_weight": """sample_weight : array-like of shape (n_samples,), default=None
    Weights of the rows.""",
    "level": """level : float, default=0.95
    Level of each interval.""",
    "labels": """labels : array-like, default=None
    The classes and their order; by default those that occur, sorted.""",
    "display_labels": """display_labels : array-like, default=None
    Names of the classes; their labels by default.""",
    "names": """names : mapping from str to str, default=None
    Names of constraints in the legend, by the constraints as they print.""",
    "ax": """ax : matplotlib Axes, default=None
    Axes to draw into; a new figure by default.""",
    "options": """**options
    Options of :meth:`plot`.""",
}


def colour_and_marker(i: int) -> tuple[str, str]:
    """Choose the colour and the marker of the i-th series; the first 49 differ."""
    again, j = divmod(i, len(COLOURS))
    return COLOURS[j], MARKERS[(j + again) % len(MARKERS)]


def matplotlib(module: str) -> Any:
    """Import a module of matplotlib for a figure."""
    return import_optional(f"matplotlib.{module}", "Plots", "plot")


def check_columns(table: Any, *names: str, **columns: str | None) -> None:
    """Refuse columns that a table does not have, before anything is drawn.

    They are columns of any such table, or those that parameters name.
    """
    for parameter, name in {**dict(zip(names, names, strict=True)), **columns}.items():
        if name is not None and name not in table:
            raise ValueError(
                f"{parameter}={name!r} is not a column of the table, which has "
                f"{list(table.columns)}."
            )


def get_axes(ax: Any, size: tuple[float, float] = (5.5, 4.0)) -> Any:
    """Return the given axes, or those of a new figure of a size in inches."""
    if ax is not None:
        if not hasattr(ax, "plot"):
            raise TypeError(
                f"ax must be one Axes of matplotlib, got a {type(ax).__name__}: of an array of "
                f"them, give one."
            )
        return ax
    return matplotlib("pyplot").subplots(figsize=size, layout="constrained")[1]


def finish_axes(ax: Any, xlabel: str, ylabel: str) -> None:
    """Label axes, draw a grid behind everything, and remove the frame above and on the right."""
    ax.set_xlabel(xlabel)
    ax.set_ylabel(ylabel)
    ax.grid(True, color="0.5", alpha=0.2, linewidth=0.6)  # Faint on light and dark styles.
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def shorten(text: str, most: int) -> str:
    """Cut a text to a number of characters, with an ellipsis."""
    return text if len(text) <= most else text[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def literal(text: Any) -> str:
    """Escape what matplotlib would set as mathematics: names in data may hold dollar signs."""
    return str(text).replace("$", r"\$")


def name_rows(names: Iterable[Any], sizes: Iterable[int]) -> list[str]:
    """Name groups or classes by what they are and how many rows they have."""
    return [literal(f"{name} (n={n:,})") for name, n in zip(names, sizes, strict=True)]


def legend_above(ax: Any, handles: Sequence[Any] | None = None) -> None:
    """Put the legend above axes, on the right, where it hides no point and no name.

    It has as many columns as the width of the axes has room for.
    """
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    width = ax.get_window_extent().width / ax.figure.dpi  # in inches, of 12 characters each
    longest = max((len(str(handle.get_label())) for handle in handles), default=0)
    columns = max(1, int(12.0 * width) // (6 + longest))
    ax.legend(
        handles=handles, loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False, ncols=columns
    )


def legend_beside(ax: Any, handles: Sequence[Any] | None = None, **options: Any) -> None:
    """Put the legend on the right of axes of a figure that has room for it."""
    handles = ax.get_legend_handles_labels()[0] if handles is None else handles
    ax.legend(
        handles=handles, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False, **options
    )


def count_across(ax: Any) -> None:
    """Let the horizontal axis have integers alone."""
    ax.xaxis.set_major_locator(matplotlib("ticker").MaxNLocator(integer=True))


def draw_rates(
    ax: Any, at: Any, table: pd.DataFrame, column: str, colour: str, marker: str, **point: Any
) -> Any:
    """Draw rates as points beside each other, and their intervals as bars, which are returned."""
    low, rate, high = (table[name].to_numpy(np.float64) for name in ("low", column, "high"))
    bars = ax.errorbar(
        rate, at, xerr=np.array([rate - low, high - rate]).clip(0.0), fmt="none",
        ecolor=colour, elinewidth=1.6, capsize=3, alpha=0.7,
    )  # fmt: skip
    ax.plot(rate, at, marker, color=colour, markersize=6, **point)
    return bars


def split_constraint(constraint: str) -> tuple[str, str]:
    """Split a printed constraint into the bounded expression and the sense of the bound."""
    sense = max("<=", ">=", key=lambda sign: constraint.rfind(f" {sign} "))
    return constraint.rpartition(f" {sense} ")[0], sense


def find_unit(constraints: Iterable[str]) -> str:
    """Name the unit of printed expressions; empty where they have several units, or none.

    Quotients of two rates have none, and means of numbers and costs have those of the data.
    """
    units = set()
    for constraint in constraints:
        outside = re.sub(r"\[.*?\]|\(.*?\)", "", split_constraint(constraint)[0] or constraint)
        is_of_data = re.search(r"\b(mean_(loss|prediction|residual)|cost)\b", constraint)
        if " / " in outside or constraint.startswith("ratio(") or is_of_data:
            units.add("")
        else:
            units.add(" (nats)" if "log_loss" in constraint else " (fraction)")
    return units.pop() if len(units) == 1 else ""


def groups_of(by: Any, sensitive_features: Any, X: Any, n: int) -> tuple[Codes, list[Group]]:
    """Find the group of each row, and all groups."""
    columns = columns_of(sensitive_features, n)
    by = columns if by is None else by
    names = tuple(by) if pd.api.types.is_list_like(by) else (by,)  # A name may be a number.
    no_labels = np.zeros(n, dtype=np.intp)
    attribute = Rows(no_labels, no_labels[:1], None, columns, [X]).attribute(names)
    groups = [Group(names, frozenset([i]), level) for i, level in enumerate(attribute.levels)]
    return attribute.codes.astype(np.intp), groups


def scores_of(model_or_scores: Any, X: Any, positive: Hashable | None) -> NDArray[np.float64]:
    """Read or compute the scores of the positive class, by default the last of two."""
    for method in ("decision_function", "predict_proba"):
        score = getattr(model_or_scores, method, None)
        if score is not None:
            found = np.asarray(score(X), dtype=np.float64)
            is_first = positive is not None and positive == model_or_scores.classes_[0]
            if found.ndim == 2 and found.shape[1] == 2:
                return found[:, 0 if is_first else 1]
            return -found if is_first and found.ndim == 1 else found
    if hasattr(model_or_scores, "predict"):
        raise TypeError(
            f"{type(model_or_scores).__name__} has neither decision_function nor predict_proba: "
            f"give its scores instead of the model."
        )
    return np.asarray(model_or_scores, dtype=np.float64)


def find_allowed(
    constraint: Constraint | None, rates: Float, reference: float | None
) -> tuple[float, float] | None:
    """Find the ends between which a constraint, if any, allows the rates of groups to be."""
    if constraint is None:
        return None
    expression, b = constraint.expression, constraint.bound
    if isinstance(expression, Each):
        return (-math.inf, b) if constraint.sense == "<=" else (b, math.inf)
    if isinstance(expression, Ratio):  # A kind of gap.
        slack, high = expression.slack, float(rates.max())
        if reference is None:
            return b * high - slack, high
        return b * reference - slack, (reference + slack) / b if b > 0 else math.inf
    if isinstance(expression, Gap):
        if reference is not None:
            return reference - b, reference + b
        middle = (float(rates.min()) + float(rates.max())) / 2
        return middle - b / 2, middle + b / 2
    raise TypeError(f"A {type(expression).__name__} compares no groups.")


class Display:
    """Base of the displays.

    Attributes
    ----------
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    ax_: Any
    figure_: Any
    plot: Callable[..., Any]

    def __init_subclass__(cls) -> None:
        """Describe the parameters that the methods of all displays share."""
        for name in ("from_estimator", "from_predictions", "plot"):
            if (method := vars(cls).get(name)) is not None:
                document_parameters(getattr(method, "__func__", method), _SHARED_PARAMETERS)

    def _keep(self, ax: Any) -> Self:
        """Keep the axes that were drawn into."""
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _finish(self, ax: Any, xlabel: str, ylabel: str) -> Self:
        """Finish the axes that were drawn into, and keep them."""
        finish_axes(ax, xlabel, ylabel)
        return self._keep(ax)
