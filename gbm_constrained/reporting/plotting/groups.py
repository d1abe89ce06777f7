"""Rates of groups, with exact intervals, next to what a rule allows."""

from __future__ import annotations

import math
from collections.abc import Hashable
from typing import Any

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.expressions import Constraint
from gbm_constrained.constraints.grouped import Each, Gap, Grouped, Overall, Ratio
from gbm_constrained.constraints.positive_class import resolve_positive_class
from gbm_constrained.data.alignment import check_alignment
from gbm_constrained.data.validation import labels_and_decisions
from gbm_constrained.evaluation.audit import measure_classifier, positive_of
from gbm_constrained.reporting.plotting.style import (
    colour_and_marker,
    literal,
    matplotlib,
    one_axes,
    tidy,
    unit_of,
)

GID = "group_rates"  # marks the points of a model, so that the next one goes beside them
APART = 0.22  # between two models, where groups are 1 apart
COLUMNS = ("group", "rows", "rate", "low", "high")


class GroupRatesDisplay:
    """Rates of groups on unseen rows, with intervals, next to what a rule allows.

    One line for each group: its rate and the interval of that, Clopper and Pearson's where the
    rate is a fraction of rows (see :mod:`gbm_constrained.statistics.intervals`). A rule
    ``each(...)`` is drawn as its bound. One between groups is a band: a gap holds if all rates are
    within a band as wide as the bound, drawn around the middle of the rates or around the
    reference, and a ratio if all are above so much of the largest. Rates of several models can
    share axes.

    Parameters
    ----------
    rates : DataFrame
        One row for each group: ``group``, ``rows``, ``rate``, and the interval ``low`` to
        ``high``.
    rate_name : str
        What the rate is called.
    rule : Constraint, default=None
        The rule whose bound is drawn.
    reference : float, default=None
        The rate that groups are compared with, for a rule with a reference.
    level : float, default=0.95
        Level of the intervals.
    name : str, default="rates"
        What the legend calls the model.

    Attributes
    ----------
    allowed : tuple of float or None
        Ends of the band that the rule allows, infinite where there is none.
    bars_ : matplotlib ErrorbarContainer
        Rates and intervals.
    ax_ : matplotlib Axes
        What was drawn into.
    figure_ : matplotlib Figure
        Its figure.
    """

    bars_: Any
    ax_: Any
    figure_: Any

    def __init__(
        self,
        rates: pd.DataFrame,
        rate_name: str = "rate",
        *,
        rule: Constraint | None = None,
        reference: float | None = None,
        level: float = 0.95,
        name: str = "rates",
    ) -> None:
        missing = [column for column in COLUMNS if column not in rates]
        if missing:
            raise ValueError(f"rates must have the columns {list(COLUMNS)}, it lacks {missing}.")
        self.rates, self.rate_name, self.rule = rates, rate_name, rule
        self.level, self.name = level, name
        self.allowed = None if rule is None else _allowed(rule, rates["rate"], reference)

    @classmethod
    def from_estimator(
        cls,
        estimator: Any,
        X: Any,
        y: Any,
        rule: Any = None,
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
            Anything with ``predict``.
        X : array-like of shape (n_samples, n_features)
            Features of rows that it was not trained on.
        y : array-like of shape (n_samples,)
            Labels.
        rule : Constraint or comparison of groups, default=None
            Which rate of which groups: a rule such as ``gap(fpr(), by="sex") <= 0.02``, whose
            bound is drawn too, or a comparison without a bound, such as
            ``each(fpr(), by="sex")``. By default the estimator's own rule between groups.
        positive : label, default=None
            The positive class of a rate that names none, as in
            :func:`gbm_constrained.reporting.audit.audit`.
        sensitive_features : Series, DataFrame, dict of arrays or array-like, default=None
            Columns that make groups, next to those of `X` when it is a DataFrame.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        level : float, default=0.95
            Level of each interval.
        name : str, default=None
            What the legend calls the model; its class by default.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        TypeError, ValueError
            If `rule` compares no groups, or something else does not fit; see
            :func:`gbm_constrained.reporting.audit.audit`.
        """
        matplotlib("axes")
        found = _own_rule(estimator) if rule is None else rule
        display = cls._measured(
            estimator, X, y, found, positive, sensitive_features, sample_weight, level,
            type(estimator).__name__ if name is None else name,
        )  # fmt: skip
        return display.plot(ax)

    @classmethod
    def from_predictions(
        cls,
        y_true: Any,
        y_pred: Any,
        rule: Any,
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
        y_true, y_pred : array-like of shape (n_samples,)
            Labels, and decisions.
        rule : Constraint or comparison of groups
            Which rate of which groups: a rule such as ``gap(fpr(), by="sex") <= 0.02``, whose
            bound is drawn too, or a comparison without a bound, such as
            ``each(fpr(), by="sex")``.
        positive : label, default=None
            The positive class of a rate that names none; the last of two sorted labels by default.
        sensitive_features : Series, DataFrame, dict of arrays or array-like
            Columns that make groups.
        sample_weight : array-like of shape (n_samples,), default=None
            Weights of the rows.
        level : float, default=0.95
            Level of each interval.
        name : str, default="predictions"
            What the legend calls the decisions.
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        TypeError, ValueError
            As :meth:`from_estimator`.
        """
        matplotlib("axes")
        true, decided = labels_and_decisions(y_true, y_pred)
        given = {"sensitive_features": sensitive_features, "sample_weight": sample_weight}
        check_alignment({"y_true": y_true, "y_pred": y_pred, **given})
        compared, _ = _as_rule(rule)
        if any(term.event == "log_loss" for term in compared.terms):
            raise TypeError(
                f"{compared.expression} needs probabilities, which decisions do not tell: use "
                f"GroupRatesDisplay.from_estimator."
            )
        X = np.zeros((decided.size, 0))
        display = cls._measured(
            _Decided(decided), X, true, rule, positive, sensitive_features, sample_weight,
            level, name,
        )  # fmt: skip
        return display.plot(ax)

    @classmethod
    def _measured(
        cls,
        model: Any,
        X: Any,
        y: Any,
        given: Any,
        positive: Hashable | None,
        sensitive_features: Any,
        sample_weight: Any,
        level: float,
        name: str,
    ) -> GroupRatesDisplay:
        compared, rule = _as_rule(given)
        expression = compared.expression
        assert isinstance(expression, Grouped)
        rules = [compared]
        if isinstance(getattr(expression, "reference", None), Overall):
            rules.append(Constraint(expression.rate, ">=", _least(expression)))
        found = measure_classifier(
            model, X, y, rules, positive=positive, sensitive_features=sensitive_features,
            sample_weight=sample_weight, level=level,
        )  # fmt: skip
        label = positive_of(model) if positive is None else positive
        compared, *drawn = resolve_positive_class(
            [compared, *([] if rule is None else [rule])], found.classes, label
        )
        reference = None
        if isinstance(expression, Gap) and expression.reference is not None:
            is_overall = isinstance(expression.reference, Overall)
            # The group that is the reference is the last one.
            reference = found.frame["value"].iloc[-1] if is_overall else (
                found.groups["rate"].iloc[-1]
            )  # fmt: skip
        return cls(
            found.groups[list(COLUMNS)], literal(compared.rates[0]),
            rule=drawn[0] if drawn else None, reference=reference, level=level, name=name,
        )  # fmt: skip

    def plot(self, ax: Any = None) -> GroupRatesDisplay:
        """Draw the rates.

        Parameters
        ----------
        ax : matplotlib Axes, default=None
            Where to draw; a new figure by default. Axes that already hold rates of groups get
            these beside them, in another colour.

        Returns
        -------
        GroupRatesDisplay
            Itself.

        Raises
        ------
        ImportError
            If matplotlib is not installed.
        """
        sizes = zip(self.rates["group"], self.rates["rows"], strict=True)
        labels = [literal(f"{group} (n={size:,})") for group, size in sizes]
        longest = max(map(len, labels), default=0)
        ax = one_axes(ax, (4.0 + 0.085 * longest, 1.7 + 0.45 * max(len(labels), 2)))
        before = [line for line in ax.get_lines() if line.get_gid() == GID]
        colour, marker = colour_and_marker(len(before))
        shown = [text.get_text() for text in ax.get_yticklabels()] if before else []
        shown += [label for label in labels if label not in shown]
        at = np.array([shown.index(label) for label in labels]) + APART * len(before)
        low, rate, high = (self.rates[c].to_numpy(np.float64) for c in ("low", "rate", "high"))
        if self.allowed is not None:
            self._draw_rule(ax, colour)
        self.bars_ = ax.errorbar(
            rate, at, xerr=np.array([rate - low, high - rate]).clip(0.0), fmt="none",
            ecolor=colour, elinewidth=1.6, capsize=3, alpha=0.7,
        )  # fmt: skip
        label = f"{self.name}, {100 * self.level:g}% intervals"
        ax.plot(rate, at, marker, color=colour, markersize=6, label=label, gid=GID)
        ax.set_yticks(np.arange(len(shown)) + APART * len(before) / 2, shown)
        ax.set_ylim(len(shown) - 1 + APART * len(before) + 0.5, -0.5)
        ax.set_xlabel(self.rate_name + unit_of([self.rate_name]))
        # Above, where no rate can be; beyond the names on the left there is room for long rules.
        ax.legend(loc="lower right", bbox_to_anchor=(1.0, 1.0), frameon=False)
        tidy(ax)
        ax.grid(False, axis="y")
        self.ax_, self.figure_ = ax, ax.figure
        return self

    def _draw_rule(self, ax: Any, colour: str) -> None:
        """Draw what the rule allows."""
        assert self.rule is not None
        assert self.allowed is not None
        ends = [end for end in self.allowed if math.isfinite(end)]
        line = {"color": colour, "linestyle": ":", "linewidth": 1.4, "zorder": 1}
        for i, end in enumerate(ends):
            ax.axvline(end, label=literal(self.rule) if i == 0 else None, **line)
        if len(ends) == 2:
            ax.axvspan(*ends, color=colour, alpha=0.1, linewidth=0, zorder=0)


class _Decided:
    """A model that has made its decisions."""

    def __init__(self, answers: NDArray[Any]) -> None:
        self.answers = answers

    def predict(self, X: Any) -> NDArray[Any]:
        return self.answers


def _own_rule(estimator: Any) -> Constraint:
    """Find the rule between groups that an estimator was trained under."""
    rules = check_constraints(getattr(estimator, "constraints", None))
    grouped = [rule for rule in rules if isinstance(rule.expression, Grouped)]
    if len(grouped) != 1:
        raise ValueError(
            f"{type(estimator).__name__} has {len(grouped)} rules that compare groups, and one is "
            f'drawn: give it as rule=, such as each(fpr(), by="sex").'
        )
    return grouped[0]


def _least(expression: Grouped) -> float:
    """Find the least value of a rate, as a bound that everything meets."""
    low = expression.rate.range[0]
    return low if any(t.event != "log_loss" for _, t in expression.rate.terms) else math.ulp(0.0)


def _as_rule(given: Any) -> tuple[Constraint, Constraint | None]:
    """Make a rule to measure, and one to draw: none for a comparison without a bound."""
    expression = given.expression if isinstance(given, Constraint) else given
    if not isinstance(expression, Grouped):
        raise TypeError(
            f"rule must compare groups, as gap(fpr(), by='sex') <= 0.02 and each(fpr(), by='sex') "
            f"do, got {given!r}."
        )
    if isinstance(given, Constraint):
        return given, given
    if isinstance(expression, Ratio):
        return expression >= 0.0, None
    if isinstance(expression, Gap):
        low, high = expression.rate.range
        return Constraint(expression, "<=", high - low if math.isfinite(high - low) else 1.0), None
    return Constraint(expression, ">=", _least(expression)), None


def _allowed(
    rule: Constraint, rates: pd.Series[float], reference: float | None
) -> tuple[float, float]:
    """Find between which ends a rule allows the rates of groups to be."""
    e, b = rule.expression, rule.bound
    low, high = float(rates.min()), float(rates.max())
    if isinstance(e, Each):
        return (-math.inf, b) if rule.sense == "<=" else (b, math.inf)
    if isinstance(e, Ratio):
        if reference is None:
            return b * high - e.slack, high
        return b * reference - e.slack, (reference + e.slack) / b if b > 0 else math.inf
    if reference is not None:
        return reference - b, reference + b
    return (low + high - b) / 2, (low + high + b) / 2
