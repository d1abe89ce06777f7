"""ROC curves of groups, with their AUCs next to what a constraint allows."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping
from typing import Any, Literal, get_args

import numpy as np
import pandas as pd
from numpy.typing import NDArray
from sklearn.metrics import roc_curve

from gbm_constrained._typing import Codes, Float
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.data.alignment import check_alignment
from gbm_constrained.data.validation import as_labels, check_choice, check_share, check_weight
from gbm_constrained.evaluation.classifiers import positive_of
from gbm_constrained.problem.groups import Group, quote_lookalikes
from gbm_constrained.problem.pair_statistics import PairRates
from gbm_constrained.reporting.plotting.allowed import find_allowed
from gbm_constrained.reporting.plotting.inputs import groups_of, scores_of
from gbm_constrained.reporting.plotting.style import (
    COLOURS,
    GREY,
    check_columns,
    document_plot,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
    shorten,
)
from gbm_constrained.statistics.pair_intervals import estimate_pair_rates
from gbm_constrained.statistics.pair_moments import PairMoments

Kind = Literal["within", "cross"]
COLUMNS = ("group", "positives", "negatives", "auc", "low", "high")
DASHES = {"within": "-", "cross": (0, (4, 1.5))}
MAX_CHARACTERS = 34  # Most characters of a constraint above the small axes of the AUCs.


class GroupROCDisplay:
    """ROC curve of each group on held-out rows, with its AUC and the interval of the AUC.

    A curve within a group is that of the group's own positives and negatives. A cross curve has
    the group's positives and the negatives of all other rows, as ``cross_auc``. Small axes show
    the AUCs as points with their intervals, and what a constraint allows as a band. A gap is met
    if all AUCs are within a band as wide as the bound.

    Parameters
    ----------
    curves : dict from str to DataFrame
        By the name of a group, the points of its curve: ``fpr`` and ``tpr``.
    aucs : DataFrame
        One row for each group: ``group``, the numbers ``positives`` and ``negatives`` of rows,
        ``auc``, and the interval ``low`` to ``high``; NaN without positives or negatives.
    kind : {"within", "cross"}, default="within"
        Kind of the curves.
    constraint : Constraint, default=None
        The constraint on the AUCs whose band is drawn.
    reference : float, default=None
        The AUC that groups are compared with, for a constraint with a reference.
    level : float, default=0.95
        Level of the intervals.

    Attributes
    ----------
    allowed : tuple of float or None
        Ends of the band that the constraint allows, infinite where there is none.
    lines_ : list of matplotlib Line2D
        Curves.
    auc_ax_ : matplotlib Axes or None
        Small axes with the AUCs, where there is a constraint.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    lines_: list[Any]
    auc_ax_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        curves: Mapping[str, pd.DataFrame],
        aucs: pd.DataFrame,
        *,
        kind: Kind = "within",
        constraint: Constraint | None = None,
        reference: float | None = None,
        level: float = 0.95,
    ) -> None:
        check_choice("kind", kind, get_args(Kind))
        check_columns(aucs, **{name: name for name in COLUMNS})
        self.curves, self.aucs, self.kind = dict(curves), aucs, kind
        self.constraint, self.level = constraint, level
        self.allowed = None
        if constraint is not None:
            known = aucs["auc"].dropna().to_numpy()
            self.allowed = find_allowed(constraint.expression, constraint, known, reference)

    @classmethod
    @document_plot
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        constraint: Constraint | None = None,
        *,
        by: Any = None,
        kind: Kind = "within",
        positive: Hashable | None = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> GroupROCDisplay:
        """Draw the ROC curves of a fitted classifier, constrained or not, of two classes.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``decision_function`` or ``predict_proba``.
        by : str or list of str, default=None
            Columns that make the groups, of `sensitive_features` or of a DataFrame `X`; several
            make intersections. All sensitive features by default.
        kind : {"within", "cross"}, default="within"
            Whether the positives of a group meet the negatives of the group or those of all
            other rows.
        constraint : Constraint, default=None
            Constraint between these groups on the AUCs of this kind, whose band is drawn.

        Raises
        ------
        TypeError, ValueError
            If there are no scores to be had, there are no such columns, labels are not of two
            classes, or no group has a curve.
        """
        matplotlib("axes")
        positive = positive_of(estimator) if positive is None else positive
        scores = scores_of(estimator, X, positive)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"X": X, "y": y, **given})
        rows = _Rows(scores, y, sample_weight, positive)
        groups = groups_of(by, sensitive_features, X, rows.scores.size)
        return cls._measure(rows, groups, kind, constraint, level).plot(ax)

    @classmethod
    @document_plot
    def from_predictions(
        cls,
        y_true: Any,
        y_score: Any,
        constraint: Constraint | None = None,
        *,
        by: Any = None,
        kind: Kind = "within",
        positive: Hashable | None = None,
        sensitive_features: Any,
        sample_weight: Any = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> GroupROCDisplay:
        """Draw the ROC curves of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels of two classes.
        y_score : array-like of shape (n_samples,)
            Scores or probabilities of the positive class.
        by : str or list of str, default=None
            Columns of `sensitive_features` that make the groups; several make intersections. All
            of them by default.
        kind : {"within", "cross"}, default="within"
            As in :meth:`from_estimator`.
        constraint : Constraint, default=None
            As in :meth:`from_estimator`.

        Raises
        ------
        TypeError, ValueError
            As :meth:`from_estimator`.
        """
        matplotlib("axes")
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"y_true": y_true, "y_score": y_score, **given})
        rows = _Rows(scores_of(y_score, None, positive), y_true, sample_weight, positive)
        groups = groups_of(by, sensitive_features, None, rows.scores.size)
        return cls._measure(rows, groups, kind, constraint, level).plot(ax)

    @classmethod
    def _measure(
        cls,
        rows: _Rows,
        groups: tuple[Codes, list[Group]],
        kind: Kind,
        constraint: Constraint | None,
        level: float,
    ) -> GroupROCDisplay:
        """Compute the curves, and the AUCs with their intervals."""
        check_choice("kind", kind, get_args(Kind))
        check_share("level", level)
        if not isinstance(constraint, Constraint | None):
            raise TypeError(
                f"constraint must be a constraint such as gap(auc(), by='sex') <= 0.05, or None, "
                f"got {constraint!r}: columns that make groups are given as by=."
            )
        codes, levels = groups
        names = [str(name) for name in quote_lookalikes(levels)]
        sides = _sides(len(levels), kind)
        cells = 2 * codes + rows.is_positive
        moments = PairMoments.of(rows.scores, cells, rows.weight, 2 * len(levels))
        found = estimate_pair_rates(moments, sides)
        sizes = [(inside @ moments.sizes.count).astype(np.int64) for inside in sides]
        of_groups = [x[:-1] for x in (*sizes, found.rates, *found.intervals(level).T)]
        aucs = pd.DataFrame(dict(zip(COLUMNS, (names, *of_groups), strict=True)))
        curves = {
            name: rows.curve((sides.first[k] | sides.second[k])[cells])
            for k, name in enumerate(names)
            if not math.isnan(found.rates[k])
        }
        if not curves:
            raise ValueError(
                f"by= makes {len(levels)} groups, and none has positives and "
                f"{'' if kind == 'within' else 'other rows that are '}negatives: no ROC curve can "
                f"be drawn. Give other columns, or more rows."
            )
        reference = _find_reference(constraint, levels, found.rates)
        return cls(
            curves, aucs, kind=kind, constraint=constraint, reference=reference, level=level
        )

    def plot(self, ax: Any = None) -> GroupROCDisplay:
        """Draw the curves.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; a new figure by default. Curves within groups and cross curves can
            share axes.

        Returns
        -------
        GroupROCDisplay
            The display itself.
        """
        ax = get_axes(ax, (7.4, max(4.6, 0.7 + 0.33 * len(self.aucs))))
        self.lines_ = []
        for i, record in enumerate(self.aucs.to_dict("records")):
            name, colour = str(record["group"]), COLOURS[i % len(COLOURS)]
            label = self._describe(record)
            if name not in self.curves:
                ax.plot([], [], color=colour, linestyle="none", marker="x", label=label)
                continue
            curve = self.curves[name]
            style = {"color": colour, "linestyle": DASHES[self.kind], "linewidth": 1.6}
            self.lines_ += ax.plot(curve["fpr"], curve["tpr"], label=label, **style)
        ax.plot([0.0, 1.0], [0.0, 1.0], color=GREY, linewidth=0.8, linestyle=":")
        ax.set_xlim(-0.01, 1.01)
        ax.set_ylim(-0.01, 1.01)
        title = f"AUC [{100 * self.level:g}% interval],\npositives / negatives"
        ax.legend(
            title=title, loc="upper left", bbox_to_anchor=(1.0, 1.0), frameon=False,
            fontsize="small", title_fontsize="small", alignment="left",
        )  # fmt: skip
        finish_axes(ax, "false positive rate (fraction)", "true positive rate (fraction)")
        self.auc_ax_ = None if self.allowed is None else self._draw_aucs(ax)
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _describe(self, record: Mapping[Any, Any]) -> str:
        """Write the line of a group in the legend."""
        name = literal(record["group"])
        if self.kind == "cross":
            name += " against others"
        counts = f"{record['positives']:,} / {record['negatives']:,}"
        if math.isnan(record["auc"]):
            return f"{name}\nno curve, {counts}"
        return f"{name}\n{record['auc']:.3f} [{record['low']:.3f}, {record['high']:.3f}], {counts}"

    def _draw_aucs(self, ax: Any) -> Any:
        """Draw the AUCs of the groups and the band that the constraint allows."""
        assert self.allowed is not None
        n = len(self.aucs)
        inset = ax.inset_axes([0.48, 0.1, 0.48, min(0.08 + 0.06 * n, 0.5)])
        for i, record in enumerate(self.aucs.to_dict("records")):
            colour = COLOURS[i % len(COLOURS)]
            inset.plot([record["low"], record["high"]], [i, i], color=colour, linewidth=1.6)
            inset.plot([record["auc"]], [i], "o", color=colour, markersize=5)
        left, right = inset.get_xlim()
        low, high = np.clip(self.allowed, left, right)
        inset.axvspan(low, high, color=GREY, alpha=0.2, linewidth=0, zorder=0)
        for end in self.allowed:
            if math.isfinite(end):
                inset.axvline(end, color=GREY, linewidth=1.0, linestyle=":", zorder=1)
        inset.set_title(literal(shorten(str(self.constraint), MAX_CHARACTERS)), fontsize="small")
        inset.set_ylim(n - 0.5, -0.5)
        inset.set_yticks([])
        inset.tick_params(labelsize="small")
        inset.spines[["left", "right", "top"]].set_visible(False)
        return inset


class _Rows:
    """Scores, labels and weights of rows of two classes."""

    def __init__(
        self, scores: NDArray[Any], y: Any, sample_weight: Any, positive: Hashable | None
    ) -> None:
        labels = as_labels(y)
        classes = np.unique(labels)
        if scores.shape != labels.shape:
            raise ValueError(
                f"Scores have shape {scores.shape}, and there are {labels.size} labels: give one "
                f"score of the positive class for each row."
            )
        if classes.size != 2 or (positive is not None and positive not in classes.tolist()):
            raise ValueError(
                f"ROC curves need two classes, one of which is positive; y has "
                f"{classes.tolist()}, and positive is {positive!r}. Of several classes, give "
                f"y == one of them."
            )
        self.scores = scores
        self.is_positive = labels == (classes[1] if positive is None else positive)
        self.weight = check_weight(sample_weight, labels.size)

    def curve(self, inside: NDArray[np.bool_]) -> pd.DataFrame:
        """Compute the ROC curve of some rows."""
        weight = None if self.weight is None else self.weight[inside]
        fpr, tpr, _ = roc_curve(
            self.is_positive[inside], self.scores[inside], sample_weight=weight
        )
        return pd.DataFrame({"fpr": fpr, "tpr": tpr})


def _sides(n_groups: int, kind: Kind) -> PairRates:
    """Find the cells of positives and negatives of each group, and of all rows at the end."""
    own = np.vstack([np.eye(n_groups, dtype=bool), np.ones((1, n_groups), dtype=bool)])
    other = own if kind == "within" else ~own
    other[-1] = True
    return PairRates(np.kron(own, [False, True]), np.kron(other, [True, False]))


def _find_reference(
    constraint: Constraint | None, groups: list[Group], rates: Float
) -> float | None:
    """Find the AUC that a constraint compares groups with; that of all rows is the last."""
    expression = None if constraint is None else constraint.expression
    if getattr(expression, "compares_with_overall", False):
        return float(rates[-1])
    reference = getattr(expression, "reference_group", None)
    if reference is None:
        return None
    found = [k for k, group in enumerate(groups) if group.name == reference]
    if not found:
        raise ValueError(
            f"constraint={constraint} has the reference {reference}, which is none of the groups "
            f"{[str(group) for group in groups]}: name one of them."
        )
    return float(rates[found[0]])
