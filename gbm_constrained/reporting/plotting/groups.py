"""Rates of groups with their intervals, next to what a constraint allows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.constraints.base import Constraint, Expression
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.alignment import check_alignment
from gbm_constrained.data.validation import labels_and_decisions
from gbm_constrained.evaluation.audit import AuditRows, measure_classifier
from gbm_constrained.evaluation.classifiers import positive_of
from gbm_constrained.reporting.plotting.allowed import find_allowed
from gbm_constrained.reporting.plotting.style import (
    colour_and_marker,
    document_plot,
    find_unit,
    finish_axes,
    get_axes,
    literal,
    matplotlib,
)

GID = "group_rates"  # Marks the points of a model, so that the next one goes beside them.
APART = 0.22  # Distance between two models, where groups are 1 apart.
COLUMNS = ("group", "rows", "rate", "low", "high")


class GroupRatesDisplay:
    """Rates of groups on held-out rows, with intervals, next to what a constraint allows.

    Each group has a line with its rate and the interval of the rate. The interval is Clopper and
    Pearson's where the rate is a fraction of rows (see
    :mod:`gbm_constrained.statistics.intervals`), and that of
    :mod:`gbm_constrained.statistics.pair_intervals` where it is a pair rate. A constraint
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
    ax_: Any
    figure_: Any

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
        missing = [column for column in COLUMNS if column not in rates]
        if missing:
            raise ValueError(f"rates must have the columns {list(COLUMNS)}, it lacks {missing}.")
        self.rates, self.rate_name, self.constraint = rates, rate_name, constraint
        self.level, self.name = level, name
        self.allowed = None
        if constraint is not None:
            self.allowed = find_allowed(
                constraint.expression, constraint, rates["rate"].to_numpy(), reference
            )

    @classmethod
    @document_plot
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
    ) -> GroupRatesDisplay:
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
        matplotlib("axes")
        found = _own_constraint(estimator) if constraint is None else constraint
        rows = AuditRows(X, y, sensitive_features, sample_weight)
        name = type(estimator).__name__ if name is None else name
        display = cls._measure(estimator, rows, found, name, positive=positive, level=level)
        return display.plot(ax)

    @classmethod
    @document_plot
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        constraint: Any,
        *,
        positive: Hashable | None = None,
        sensitive_features: Any,
        sample_weight: Any = None,
        level: float = 0.95,
        name: str = "predictions",
        ax: Any = None,
    ) -> GroupRatesDisplay:
        """Measure and draw the rates of given decisions.

        Parameters
        ----------
        constraint : Constraint or comparison of groups
            Which rate of which groups: a constraint such as ``gap(fpr(), by="sex") <= 0.02``,
            whose bound is drawn too, or a comparison without a bound, such as
            ``each(fpr(), by="sex")``.
        name : str, default="predictions"
            Name of the decisions in the legend.

        Raises
        ------
        TypeError, ValueError
            As :meth:`from_estimator`.
        """
        matplotlib("axes")
        true, decided = labels_and_decisions(y_true, y_pred)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"y_true": y_true, "y_pred": y_pred, **given})
        compared = _comparison_of(constraint)
        if compared.is_of_scores:
            raise TypeError(
                f"{compared.expression} needs probabilities or scores, which decisions do not "
                f"have: use GroupRatesDisplay.from_estimator."
            )
        X = np.zeros((decided.size, 0))
        rows = AuditRows(X, true, sensitive_features, sample_weight)
        model = _FixedDecisions(decided)
        display = cls._measure(model, rows, constraint, name, positive=positive, level=level)
        return display.plot(ax)

    @classmethod
    def _measure(
        cls, model: Any, rows: AuditRows, given: Any, name: str, **options: Any
    ) -> GroupRatesDisplay:
        """Measure the rates that a comparison is about, with the options of an audit."""
        comparison = _comparison_of(given)
        expression = comparison.expression
        measured, drawn = [comparison], [given] if isinstance(given, Constraint) else []
        is_with_overall = getattr(expression, "compares_with_overall", False)
        if is_with_overall:
            measured.append(_with_vacuous_bound(expression.rate))
        found = measure_classifier(model, rows, measured, **options)
        positive = positive_of(model) if options["positive"] is None else options["positive"]
        comparison, *drawn = resolve_positive_class([comparison, *drawn], found.classes, positive)
        reference = None
        if is_with_overall:
            reference = found.frame["value"].iloc[-1]
        elif getattr(expression, "reference_group", None) is not None:
            reference = found.groups["rate"].iloc[-1]  # The reference is the last group.
        return cls(
            found.groups[list(COLUMNS)], literal(comparison.rates[0]),
            constraint=drawn[0] if drawn else None, reference=reference, level=options["level"],
            name=name,
        )  # fmt: skip

    def plot(self, ax: Any = None) -> GroupRatesDisplay:
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
        sizes = zip(self.rates["group"], self.rates["rows"], strict=True)
        labels = [literal(f"{group} (n={size:,})") for group, size in sizes]
        longest = max(map(len, labels), default=0)
        ax = get_axes(ax, (4.0 + 0.085 * longest, 1.7 + 0.45 * max(len(labels), 2)))
        before = [line for line in ax.get_lines() if line.get_gid() == GID]
        colour, marker = colour_and_marker(len(before))
        shown = [text.get_text() for text in ax.get_yticklabels()] if before else []
        shown += [label for label in labels if label not in shown]
        at = np.array([shown.index(label) for label in labels]) + APART * len(before)
        low, rate, high = (self.rates[c].to_numpy(np.float64) for c in ("low", "rate", "high"))
        if self.allowed is not None:
            self._draw_bound(ax, colour)
        self.bars_ = ax.errorbar(
            rate, at, xerr=np.array([rate - low, high - rate]).clip(0.0), fmt="none",
            ecolor=colour, elinewidth=1.6, capsize=3, alpha=0.7,
        )  # fmt: skip
        label = f"{self.name}, {100 * self.level:g}% intervals"
        ax.plot(rate, at, marker, color=colour, markersize=6, label=label, gid=GID)
        ax.set_yticks(np.arange(len(shown)) + APART * len(before) / 2, shown)
        ax.set_ylim(len(shown) - 1 + APART * len(before) + 0.5, -0.5)
        # Above, where no rate can be; beyond the names on the left there is room for long texts.
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
        finish_axes(ax, self.rate_name + find_unit([self.rate_name]), "")
        ax.grid(False, axis="y")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_bound(self, ax: Any, colour: str) -> None:
        """Draw the bound of the constraint, and the band that the bound allows."""
        assert self.constraint is not None
        assert self.allowed is not None
        ends = [end for end in self.allowed if math.isfinite(end)]
        line = {"color": colour, "linestyle": ":", "linewidth": 1.4, "zorder": 1}
        for i, end in enumerate(ends):
            ax.axvline(end, label=literal(self.constraint) if i == 0 else None, **line)
        if len(ends) == 2:
            ax.axvspan(*ends, color=colour, alpha=0.1, linewidth=0, zorder=0)


class _FixedDecisions:
    """Classifier that returns given decisions."""

    def __init__(self, decisions: NDArray[Any]) -> None:
        self.decisions = decisions

    def predict(self, X: Any) -> NDArray[Any]:
        return self.decisions


def _own_constraint(estimator: Any) -> Constraint:
    """Find the constraint between groups that an estimator was trained under."""
    constraints = check_constraints(getattr(estimator, "constraints", None))
    grouped = [c for c in constraints if c.expression.compares_groups]
    if len(grouped) != 1:
        raise ValueError(
            f"{type(estimator).__name__} has {len(grouped)} constraints that compare groups, and "
            f'one is drawn: give it as constraint=, such as each(fpr(), by="sex").'
        )
    return grouped[0]


def _comparison_of(given: Any) -> Any:
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
    sense = expression.senses[-1]
    bound = expression.least_bound if sense == ">=" else expression.range[1]
    return Constraint(expression, sense, bound if math.isfinite(bound) else 1.0)
