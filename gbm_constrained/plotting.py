"""Figures of a constrained fit, with matplotlib.

Every function draws into the axes it is given and returns them; without axes it makes a figure of
its own. Nothing is shown, saved or configured: that is left to the caller.
"""

from __future__ import annotations

import importlib
import itertools
from collections.abc import Mapping
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve

from gbm_constrained.frontier import np_roc_band

__all__ = [
    "plot_history",
    "plot_np_roc",
    "plot_requested",
    "plot_threshold_curve",
    "plot_tradeoff",
]

# Okabe and Ito's palette, without its yellow: told apart with any colour vision.
COLOURS = ("#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000")
MARKERS = ("o", "s", "^", "D", "v", "P", "X")
GREY = "0.45"


def _matplotlib(module: str) -> Any:
    try:
        return importlib.import_module(f"matplotlib.{module}")
    except ImportError as error:
        raise ImportError('Plots need matplotlib: pip install "gbm_constrained[plot]".') from error


def _one_axes(ax: Any) -> Any:
    plt = _matplotlib("pyplot") if ax is None else None
    return ax if plt is None else plt.subplots(figsize=(5.5, 4), layout="constrained")[1]


def plot_history(
    estimator: Any,
    axes: Any = None,
    *,
    violation: bool = False,
    train_name: str = "training rows",
    held_out_name: str = "held-out rows",
    names: Mapping[str, str] | None = None,
) -> NDArray[Any]:
    r"""Plot constrained values and multipliers over the boosting rounds.

    Above, each bounded rate on the training rows (solid), on the held-out rows if any were given
    to ``fit`` (dashed), and its bound (dotted). Below, the multipliers. A constraint has the same
    colour in both.

    Parameters
    ----------
    estimator : fitted constrained estimator, or DataFrame
        The estimator, or its ``history_``.
    axes : sequence of two matplotlib axes, default=None
        Where to draw; a new figure by default.
    violation : bool, default=False
        Draw :math:`\max(\text{value} - \text{bound}, 0)` instead of value and bound: with several
        constraints that is easier to read.
    train_name, held_out_name : str
        What the legend calls the rows.
    names : mapping from str to str, default=None
        What the legend calls a constraint, by the constraint as it prints.

    Returns
    -------
    ndarray of two matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError, ValueError
        If there is no history: the estimator is not fitted or has no constraints.

    Notes
    -----
    The vertical axis above is linear up to the smallest bound and logarithmic beyond: the first
    rounds, where a whole class may be misclassified, would otherwise hide the last ones.
    """
    history = _history(estimator)
    constraints = [
        name.removeprefix("value[").removesuffix("]")
        for name in history.columns
        if name.startswith("value[")
    ]
    if not constraints:
        raise ValueError("The history holds no constraint: it has no column value[...].")
    if axes is None:
        _, axes = _matplotlib("pyplot").subplots(
            2, 1, figsize=(6, 6), sharex=True, layout="constrained"
        )
    top, bottom = np.ravel(axes)
    lines = _matplotlib("lines")
    rounds = history["rounds"].to_numpy()
    kinds: dict[str, dict[str, Any]] = {}
    for j, constraint in enumerate(constraints):
        colour = COLOURS[j % len(COLOURS)]
        bound = history[f"bound[{constraint}]"].to_numpy(dtype=float)
        for column, name, style in (
            ("value", train_name, {"linestyle": "-", "linewidth": 1.8}),
            ("held_out", held_out_name, {"linestyle": "--", "linewidth": 1.4}),
        ):
            value = _column(history, f"{column}[{constraint}]")
            if np.isnan(value).all():
                continue
            kinds[name] = style
            drawn = np.maximum(value - bound, 0.0) if violation else value
            top.plot(rounds, drawn, color=colour, **style)
        if not violation:
            kinds["bound"] = {"linestyle": ":", "linewidth": 1.4}
            top.plot(rounds, bound, color=colour, **kinds["bound"])
        bottom.plot(
            rounds,
            history[f"multiplier[{constraint}]"].to_numpy(dtype=float),
            color=colour,
            linewidth=1.8,
            label=(names or {}).get(constraint, constraint),
        )
    _scale(top, history, constraints)
    top.set_ylabel(_value_label(constraints, violation))
    # One legend for both axes, where values that have come down leave room.
    handles = list(bottom.get_lines()[-len(constraints) :])
    handles += [lines.Line2D([], [], color=GREY, label=name, **s) for name, s in kinds.items()]
    top.legend(handles=handles, loc="upper right", framealpha=0.9)
    # A line at zero stays in sight; the top stays automatic, for axes that several fits share.
    bottom.set_ylim(bottom=-0.02 * bottom.get_ylim()[1], auto=True)
    bottom.set_ylabel("multiplier")
    bottom.set_xlabel("boosting rounds")
    for ax in (top, bottom):
        _tidy(ax)
    return np.array([top, bottom], dtype=object)


def _history(estimator: Any) -> pd.DataFrame:
    if isinstance(estimator, pd.DataFrame):
        return estimator
    history = getattr(estimator, "history_", None)
    if isinstance(history, pd.DataFrame):
        return history
    raise TypeError(
        f"{type(estimator).__name__} has no history_: give an estimator that was fitted with "
        f"constraints, or the history_ of one."
    )


def _column(frame: pd.DataFrame, name: str) -> NDArray[np.float64]:
    if name not in frame:
        return np.full(len(frame), np.nan)
    return frame[name].to_numpy(dtype=np.float64)


def _scale(ax: Any, history: pd.DataFrame, constraints: list[str]) -> None:
    """Linear up to the smallest bound, logarithmic beyond, with round numbers as ticks."""
    bounds = np.array([_column(history, f"bound[{c}]") for c in constraints])
    positive = bounds[bounds > 0]
    linear = float(positive.min()) if positive.size else 1e-2
    ax.set_yscale("symlog", linthresh=linear, linscale=0.5)
    ax.set_ylim(bottom=-0.05 * linear)  # a line at zero stays in sight
    top = ax.get_ylim()[1]
    first, last = int(np.floor(np.log10(linear))), int(np.ceil(np.log10(max(top, linear))))
    digits = np.array([1, 2, 5] if last - first <= 3 else [1])
    ticks = np.ravel(np.outer(10.0 ** np.arange(first, last + 1), digits))
    ax.set_yticks([0.0, *ticks[(ticks >= linear * (1 - 1e-9)) & (ticks <= top)]])
    ax.set_yticks([], minor=True)
    ax.yaxis.set_major_formatter(_matplotlib("ticker").FormatStrFormatter("%g"))


def _value_label(constraints: list[str], violation: bool) -> str:
    """Name and unit of the upper vertical axis."""
    losses = [c.startswith("log_loss") for c in constraints]
    unit = "" if any(losses) and not all(losses) else " (nats)" if all(losses) else " (fraction)"
    if violation:
        return "violation" + unit
    name = constraints[0].partition(" <= ")[0] if len(constraints) == 1 else "constrained values"
    return name + unit


def _tidy(ax: Any) -> None:
    ax.grid(True, color="0.9", linewidth=0.6)
    ax.set_axisbelow(True)
    ax.spines[["top", "right"]].set_visible(False)


def plot_threshold_curve(
    y_true: ArrayLike,
    score: ArrayLike,
    ax: Any = None,
    *,
    label: str = "all thresholds",
    **line: Any,
) -> Any:
    """Plot false alarm rate against miss rate for every threshold on a score, binary.

    Parameters
    ----------
    y_true : array-like of shape (n_samples,)
        Labels; 1 is the positive class.
    score : array-like of shape (n_samples,)
        Scores or probabilities of the positive class.
    ax : matplotlib axes, default=None
        Where to draw; a new figure by default.
    label : str
        What the legend calls the curve.
    **line
        Properties of the line, such as ``color``.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    ax = _one_axes(ax)
    false_alarms, hits, _ = roc_curve(y_true, score, drop_intermediate=False)
    style = {"color": GREY, "linewidth": 1.2, "drawstyle": "steps-post", "zorder": 1.5, **line}
    ax.plot(1.0 - hits, false_alarms, label=label, **style)
    _tidy(ax)
    return ax


def plot_np_roc(
    model_or_scores: Any,
    X: Any,
    y: ArrayLike,
    *,
    delta: float = 0.05,
    ax: Any = None,
    label: str | None = None,
) -> Any:
    """Plot the Neyman-Pearson ROC band of a score next to its empirical ROC curve.

    Across, the bound of the type I error (false positive rate); up, one minus the type II error,
    the true positive rate, that the threshold for this bound has: with probability ``1 - delta``
    the false positive rate is below the bound, and with that probability the true positive rate
    is in the band. The empirical curve (dotted) has its false positive rate on these rows across,
    which promises nothing.

    Parameters
    ----------
    model_or_scores : fitted classifier or array-like of shape (n_samples,)
        A model with ``decision_function`` or ``predict_proba``, or its scores.
    X : array-like of shape (n_samples, n_features) or None
        Features of rows that the model was not trained on; not looked at when scores are given.
    y : array-like of shape (n_samples,)
        Labels of two classes, the last of which is positive.
    delta : float, default=0.05
        Probability of failure, for each bound by itself.
    ax : matplotlib axes, default=None
        Where to draw; a new figure by default. Several bands can share axes.
    label : str, default=None
        What the legend calls the model; its class by default.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    TypeError, ValueError
        If there are no scores to be had, or these and the labels do not fit together.

    See Also
    --------
    gbm_constrained.frontier.np_roc_band : The numbers.
    """
    scores = _scores(model_or_scores, X)
    band = np_roc_band(scores, y, delta)
    if label is None:
        given = hasattr(model_or_scores, "predict")
        label = type(model_or_scores).__name__ if given else "scores"
    ax = _one_axes(ax)
    bands = sum(line.get_gid() == "np_roc" for line in ax.get_lines())
    colour = COLOURS[bands % len(COLOURS)]
    alpha = np.append(band["alpha"], 1.0)
    low, high = (1.0 - np.append(band[c], band[c].iloc[-1]) for c in ("fnr_upper", "fnr_lower"))
    step = {"color": colour, "linewidth": 1.4, "drawstyle": "steps-post", "gid": "np_roc"}
    name = f"{label}, band at {1.0 - delta:g}"
    ax.fill_between(alpha, low, high, step="post", color=colour, alpha=0.2, label=name)
    ax.plot(alpha, low, **step)
    ax.plot(alpha, high, **{**step, "gid": None})
    positive = np.asarray(y) == np.unique(np.asarray(y))[1]
    alarms, hits, _ = roc_curve(positive, scores, drop_intermediate=False)
    ax.plot(alarms, hits, color=colour, linewidth=1.2, linestyle=":", label=f"{label}, empirical")
    ax.set_xlabel("bound of the type I error (false positive rate)")
    ax.set_ylabel("1 - type II error (true positive rate)")
    ax.legend(loc="lower right", framealpha=0.9)
    _tidy(ax)
    return ax


def _scores(model_or_scores: Any, X: Any) -> NDArray[np.float64]:
    """Scores of the positive class."""
    for method in ("decision_function", "predict_proba"):
        score = getattr(model_or_scores, method, None)
        if score is not None:
            found = np.asarray(score(X), dtype=np.float64)
            if found.ndim == 2 and found.shape[1] == 2:
                return found[:, 1]
            return found
    if hasattr(model_or_scores, "predict"):
        raise TypeError(
            f"{type(model_or_scores).__name__} has neither decision_function nor predict_proba: "
            f"give its scores instead of the model."
        )
    return np.asarray(model_or_scores, dtype=np.float64)


def _label_side(x: Any, y: Any, *, second: bool) -> dict[str, Any]:
    """Beside a line and not on it: left of the first line, right of the second."""
    rises = np.nan_to_num(np.sum(np.diff(x) * np.sign(np.diff(y)))) >= 0.0
    above = rises != second
    return {
        "xytext": (6 if second else -6, 4 if above else -4),
        "ha": "left" if second else "right",
        "va": "bottom" if above else "top",
    }


def plot_tradeoff(
    curve: pd.DataFrame,
    ax: Any = None,
    *,
    x: str = "value",
    y: str = "accuracy",
    bound: str | None = "bound",
    series: str | None = None,
    label: str | None = None,
    styles: Mapping[str, Mapping[str, Any]] | None = None,
    plain: tuple[float, float] | None = None,
) -> Any:
    """Plot two measures of several models against each other: what a tighter bound costs.

    Parameters
    ----------
    curve : DataFrame
        One row per model, as of :func:`gbm_constrained.frontier.tradeoff_curve`; points of a
        series are joined in the order of the rows.
    ax : matplotlib axes, default=None
        Where to draw; a new figure by default.
    x, y : str
        Columns for the axes, which they also name. Where a column has its interval in two others,
        such as ``value_low`` and ``value_high``, that is drawn as a bar.
    bound : str, default="bound"
        Column with the bounds of `x`, each a dotted line; None for no lines.
    series : str, default=None
        Column that tells which points belong to one line.
    label : str, default=None
        Column with the text beside each point; missing or empty for none.
    styles : mapping from str to mapping, default=None
        Properties of the line of a series, by its name, that replace the default ones.
    plain : pair of float, default=None
        Both measures of a model without the rule, drawn as a cross.

    Returns
    -------
    matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    """
    ax = _one_axes(ax)
    effects = _matplotlib("patheffects")
    outline = [effects.withStroke(linewidth=2.5, foreground="white")]  # on top of lines
    for i, value in enumerate(() if bound is None else np.unique(curve[bound].dropna())):
        dotted = {"color": GREY, "linestyle": ":", "linewidth": 1.0, "zorder": 1}
        ax.axvline(value, label="bounds" if i == 0 else None, **dotted)
    groups = [("", curve)] if series is None else list(curve.groupby(series, sort=False))
    for i, (name, group) in enumerate(groups):
        style = {
            "color": COLOURS[i % len(COLOURS)],
            "marker": MARKERS[i % len(MARKERS)],
            "linewidth": 1.4,
            "markersize": 6,
            **dict((styles or {}).get(str(name), {})),
        }
        bars = {"xerr": _distances(group, x), "yerr": _distances(group, y)}
        if any(bar is not None for bar in bars.values()):
            thin = {"fmt": "none", "ecolor": style["color"], "elinewidth": 0.9, "alpha": 0.55}
            ax.errorbar(group[x].to_numpy(), group[y].to_numpy(), **bars, **thin, zorder=1.5)
        ax.plot(group[x].to_numpy(), group[y].to_numpy(), label=str(name) or None, **style)
        if label is None:
            continue
        side = _label_side(group[x], group[y], second=i % 2 == 1)
        for x_i, y_i, text in zip(group[x], group[y], group[label], strict=True):
            if pd.isna(text) or not str(text):
                continue
            ax.annotate(
                str(text),
                (x_i, y_i),
                textcoords="offset points",
                fontsize="small",
                **side,
                color=style["color"],
                path_effects=outline,
            )
    if plain is not None:
        cross = {"marker": "x", "linestyle": "", "markersize": 8, "markeredgewidth": 2}
        ax.plot(*plain, color="black", label="without the rule", **cross)
    ax.margins(0.12)  # room for the labels
    ax.set_xlabel(x)
    ax.set_ylabel(y)
    if any(not text.startswith("_") for text in ax.get_legend_handles_labels()[1]):
        ax.legend(framealpha=0.9)
    _tidy(ax)
    return ax


def _distances(points: pd.DataFrame, name: str) -> NDArray[np.float64] | None:
    """Lengths of the bars to both ends of a column's interval; None where it has none."""
    ends = f"{name}_low", f"{name}_high"
    if not all(end in points for end in ends):
        return None
    low, value, high = (points[c].to_numpy(dtype=np.float64) for c in (ends[0], name, ends[1]))
    return np.array([np.maximum(value - low, 0.0), np.maximum(high - value, 0.0)])


def plot_requested(
    points: pd.DataFrame,
    axes: Any = None,
    *,
    requested: str = "requested",
    train: str | None = "train",
    test: str = "test",
    accuracy: str = "accuracy",
    series: str = "rule",
    variant: str | None = None,
    train_name: str = "training rows",
) -> NDArray[Any]:
    """Plot what models do on new rows against the bound they were trained under, and its price.

    On the left, the bounded value on the test rows (joined) and on the training rows, or others,
    (hollow) against the bound, with the diagonal; on the right, accuracy against the value on the
    test rows. A model that was trained without the rule is a cross.

    Parameters
    ----------
    points : DataFrame
        One row per model.
    axes : sequence of two matplotlib axes, default=None
        Where to draw; a new figure by default.
    requested, test, accuracy : str
        Columns with the bound (missing for a model without the rule), and with the value and the
        accuracy on the test rows. They name the axes.
    train : str, default="train"
        Column with the value on the training rows, or on other rows to compare with; None to leave
        these out.
    series : str
        Column that tells which points belong together: a colour for each.
    variant : str, default=None
        Column that divides a series further, as by library: a marker and a line style for each.
    train_name : str, default="training rows"
        What the legend calls the rows of `train`.

    Returns
    -------
    ndarray of two matplotlib axes

    Raises
    ------
    ImportError
        If matplotlib is not installed.
    ValueError
        If no point has a bound.
    """
    if points[requested].isna().all():
        raise ValueError(f"No point has a bound: column {requested!r} holds nothing.")
    if axes is None:
        _, axes = _matplotlib("pyplot").subplots(1, 2, figsize=(12, 4.8), layout="constrained")
    left, right = np.ravel(axes)
    colours = dict(zip(points[series].unique(), itertools.cycle(COLOURS), strict=False))
    variants = [""] if variant is None else list(points[variant].unique())
    looks: list[dict[str, Any]] = [
        {"marker": MARKERS[i % len(MARKERS)], "linestyle": ("-", "--", "-.", ":")[i % 4]}
        for i in range(len(variants))
    ]
    bounds = np.unique(points[requested].dropna())
    none_at = bounds[-1] + 0.12 * max(bounds[-1] - min(bounds[0], 0.0), 1e-12)
    left.plot(bounds[[0, -1]], bounds[[0, -1]], color=GREY, linestyle=":", zorder=1)
    cross = dict[str, Any](marker="x", linestyle="", markersize=8, markeredgewidth=2)
    hollow = dict[str, Any](linestyle="", markerfacecolor="none", markersize=8, alpha=0.6)
    for (name, colour), (i, of) in itertools.product(colours.items(), enumerate(variants)):
        chosen = points[series] == name
        group = points[chosen if variant is None else chosen & (points[variant] == of)]
        if group.empty:
            continue
        # From the largest bound down, starting at the model without the rule.
        group = group.sort_values(requested, ascending=False, na_position="first")
        plain, ruled = group[group[requested].isna()], group.dropna(subset=[requested])
        line = {"color": colour, "markersize": 5, "linewidth": 1.4}
        left.plot(ruled[requested], ruled[test], **line, **looks[i])
        if train is not None:
            left.plot(ruled[requested], ruled[train], color=colour, **{**looks[i], **hollow})
        left.plot(np.full(len(plain), none_at), plain[test], color=colour, **cross)
        joined = range(len(plain), len(group))
        right.plot(group[test], group[accuracy], markevery=list(joined), **line, **looks[i])
        right.plot(plain[test], plain[accuracy], color=colour, **cross)
    any_plain = points[requested].isna().any()
    ticks, names = list(bounds), [f"{bound:g}" for bound in bounds]
    if any_plain:
        ticks, names = [*ticks, none_at], [*names, "none"]
    left.set_xticks(ticks, names)
    if variant in (None, series):  # colour and marker go together
        shown = looks if variant == series else [looks[0] for _ in colours]
        kinds = []
    else:
        shown = [{"linewidth": 4} for _ in colours]
        kinds = [(str(of), look) for of, look in zip(variants, looks, strict=True)]
    if train is not None:
        kinds.append((train_name, {"marker": "o", **hollow}))
    kinds.append(("as requested", {"linestyle": ":"}))
    if any_plain:
        kinds.append(("no rule", cross))
    line_2d = _matplotlib("lines").Line2D
    handles = [
        line_2d([], [], color=colour, label=str(name), **look)
        for (name, colour), look in zip(colours.items(), shown, strict=True)
    ]
    handles += [line_2d([], [], color=GREY, label=kind, **look) for kind, look in kinds]
    right.legend(handles=handles, loc="upper left", bbox_to_anchor=(1.01, 1.0), frameon=False)
    left.set_xlabel(requested)
    left.set_ylabel(test)
    right.set_xlabel(test)
    right.set_ylabel(accuracy)
    for ax in (left, right):
        _tidy(ax)
    return np.array([left, right], dtype=object)
