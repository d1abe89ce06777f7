r"""Surrogates of a black-box metric: mean losses over selected rows.

A margin is :math:`m_i = y_i f_i`, with labels :math:`y_i = \pm 1` and scores :math:`f_i`. Each
loss has its value :math:`\phi(m)` and its slope :math:`\phi'(m)`: the cross-entropy
:math:`\log(1 + e^{-m})`; the hinge :math:`\max(0, 1 - m)`, which is not smooth; the sigmoid
:math:`1 / (1 + e^m)`, which is bounded and not convex; and the squared error. A shift
:math:`\delta` of all margins moves the weighted mean :math:`\sum_i w_i \phi(m_i + \delta)` to a
target.

See Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates" (ICML 2020). A metric is
read as a function of few losses that are easy to train for, its surrogates.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from scipy.optimize import brentq
from scipy.special import expit

from gbm_constrained._findings import issue_warning
from gbm_constrained._messages import join_truncated
from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.constraints.selectors import Column, Columns, Selector, as_selectors, label
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import check_choice, check_share

LossName: TypeAlias = Literal["log_loss", "hinge", "sigmoid", "squared", "quantile"]


@dataclass(frozen=True)
class MarginLoss:
    """A loss of margins that falls as they grow, or the squared one, which rises beyond one.

    Parameters
    ----------
    value : callable
        Given margins, the loss of each.
    slope : callable
        Given margins, the derivative at each; a subgradient at kinks.
    supremum : float, default=inf
        Upper end of the values.
    root : callable, default=None
        Closed form of :meth:`find_shift`; a search by default.
    """

    value: Callable[[Float], Float]
    slope: Callable[[Float], Float]
    supremum: float = math.inf
    root: Callable[[Float, Float, float], float] | None = None

    def find_shift(self, margins: Float, weights: Float, target: float) -> float:
        r"""Solve :math:`\sum_i w_i \phi(m_i + \delta) = u` for the shift :math:`\delta`.

        Parameters
        ----------
        margins : ndarray of shape (n_samples,)
            Margins.
        weights : ndarray of shape (n_samples,)
            Weights, whose sum is one.
        target : float
            Target u of the mean.

        Returns
        -------
        float
            The shift; NaN where no shift reaches the target.
        """
        if self.root is not None:
            return self.root(margins, weights, target)
        if not 0.0 < target < self.supremum:
            return math.nan

        def excess(shift: float) -> float:
            return float(weights @ self.value(margins + shift)) - target

        at_zero = excess(0.0)
        if at_zero == 0.0:
            return 0.0
        step = math.copysign(1.0, at_zero)
        while excess(step) * at_zero > 0.0:
            step *= 2.0
            if abs(step) > 2.0**20:  # A loss that is still off its target has no root in reach.
                return math.nan
        return float(brentq(excess, 0.0, step, xtol=1e-14))


def _shift_of_squares(margins: Float, weights: Float, target: float) -> float:
    """Solve the quadratic equation on the side of its minimum where no shift is zero."""
    mean = float(weights @ margins)
    least = float(weights @ np.square(margins - mean))
    if target < least:
        return math.nan
    return (1.0 - mean) - math.copysign(math.sqrt(target - least), 1.0 - mean)


MARGIN_LOSSES: dict[LossName, MarginLoss] = {
    "log_loss": MarginLoss(lambda m: np.logaddexp(0.0, -m), lambda m: -expit(-m)),
    "hinge": MarginLoss(
        lambda m: np.maximum(1.0 - m, 0.0), lambda m: np.where(m < 1.0, -1.0, 0.0)
    ),
    "sigmoid": MarginLoss(lambda m: expit(-m), lambda m: -expit(m) * expit(-m), supremum=1.0),
    "squared": MarginLoss(
        lambda m: np.square(1.0 - m), lambda m: 2.0 * (m - 1.0), root=_shift_of_squares
    ),
}


@dataclass(frozen=True, eq=False)
class BoundSurrogate:
    """The weighted mean of a loss of margins, on rows that are known.

    Of a quantile loss the margins count from the score of one positive row, the largest threshold
    with a recall, so that the gradient has an entry there.

    Parameters
    ----------
    loss : MarginLoss
        Loss of a margin.
    rows : ndarray of int of shape (n,)
        Rows whose losses are averaged, among all rows.
    signs : ndarray of shape (n,)
        Labels, -1 or 1.
    weights : ndarray of shape (n,)
        Weights, whose sum is one.
    recall : float, default=None
        Share of the positive rows at or above the threshold; None without a threshold.
    positive : ndarray of int of shape (n_positive,), default=()
        Positive rows that make the threshold.
    positive_weights : ndarray of shape (n_positive,), default=()
        Their weights, whose sum is one.
    """

    loss: MarginLoss
    rows: Codes
    signs: Float
    weights: Float
    recall: float | None = None
    positive: Codes = field(default_factory=lambda: np.empty(0, np.intp))
    positive_weights: Float = field(default_factory=lambda: np.empty(0))

    def _find_threshold_row(self, scores: Float) -> int | None:
        """Find the positive row whose score is the largest threshold with the recall."""
        if self.recall is None:
            return None
        order = np.argsort(-scores[self.positive], kind="stable")
        reached = np.cumsum(self.positive_weights[order])  # It may fall short by rounding.
        return int(self.positive[order[np.searchsorted(reached, self.recall - 1e-12)]])

    def margins(self, scores: Float) -> Float:
        """Compute the margins of the rows whose losses are averaged."""
        row = self._find_threshold_row(scores)
        return np.asarray(self.signs * (scores[self.rows] - (0.0 if row is None else scores[row])))

    def value(self, scores: Float) -> float:
        """Compute the mean loss."""
        return float(self.weights @ self.loss.value(self.margins(scores)))

    def add_gradient(self, scores: Float, coefficient: float, out: Float) -> None:
        """Add a multiple of the gradient in the scores, that of the threshold included."""
        slope = self.loss.slope(self.margins(scores))
        added = coefficient * self.weights * self.signs * slope
        out[self.rows] += added
        if (row := self._find_threshold_row(scores)) is not None:
            out[row] -= float(added.sum())


MOST_SURROGATES = 32
# Validation rows that the sensitivity to a surrogate is estimated from.
ROWS_PER_SURROGATE = 50
LOSSES: tuple[LossName, ...] = (*MARGIN_LOSSES, "quantile")


@dataclass(frozen=True, repr=False)
class Surrogate:
    """A mean loss over the rows that selectors select.

    Parameters
    ----------
    loss : str
        Name of the loss.
    on : tuple of Selector
        Rows of the loss; all rows if it is empty.
    recall : float, default=None
        Recall of a quantile loss.
    """

    loss: LossName
    on: tuple[Selector, ...] = ()
    recall: float | None = None

    def __str__(self) -> str:
        recall = "" if self.recall is None else f", recall={self.recall:g}"
        on = f", on={join_truncated(self.on)}" if self.on else ""
        return f"surrogate({self.loss!r}{recall}{on})"

    __repr__ = __str__


def surrogate(loss: LossName = "log_loss", *, on: Any = None, recall: float = 0.5) -> Surrogate:
    r"""Make a surrogate: a mean loss that a black-box metric is expected to rise with.

    Parameters
    ----------
    loss : {"log_loss", "hinge", "sigmoid", "squared", "quantile"}, default="log_loss"
        Loss of a margin :math:`m = y f`, with labels :math:`y = \pm 1` and scores :math:`f`:
        :math:`\log(1 + e^{-m})`, :math:`\max(0, 1 - m)`, :math:`1 / (1 + e^m)` or
        :math:`(1 - m)^2`. The loss ``"quantile"`` is the hinge of negative rows below a
        threshold, :math:`\max(0, 1 + f - q)`, where q is the largest threshold at which the
        selected positive rows have the given recall (Mackey et al., 2018). The log loss and the
        squared loss are smooth; ``"sigmoid"`` and ``"quantile"`` are not convex, and no theorem
        covers these two.
    on : label(...), dataset(...), dict, bool array or tuple, default=None
        Rows that the loss is taken over, as those of a rate; all rows by default.
    recall : float, default=0.5
        Recall at the threshold of the loss ``"quantile"``, between 0 and 1.

    Returns
    -------
    Surrogate

    Raises
    ------
    ValueError
        If the loss is unknown, or the recall is not between 0 and 1.

    Examples
    --------
    >>> from gbm_constrained import label
    >>> from gbm_constrained.metrics import surrogate
    >>> surrogate("hinge", on=label(1))
    surrogate('hinge', on=y=1)
    """
    check_choice("loss", loss, LOSSES)
    check_share("recall", recall)
    return Surrogate(loss, as_selectors(on), float(recall) if loss == "quantile" else None)


def check_surrogates(given: Any) -> tuple[Surrogate, ...] | None:
    """Read ``surrogates=``; None stands for the surrogates by default.

    Raises
    ------
    TypeError, ValueError
        If they are no sequence of surrogates, or there are none or too many.
    """
    if given is None:
        return None
    if isinstance(given, Surrogate) or not isinstance(given, Sequence):
        raise TypeError(
            f"surrogates must be a list such as [surrogate('hinge', on=label(1)), ...], got "
            f"{given!r}."
        )
    odd = [one for one in given if not isinstance(one, Surrogate)]
    if odd:
        raise TypeError(f"surrogates holds {odd[0]!r}: make each by surrogate(loss, on=...).")
    if not given:
        raise ValueError("surrogates=[] is empty: give at least one, or leave it out.")
    _check_count(len(given), "surrogates", "give fewer of them")
    return tuple(given)


def _check_count(count: int, name: str, remedy: str) -> None:
    if count > MOST_SURROGATES:
        raise ValueError(
            f"{name} makes {count} surrogates, and at most {MOST_SURROGATES} are possible: "
            f"{remedy}."
        )


def default_surrogates(rows: Rows, by: Columns | None) -> tuple[Surrogate, ...]:
    """Make the log loss of each label, in each level of the columns `by`.

    Raises
    ------
    ValueError
        If there are too many levels.
    """
    levels: Sequence[tuple[Hashable, ...]] = [()] if by is None else rows.attribute(by).levels
    count = len(levels) * rows.classes.size
    _check_count(count, f"by={by}", "name columns with fewer values, or give surrogates=")
    return tuple(
        Surrogate("log_loss", (label(value), *map(Column, by or (), level)))
        for level in levels
        for value in rows.classes.tolist()
    )


class SurrogateLosses:
    r"""Surrogates on rows, as functions of their scores.

    Parameters
    ----------
    surrogates : sequence of Surrogate
        Surrogates, K of them.
    rows : Rows
        Rows of two classes. Their weights weigh the means.
    what : str, default="training"
        Name of the rows in messages.

    Attributes
    ----------
    names : tuple of str
        Names of the surrogates.

    Raises
    ------
    ValueError
        If there are not two classes, fewer rows than surrogates, or no row of a surrogate.
    """

    def __init__(
        self, surrogates: Sequence[Surrogate], rows: Rows, what: str = "training"
    ) -> None:
        if rows.classes.size != 2:
            raise ValueError(
                f"A black-box metric takes y with two classes, got {rows.classes.tolist()}: use "
                f"maximize= with a metric of the confusion matrix, such as g_mean()."
            )
        if len(surrogates) > len(rows):
            raise ValueError(
                f"There are {len(surrogates)} surrogates and {len(rows)} {what} rows: give fewer "
                f"surrogates, or more rows."
            )
        self.names = tuple(map(str, surrogates))
        self._n_rows = len(rows)
        self._weight = np.ones(len(rows)) if rows.weight is None else rows.weight
        cells = Cells(rows, [[selector.key for selector in one.on] for one in surrogates])
        views = [cells.views[v] for v in cells.view_of]
        self._parts = tuple(
            _bind(one, rows, cells.select(view, one.on)[view.small_codes] & (rows.y >= 0), what)
            for one, view in zip(surrogates, views, strict=True)
        )

    def __len__(self) -> int:
        return len(self._parts)

    def values(self, scores: Float) -> Float:
        """Compute the surrogates, (K,), at scores of shape (n_samples,)."""
        return np.array([part.value(scores) for part in self._parts])

    def gradient(self, scores: Float, coefficients: Float) -> Float:
        """Compute the gradient in the scores of the surrogates' weighted sum.

        Parameters
        ----------
        scores : ndarray of shape (n_samples,)
            Scores.
        coefficients : ndarray of shape (K,)
            Weights of the surrogates.

        Returns
        -------
        ndarray of shape (n_samples,)
        """
        found = np.zeros(self._n_rows)
        for part, coefficient in zip(self._parts, coefficients, strict=True):
            if coefficient:
                part.add_gradient(scores, coefficient, found)
        return found

    def row_factors(self, coefficients: Float) -> Float:
        """Compute the factors of sample weights that make one weighted mean of all surrogates.

        Parameters
        ----------
        coefficients : ndarray of shape (K,)
            Weights of the surrogates, which are >= 0.

        Returns
        -------
        ndarray of shape (n_samples,)
            Their mean is one; zero for rows of no surrogate.
        """
        shares = np.zeros(self._n_rows)
        for part, coefficient in zip(self._parts, coefficients, strict=True):
            shares[part.rows] += coefficient * part.weights
        factors = np.divide(shares, self._weight, out=shares, where=self._weight > 0)
        return np.asarray(factors / factors.mean())

    def check_disjoint(self) -> None:
        """Refuse surrogates that share rows, which cannot be moved one by one.

        Raises
        ------
        ValueError
            If two surrogates share a row.
        """
        owner = np.full(self._n_rows, -1)
        for k, part in enumerate(self._parts):
            rows = np.concatenate([part.positive, part.rows])
            shared = owner[rows]
            if (shared >= 0).any():
                raise ValueError(
                    f"{self.names[shared.max()]} and {self.names[k]} share rows, and only "
                    f"surrogates of different rows are moved one by one: use "
                    f"estimator='interpolation', or other surrogates."
                )
            owner[rows] = k

    def move(self, scores: Float, targets: Float) -> tuple[Float, Bool]:
        r"""Shift the margins of each surrogate's rows so that it has a target value.

        The shifts solve :math:`l(f + \Delta) = u` (Algorithms 2 and 4 of Jiang et al.).

        Parameters
        ----------
        scores : ndarray of shape (n_samples,)
            Scores f.
        targets : ndarray of shape (K,)
            Targets u.

        Returns
        -------
        moved : ndarray of shape (n_samples,)
            Scores with the targets that are in reach.
        is_out_of_range : ndarray of bool of shape (K,)
            Targets that no shift reaches.
        """
        moved = scores.copy()
        shifts = np.array(
            [
                part.loss.find_shift(part.margins(scores), part.weights, u)
                for part, u in zip(self._parts, targets, strict=True)
            ]
        )
        is_out_of_range = np.isnan(shifts)
        for part, shift in zip(self._parts, np.where(is_out_of_range, 0.0, shifts), strict=True):
            moved[part.rows] += part.signs * shift
        return moved, is_out_of_range


def _bind(one: Surrogate, rows: Rows, selected: Bool, what: str) -> BoundSurrogate:
    """Take the rows of a surrogate, or refuse a surrogate without any."""
    weight = np.ones(len(rows)) if rows.weight is None else rows.weight
    inside = np.flatnonzero(selected & (weight > 0))
    is_positive = rows.y[inside] == 1
    if one.recall is None:
        if not inside.size:
            raise ValueError(
                f"{one} is taken over no {what} row: leave it out of surrogates=, or give rows "
                f"that it selects."
            )
        shares, signs = weight[inside] / weight[inside].sum(), np.where(is_positive, 1.0, -1.0)
        return BoundSurrogate(MARGIN_LOSSES[one.loss], inside, signs, shares)
    if is_positive.all() or not is_positive.any():
        raise ValueError(
            f"{one} compares rows of both classes, and selects {int(is_positive.sum())} positive "
            f"and {int((~is_positive).sum())} negative {what} rows: give on= both classes."
        )
    positive, negative = inside[is_positive], inside[~is_positive]
    return BoundSurrogate(
        MARGIN_LOSSES["hinge"],
        negative,
        np.full(negative.size, -1.0),
        weight[negative] / weight[negative].sum(),
        one.recall,
        positive,
        weight[positive] / weight[positive].sum(),
    )


def warn_of_few_rows(n_surrogates: int, n_validation: int) -> None:
    """Warn where the validation rows cannot separate the effects of the surrogates."""
    if n_surrogates > n_validation / ROWS_PER_SURROGATE:
        issue_warning(
            f"There are {n_surrogates} surrogates and {n_validation} validation rows: fewer than "
            f"{ROWS_PER_SURROGATE} rows show how the metric responds to a surrogate. Give fewer "
            f"surrogates, or more validation rows.",
            "GC307",
        )
