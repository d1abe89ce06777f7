"""Figures of rows: rates of groups and classes, confusion matrices, ROC curves and thresholds."""

from __future__ import annotations

import math
from collections.abc import Hashable, Mapping, Sequence
from types import SimpleNamespace
from typing import Any, Literal, Self, get_args

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from sklearn.metrics import roc_curve
from sklearn.utils.multiclass import unique_labels

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.checking import check_constraints, resolve_positive_class
from gbm_constrained.data import validation
from gbm_constrained.evaluation import audit
from gbm_constrained.evaluation.np_roc import np_roc_band
from gbm_constrained.problem.functionals import Group, quote_lookalikes
from gbm_constrained.problem.pairs import PairRates
from gbm_constrained.reporting.plotting import style
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.pairs import PairMoments, estimate_pair_rates

RATE_COLUMNS = ("group", "rows", "rate", "low", "high")


class GroupRatesDisplay(style.Display):
    """Rates of groups on held-out rows, with intervals, next to what a constraint allows.

    Each group has a line with its rate and the interval of the rate. The interval is Clopper and
    Pearson's where the rate is a fraction of rows (see
    :mod:`gbm_constrained.statistics.intervals`), and that of
    :mod:`gbm_constrained.statistics.pairs` where it is a pair rate. A constraint
    ``each(...)`` is drawn as its bound, and one between groups as a band. A gap is met if all
    rates are within a band as wide as the bound, drawn around the middle of the rates or around
    the reference. A ratio is met if all rates are above so much of the largest. Rates of several
    models can share axes.

    Parameters
    ----------
    rates : DataFrame
        One row for each group: ``group``, ``rows``, ``rate``, and the interval ``low`` to
        ``high``.
    rate_name : str
        Name of the rate.
    constraint : Constraint, default=None
        The constraint whose bound is drawn.
    reference : float, default=None
        The rate that groups are compared with, for a constraint with a reference.
    level : float, default=0.95
        Level of the intervals.
    name : str, default="rates"
        Name of the model in the legend.

    Attributes
    ----------
    allowed : tuple of float or None
        Ends of the band that the constraint allows, infinite where there is none.
    bars_ : matplotlib ErrorbarContainer
        Rates and intervals.
    ax_ : matplotlib Axes
        Axes of the figure.
    figure_ : matplotlib Figure
        The figure.
    """

    bars_: Any

    def __init__(
        self,
        rates: pd.DataFrame,
        rate_name: str = "rate",
        *,
        constraint: Constraint | None = None,
        reference: float | None = None,
        level: float = 0.95,
        name: str = "rates",
    ) -> None:
        style.check_columns(rates, *RATE_COLUMNS)
        self.rates, self.rate_name, self.constraint = rates, rate_name, constraint
        self.level, self.name = level, name
        self.allowed = style.find_allowed(constraint, rates["rate"].to_numpy(), reference)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        constraint: Any = None,
        *,
        positive: Hashable | None = None,
        sensitive_features: Any = None,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str | None = None,
        ax: Any = None,
    ) -> Self:
        """Measure and draw the rates of a fitted classifier, constrained or not.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``; pair rates, such as ``auc()``, ask for scores as well.
        constraint : Constraint or comparison of groups, default=None
            Which rate of which groups: a constraint such as ``gap(fpr(), by="sex") <= 0.02``,
            whose bound is drawn too, or a comparison without a bound, such as
            ``each(fpr(), by="sex")``. By default the estimator's own constraint between groups.
        name : str, default=None
            Name of the model in the legend; its class by default.

        Raises
        ------
        TypeError, ValueError
            If `constraint` compares no groups, or something else does not fit; see
            :func:`gbm_constrained.audit`.
        """
        style.matplotlib("axes")
        name = type(estimator).__name__ if name is None else name
        if constraint is None:
            constraints = check_constraints(getattr(estimator, "constraints", None))
            grouped = [c for c in constraints if c.expression.compares_groups]
            if len(grouped) != 1:
                raise ValueError(
                    f"{type(estimator).__name__} has {len(grouped)} constraints that compare "
                    f"groups, and one is drawn: give it as constraint=, such as "
                    f'each(fpr(), by="sex").'
                )
            constraint = grouped[0]
        comparison = comparison_of(constraint)
        expression = comparison.expression
        measured = [comparison]
        drawn = [constraint] if isinstance(constraint, Constraint) else []
        is_with_overall = getattr(expression, "compares_with_overall", False)
        if is_with_overall:
            measured.append(_with_vacuous_bound(expression.rate))
        rows = audit.AuditRows(X, y, sensitive_features, sample_weight)
        found = audit.measure_model(estimator, rows, measured, positive=positive, level=level)
        positive = audit.positive_of(estimator) if positive is None else positive
        comparison, *drawn = resolve_positive_class([comparison, *drawn], found.classes, positive)
        reference = None
        if is_with_overall:
            reference = found.frame["value"].iloc[-1]
        elif getattr(expression, "reference_group", None) is not None:
            reference = found.groups["rate"].iloc[-1]  # The reference is the last group.
        display = cls(
            found.groups[list(RATE_COLUMNS)], style.literal(comparison.rates[0]),
            constraint=drawn[0] if drawn else None, reference=reference, level=level, name=name,
        )  # fmt: skip
        return display.plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        constraint: Any,
        *,
        sensitive_features: Any,
        sample_weight: Any = None,
        name: str = "predictions",
        **options: Any,
    ) -> Self:
        """Measure and draw the rates of given decisions.

        Parameters
        ----------
        constraint : Constraint or comparison of groups
            Which rate of which groups: a constraint such as ``gap(fpr(), by="sex") <= 0.02``,
            whose bound is drawn too, or a comparison without a bound, such as
            ``each(fpr(), by="sex")``.
        name : str, default="predictions"
            Name of the decisions in the legend.
        **options
            ``positive``, ``level`` and ``ax``, as in :meth:`from_estimator`.

        Raises
        ------
        TypeError, ValueError
            As :meth:`from_estimator`.
        """
        style.matplotlib("axes")
        true, decided = validation.labels_and_decisions(y_true, y_pred)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        validation.check_alignment({"y_true": y_true, "y_pred": y_pred, **given})
        compared = comparison_of(constraint)
        if compared.is_of_scores:
            raise TypeError(
                f"{compared.expression} needs probabilities or scores, which decisions do not "
                f"have: use GroupRatesDisplay.from_estimator."
            )
        model = SimpleNamespace(predict=lambda X: decided)
        X = np.zeros((decided.size, 0))
        return cls.from_estimator(model, X, true, constraint, name=name, **given, **options)

    def plot(self, ax: Any = None) -> Self:
        """Draw the rates.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Axes to draw into; a new figure by default. Axes that already hold rates of groups get
            these beside them, in another colour.

        Returns
        -------
        GroupRatesDisplay
            The display itself.
        """
        labels = style.name_rows(self.rates["group"], self.rates["rows"])
        longest = max(map(len, labels), default=0)
        ax = style.get_axes(ax, (4.0 + 0.085 * longest, 1.7 + 0.45 * max(len(labels), 2)))
        # The points of earlier models are marked, so that the next ones go beside them.
        before = sum(line.get_gid() == "group_rates" for line in ax.get_lines())
        colour, marker = style.colour_and_marker(before)
        shown = [text.get_text() for text in ax.get_yticklabels()] if before else []
        shown += [label for label in labels if label not in shown]
        at = np.array([shown.index(label) for label in labels]) + style.APART * before
        if self.allowed is not None:
            ends = [end for end in self.allowed if math.isfinite(end)]
            line = {"color": colour, "linestyle": ":", "linewidth": 1.4, "zorder": 1}
            for i, end in enumerate(ends):
                ax.axvline(end, label=style.literal(self.constraint) if i == 0 else None, **line)
            if len(ends) == 2:
                ax.axvspan(*ends, color=colour, alpha=0.1, linewidth=0, zorder=0)
        label = f"{self.name}, {100 * self.level:g}% intervals"
        point = {"label": label, "gid": "group_rates"}
        self.bars_ = style.draw_rates(ax, at, self.rates, "rate", colour, marker, **point)
        ax.set_yticks(np.arange(len(shown)) + style.APART * before / 2, shown)
        ax.set_ylim(len(shown) - 1 + style.APART * before + 0.5, -0.5)
        # Above, where no rate can be; beyond the names on the left there is room for long texts.
        style.legend_above(ax)
        self._finish(ax, self.rate_name + style.find_unit([self.rate_name]), "")
        ax.grid(False, axis="y")
        return self


def comparison_of(given: Any) -> Any:
    """Find the constraint to measure; a comparison without a bound gets one that always holds."""
    expression = given.expression if isinstance(given, Constraint) else given
    if not getattr(expression, "compares_groups", False):
        raise TypeError(
            f"constraint must compare groups, as gap(fpr(), by='sex') <= 0.02 and "
            f"each(fpr(), by='sex') do, got {given!r}."
        )
    if len(expression.rates) > 1:
        raise TypeError(
            f"constraint={given!r} compares {len(expression.rates)} rates, and one is drawn: give "
            f"each gap of a rate by itself, such as gap(fpr(), by='sex')."
        )
    return given if isinstance(given, Constraint) else _with_vacuous_bound(expression)


def _with_vacuous_bound(expression: Expression) -> Constraint:
    """Bound an expression so that all decisions meet the constraint."""
    sense = expression.bounded_value.senses[-1]
    bound = expression.bounded_value.accepted[0] if sense == ">=" else expression.range[1]
    return Constraint(expression, sense, bound if math.isfinite(bound) else 1.0)


Normalize = Literal["true", "pred", "all"] | None


class GroupConfusionDisplay(style.Display):
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
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        sensitive_features: Any = None,
        **options: Any,
    ) -> Self:
        """Draw the confusion matrices of a fitted classifier, constrained or not.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``predict``; one fitted with ``iterate="randomized"`` is asked with
            ``random_state=0``.
        **options
            Further options of :meth:`from_predictions`, and those of :meth:`plot`.

        Raises
        ------
        ValueError
            As :meth:`from_predictions`.
        """
        style.matplotlib("axes")
        answer = f"{type(estimator).__name__}.predict"
        decisions = audit.repeatable_decisions(estimator, X, sensitive_features)
        true, decided = validation.labels_and_decisions(y, decisions, ("y", answer))
        given = {"X": X, "sensitive_features": sensitive_features}
        validation.check_alignment({"y": y, **given})
        return cls.from_predictions(true, decided, **given, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        by: Any = None,
        sensitive_features: Any = None,
        X: Any = None,
        sample_weight: Any = None,
        labels: Any = None,
        display_labels: Any = None,
        ax: Any = None,
        **options: Any,
    ) -> Self:
        """Draw the confusion matrices of given decisions.

        Parameters
        ----------
        by : str or list of str, default=None
            Columns that make the groups, of `sensitive_features` or of a DataFrame `X`; several
            make intersections. All sensitive features by default.
        X : array-like of shape (n_samples, n_features), default=None
            Features, whose columns may make groups as well.

        Raises
        ------
        ValueError
            If there are no such columns, labels, weights and columns are not equally many, or
            `labels` repeat themselves or are none of those here.
        """
        style.matplotlib("axes")
        true, decided = validation.labels_and_decisions(y_true, y_pred)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        validation.check_alignment({"y_true": y_true, "y_pred": y_pred, **given})
        group, levels = style.groups_of(by, sensitive_features, X, true.size)
        weight = validation.check_weight(sample_weight, true.size)
        found = unique_labels(true, decided)
        classes = found if labels is None else np.asarray(labels)
        if np.unique(classes).size < classes.size or not np.isin(classes, found).any():
            raise ValueError(
                f"labels must be different ones, some of which are here, got {classes.tolist()}: "
                f"there are {found.tolist()}."
            )
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
        shown = map(style.literal, classes) if display_labels is None else display_labels
        return cls(counts, names, display_labels=list(shown)).plot(ax, **options)

    def plot(
        self,
        ax: Any = None,
        *,
        normalize: Normalize = "true",
        include_values: bool = True,
        values_format: str | None = None,
        cmap: Any = "Blues",
        colorbar: bool = True,
    ) -> Self:
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
        heading = 0.7  # Height of a group's name, where a row of the matrix has height 1.
        height = n_groups * (n + heading)
        classes = [str(label) for label in self.display_labels]
        name, group = (max(map(len, of), default=0) for of in (classes, self.groups))
        wide = max(n * max(0.9, 0.11 * name), 0.08 * group)  # so that names are apart
        is_of_class = normalize in ("true", "pred")
        largest = 1.0 if is_of_class else max(np.nanmax(self.shown_, initial=0.0), 1e-12)
        colours = style.matplotlib("cm").ScalarMappable(
            style.matplotlib("colors").Normalize(0.0, float(largest)), cmap
        )
        ax = style.get_axes(ax, (2.5 + 0.085 * name + wide, 1.3 + 0.42 * height))
        tops = np.arange(n_groups) * (n + heading) + heading
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
                -0.5, top - 0.12, style.literal(self.groups[i]), ha="left", va="bottom",
                fontweight="bold", fontsize="small",
            )  # fmt: skip
            if self.text_ is not None:
                _write_cells(ax, colours, top, self.shown_[i], self.text_[i], spec)
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
            units = {
                "true": "fraction of the true class",
                "pred": "fraction of the predicted class",
                "all": "fraction of the group",
                None: "rows",
            }
            # By itself a high scale is as wide, and there is no room left for its label.
            inches = ax.get_window_extent().height / ax.figure.dpi
            self.colorbar_ = ax.figure.colorbar(
                colours, ax=ax, label=units[normalize], aspect=max(20.0, inches / 0.2)
            )
        return self._keep(ax)


def _write_cells(
    ax: Any, colours: Any, top: float, shown: Float, texts: NDArray[Any], spec: str
) -> None:
    """Write the numbers of a group into its cells, in a colour that is seen."""
    for (k, j), value in np.ndenumerate(shown):
        # A dash where no rows make a fraction, on no colour: as the other texts of the figure.
        written, seen = "\N{EN DASH}", None
        if not np.isnan(value):
            red, green, blue, _ = colours.to_rgba(value)
            bright = 0.299 * red + 0.587 * green + 0.114 * blue > 0.55
            written, seen = format(value, spec), "black" if bright else "white"
        texts[k, j] = ax.text(j, top + k + 0.5, written, ha="center", va="center", color=seen)


def _normalize(counts: NDArray[Any], normalize: Normalize) -> Float:
    """Divide counts by the rows of a class or group; NaN where there are none."""
    axes: dict[str, Any] = {"true": 2, "pred": 1, "all": (1, 2)}
    if normalize is None:
        return counts
    if normalize not in axes:
        raise ValueError(f"normalize must be one of {[*axes, None]}, got {normalize!r}.")
    total = counts.sum(axis=axes[normalize], keepdims=True)
    nothing = np.full(counts.shape, np.nan)
    return np.asarray(np.divide(counts, total, out=nothing, where=total > 0))


Kind = Literal["within", "cross"]
ROC_COLUMNS = ("group", "positives", "negatives", "auc", "low", "high")


class GroupROCDisplay(style.Display):
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
        validation.check_choice("kind", kind, get_args(Kind))
        style.check_columns(aucs, *ROC_COLUMNS)
        self.curves, self.aucs, self.kind = dict(curves), aucs, kind
        self.constraint, self.level = constraint, level
        self.allowed = style.find_allowed(constraint, aucs["auc"].dropna().to_numpy(), reference)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        constraint: Constraint | None = None,
        *,
        positive: Hashable | None = None,
        **options: Any,
    ) -> Self:
        """Draw the ROC curves of a fitted classifier, constrained or not, of two classes.

        Parameters
        ----------
        estimator : fitted classifier
            Anything with ``decision_function`` or ``predict_proba``.
        constraint : Constraint, default=None
            As in :meth:`from_predictions`.
        **options
            Further options of :meth:`from_predictions`.

        Raises
        ------
        TypeError, ValueError
            If there are no scores to be had, or as :meth:`from_predictions`.
        """
        style.matplotlib("axes")
        positive = audit.positive_of(estimator) if positive is None else positive
        scores = style.scores_of(estimator, X, positive)
        validation.check_alignment({"X": X, "y": y})
        return cls.from_predictions(y, scores, constraint, X=X, positive=positive, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_score: Any,
        constraint: Constraint | None = None,
        *,
        by: Any = None,
        kind: Kind = "within",
        positive: Hashable | None = None,
        sensitive_features: Any = None,
        X: Any = None,
        sample_weight: Any = None,
        level: float = 0.95,
        ax: Any = None,
    ) -> Self:
        """Draw the ROC curves of given scores.

        Parameters
        ----------
        y_true : array-like of shape (n_samples,)
            Labels of two classes.
        y_score : array-like of shape (n_samples,)
            Scores or probabilities of the positive class.
        constraint : Constraint, default=None
            Constraint between these groups on the AUCs of this kind, whose band is drawn.
        by : str or list of str, default=None
            Columns that make the groups, of `sensitive_features` or of a DataFrame `X`; several
            make intersections. All sensitive features by default.
        kind : {"within", "cross"}, default="within"
            Whether the positives of a group meet the negatives of the group or those of all
            other rows.
        X : array-like of shape (n_samples, n_features), default=None
            Features, whose columns may make groups as well.

        Raises
        ------
        TypeError, ValueError
            If there are no such columns, labels are not of two classes, or no group has a curve.
        """
        style.matplotlib("axes")
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        validation.check_alignment({"y_true": y_true, "y_score": y_score, **given})
        scores = style.scores_of(y_score, None, positive)
        labels = validation.as_labels(y_true)
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
        is_positive = labels == (classes[1] if positive is None else positive)
        weight = validation.check_weight(sample_weight, labels.size)
        codes, levels = style.groups_of(by, sensitive_features, X, labels.size)
        validation.check_choice("kind", kind, get_args(Kind))
        validation.check_share("level", level)
        if not isinstance(constraint, Constraint | None):
            raise TypeError(
                f"constraint must be a constraint such as gap(auc(), by='sex') <= 0.05, or None, "
                f"got {constraint!r}: columns that make groups are given as by=."
            )
        names = [str(name) for name in quote_lookalikes(levels)]
        # Cells of positives and negatives of each group, and of all rows at the end.
        n = len(levels)
        own = np.vstack([np.eye(n, dtype=bool), np.ones((1, n), dtype=bool)])
        other = own if kind == "within" else ~own
        other[-1] = True
        sides = PairRates(np.kron(own, [False, True]), np.kron(other, [True, False]))
        cells = 2 * codes + is_positive
        moments = PairMoments(scores, cells, weight, 2 * n)
        found = estimate_pair_rates(moments, sides)
        sizes = [(inside @ moments.sizes.count.ravel()).astype(np.int64) for inside in sides]
        of_groups = [x[:-1] for x in (*sizes, found.rates, *found.intervals(level).T)]
        aucs = pd.DataFrame(dict(zip(ROC_COLUMNS, (names, *of_groups), strict=True)))
        curves = {}
        for k, name in enumerate(names):
            if math.isnan(found.rates[k]):
                continue
            inside = (sides.first[k] | sides.second[k])[cells]
            weights = None if weight is None else weight[inside]
            fpr, tpr, _ = roc_curve(is_positive[inside], scores[inside], sample_weight=weights)
            curves[name] = pd.DataFrame({"fpr": fpr, "tpr": tpr})
        if not curves:
            raise ValueError(
                f"by= makes {n} groups, and none has positives and "
                f"{'' if kind == 'within' else 'other rows that are '}negatives: no ROC curve can "
                f"be drawn. Give other columns, or more rows."
            )
        reference = _find_reference(constraint, levels, found.rates)
        display = cls(
            curves, aucs, kind=kind, constraint=constraint, reference=reference, level=level
        )
        return display.plot(ax)

    def plot(self, ax: Any = None) -> Self:
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
        n, n_drawn = len(self.aucs), len(ax.get_lines()) if ax is not None else 0
        below = 0.0 if self.allowed is None else 0.9 + 0.15 * n
        ax = style.get_axes(ax, (7.4, max(4.6, 1.0 + 0.33 * n + below)))
        self.lines_ = []
        for i, record in enumerate(self.aucs.to_dict("records")):
            name, colour = str(record["group"]), style.COLOURS[i % len(style.COLOURS)]
            label = (
                style.literal(name) + (" against others" if self.kind == "cross" else "") + "\n"
            )
            if math.isnan(record["auc"]):
                label += "no curve"
            else:
                label += f"{record['auc']:.3f} [{record['low']:.3f}, {record['high']:.3f}]"
            label += f", {record['positives']:,} / {record['negatives']:,}"
            if name not in self.curves:
                ax.plot([], [], color=colour, linestyle="none", marker="x", label=label)
                continue
            curve = self.curves[name]
            dashes: Any = "-" if self.kind == "within" else (0, (4, 1.5))
            stroke = {"color": colour, "linestyle": dashes, "linewidth": 1.6}
            self.lines_ += ax.plot(curve["fpr"], curve["tpr"], label=label, **stroke)
        if not n_drawn:
            dotted = {"color": style.GREY, "linewidth": 0.8, "linestyle": ":"}
            ax.plot([0.0, 1.0], [0.0, 1.0], **dotted, label="chance")
        ax.set_xlim(-0.01, 1.01)
        ax.set_ylim(-0.01, 1.01)
        title = f"AUC [{100 * self.level:g}% interval],\npositives / negatives"
        small = {"fontsize": "small", "title_fontsize": "small", "alignment": "left"}
        style.legend_beside(ax, title=title, **small)
        self._finish(ax, "false positive rate (fraction)", "true positive rate (fraction)")
        self.auc_ax_ = None if self.allowed is None else self._draw_aucs(ax, self.allowed)
        return self

    def _draw_aucs(self, ax: Any, allowed: tuple[float, float]) -> Any:
        """Draw the AUCs of the groups and the band that the constraint allows."""
        n = len(self.aucs)
        inset = ax.inset_axes([1.05, 0.0, 0.5, min(0.08 + 0.05 * n, 0.4)])  # Below the legend.
        for i, record in enumerate(self.aucs.to_dict("records")):
            colour = style.COLOURS[i % len(style.COLOURS)]
            inset.plot([record["low"], record["high"]], [i, i], color=colour, linewidth=1.6)
            inset.plot([record["auc"]], [i], "o", color=colour, markersize=5)
        left, right = inset.get_xlim()
        low, high = np.clip(allowed, left, right)
        inset.axvspan(low, high, color=style.GREY, alpha=0.2, linewidth=0, zorder=0)
        for end in allowed:
            if math.isfinite(end):
                inset.axvline(end, color=style.GREY, linewidth=1.0, linestyle=":", zorder=1)
        # No longer title fits above the small axes.
        inset.set_title(style.literal(style.shorten(str(self.constraint), 34)), fontsize="small")
        inset.set_ylim(n - 0.5, -0.5)
        inset.set_yticks([])
        inset.tick_params(labelsize="small")
        inset.spines[["left", "right", "top"]].set_visible(False)
        return inset


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


RECALL_COLUMNS = ("class", "rows", "recall", "low", "high")


class ClassRecallsDisplay(style.Display):
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

    def __init__(self, recalls: Mapping[str, pd.DataFrame], level: float = 0.95) -> None:
        if not recalls:
            raise ValueError("recalls holds no classifier: give the table of one or of several.")
        for table in recalls.values():
            style.check_columns(table, *RECALL_COLUMNS)
        self.recalls, self.level = dict(recalls), level

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        *,
        others: Mapping[str, Any] | None = None,
        name: str | None = None,
        **options: Any,
    ) -> Self:
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
        **options
            ``sample_weight``, ``level`` and ``ax``, as in :meth:`from_predictions`.

        Raises
        ------
        TypeError, ValueError
            If labels or weights do not fit the rows.
        """
        models = dict(others or {}) | {name or type(estimator).__name__: estimator}
        decided = {
            title: pd.DataFrame(model.decision_probabilities(X), columns=model.classes_)
            if hasattr(model, "decision_probabilities")
            else audit.repeatable_decisions(model, X)
            for title, model in models.items()
        }
        return cls.from_predictions(y, decided, **options)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        *,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str = "predictions",
        ax: Any = None,
    ) -> Self:
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
        style.matplotlib("axes")
        validation.check_share("level", level)
        labels = validation.as_labels(y_true)
        weight = validation.check_weight(sample_weight, labels.size)
        weight = np.ones(labels.size) if weight is None else weight
        given = y_pred if isinstance(y_pred, dict) else {name: y_pred}
        tables = {name: _tabulate(labels, one, weight, level) for name, one in given.items()}
        return cls(tables, level).plot(ax)

    def plot(self, ax: Any = None) -> Self:
        """Draw the recalls, one class below the other.

        Returns
        -------
        ClassRecallsDisplay
            The display itself.
        """
        first = next(iter(self.recalls.values()))
        names = style.name_rows(first["class"], first["rows"])
        n = len(self.recalls)
        ax = style.get_axes(
            ax, (4.5 + 0.085 * max(map(len, names)), 1.6 + 0.3 * (n + 1) * len(names))
        )
        for i, (title, table) in enumerate(self.recalls.items()):
            at = np.arange(len(table)) + style.APART * (i - (n - 1) / 2)
            label = f"{style.literal(title)}, {100 * self.level:g}% intervals"
            style.draw_rates(ax, at, table, "recall", *style.colour_and_marker(i), label=label)
        ax.set_yticks(np.arange(len(names)), names)
        ax.set_ylim(len(names) - 0.5, -0.5)
        style.legend_above(ax)
        self._finish(ax, "recall (fraction)", "")
        ax.grid(False, axis="y")
        return self


def _tabulate(labels: Any, decisions: Any, weight: Float, level: float) -> pd.DataFrame:
    """Tabulate the recall of each class."""
    if len(decisions) != labels.size:
        raise ValueError(
            f"y_pred has {len(decisions)} rows and y_true has {labels.size}: give one decision "
            f"for each row."
        )
    if isinstance(decisions, pd.DataFrame):
        hits = np.zeros(labels.size)
        for label, probability in decisions.items():
            hits = np.where(labels == label, probability.to_numpy(np.float64), hits)
    else:
        hits = (validation.as_labels(decisions) == labels).astype(np.float64)
    records = []
    for label in np.unique(labels):
        w, hit = weight[labels == label], hits[labels == label]
        found = float(np.average(hit, weights=w))
        n_effective = w.sum() ** 2 / (w**2).sum()
        low, high = clopper_pearson(found * n_effective, n_effective, level)
        records.append((label, int((labels == label).sum()), found, float(low), float(high)))
    return pd.DataFrame(records, columns=list(RECALL_COLUMNS))


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
    validation.check_alignment({"y_true": y_true, "score": score})
    false_alarms, hits, _ = roc_curve(y_true, score, drop_intermediate=False)
    ax = style.get_axes(ax)
    # Of tied scores all or none are decided as positive. Misses run down, so that "pre" is the
    # corner of more of both errors.
    stroke = {
        "color": style.GREY,
        "linewidth": 1.2,
        "drawstyle": "steps-pre",
        "zorder": 1.5,
        **line,
    }
    ax.plot(1.0 - hits, false_alarms, label=label, **stroke)
    style.legend_above(ax)
    ylabel = ax.get_ylabel() or "false alarm rate (fraction)"
    style.finish_axes(ax, ax.get_xlabel() or "miss rate (fraction)", ylabel)
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
    positive = audit.positive_of(model_or_scores) if positive is None else positive
    scores = style.scores_of(model_or_scores, X, positive)
    validation.check_alignment({"X": X, "scores": model_or_scores, "y": y})
    band = np_roc_band(scores, y, delta, positive=positive)
    if label is None:
        given = hasattr(model_or_scores, "predict")
        label = type(model_or_scores).__name__ if given else "scores"
    ax = style.get_axes(ax)
    bands = sum(line.get_gid() == "np_roc" for line in ax.get_lines())
    colour = style.COLOURS[bands % len(style.COLOURS)]
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
    style.legend_above(ax)
    xlabel = "bound of the type I error (false positive rate)"
    style.finish_axes(ax, xlabel, "1 - type II error (true positive rate)")
    return ax
