r"""Surrogates of a black-box metric: mean losses over selected rows.

A margin is :math:`m_i = y_i f_i`, with labels :math:`y_i = \pm 1` and scores :math:`f_i`. Each
loss has its value :math:`\phi(m)`, its slope :math:`\phi'(m)` and a bound of its curvature
:math:`|\phi''(m)|`, all of the shape of the margins. A shift :math:`\delta` of all margins moves
the weighted mean :math:`\sum_i w_i \phi(m_i + \delta)` to a target.

See Jiang et al., "Optimizing Black-box Metrics with Adaptive Surrogates" (ICML 2020). A metric is
read as a function of few losses that are easy to train for, its surrogates.
"""

from __future__ import annotations

import math
from abc import ABC, abstractmethod
from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Literal, TypeAlias

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
LARGEST_SHIFT = 2.0**20  # A loss that is still off its target there has no root in reach.


class MarginLoss(ABC):
    """A loss of margins that falls as they grow."""

    supremum: ClassVar[float] = math.inf

    @abstractmethod
    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""

    @abstractmethod
    def slope(self, margins: Float) -> Float:
        """Compute the derivative at each margin; a subgradient at kinks."""

    @abstractmethod
    def curvature(self, margins: Float) -> Float:
        """Compute the second derivative's absolute value at each margin; zero at kinks."""

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
            if abs(step) > LARGEST_SHIFT:
                return math.nan
        return float(brentq(excess, 0.0, step, xtol=1e-14))


class LogLoss(MarginLoss):
    r"""The cross-entropy, :math:`\log(1 + e^{-m})`."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.asarray(np.logaddexp(0.0, -margins))

    def slope(self, margins: Float) -> Float:
        """Compute minus the probability of the wrong class."""
        return np.asarray(-expit(-margins))

    def curvature(self, margins: Float) -> Float:
        """Compute the product of both probabilities."""
        return np.asarray(expit(margins) * expit(-margins))


class Hinge(MarginLoss):
    r"""The hinge, :math:`\max(0, 1 - m)`, which is neither smooth nor bounded."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.maximum(1.0 - margins, 0.0)

    def slope(self, margins: Float) -> Float:
        """Return -1 below a margin of one, and 0 from there."""
        return np.where(margins < 1.0, -1.0, 0.0)

    def curvature(self, margins: Float) -> Float:
        """Return zeros: the loss is linear on both sides of its kink."""
        return np.zeros_like(margins)


class Sigmoid(MarginLoss):
    r"""The sigmoid, :math:`1 / (1 + e^m)`, which is bounded and not convex."""

    supremum = 1.0

    def value(self, margins: Float) -> Float:
        """Compute the probability of the wrong class."""
        return np.asarray(expit(-margins))

    def slope(self, margins: Float) -> Float:
        """Compute minus the product of both probabilities."""
        return np.asarray(-expit(margins) * expit(-margins))

    def curvature(self, margins: Float) -> Float:
        """Compute the absolute value of the second derivative."""
        return np.asarray(expit(margins) * expit(-margins) * np.abs(np.tanh(margins / 2.0)))


class Squared(MarginLoss):
    r"""The squared error :math:`(1 - m)^2`, which rises again beyond a margin of one."""

    def value(self, margins: Float) -> Float:
        """Compute the loss of each margin."""
        return np.square(1.0 - margins)

    def slope(self, margins: Float) -> Float:
        """Compute the derivative at each margin."""
        return 2.0 * (margins - 1.0)

    def curvature(self, margins: Float) -> Float:
        """Return twos."""
        return np.full_like(margins, 2.0)

    def find_shift(self, margins: Float, weights: Float, target: float) -> float:
        """Solve the quadratic equation on the side of its minimum where no shift is zero."""
        mean = float(weights @ margins)
        least = float(weights @ np.square(margins - mean))
        if target < least:
            return math.nan
        return (1.0 - mean) - math.copysign(math.sqrt(target - least), 1.0 - mean)


MARGIN_LOSSES: dict[LossName, MarginLoss] = {
    "log_loss": LogLoss(),
    "hinge": Hinge(),
    "sigmoid": Sigmoid(),
    "squared": Squared(),
}


ROUNDING = 1e-12  # Share of the positive rows by which a recall may fall short, from rounding.


@dataclass(frozen=True)
class MeanLoss:
    """The weighted mean of a loss of margins.

    Parameters
    ----------
    loss : MarginLoss
        Loss of a margin.
    rows : ndarray of int of shape (n,)
        Rows of the surrogate among all rows.
    signs : ndarray of shape (n,)
        Labels, -1 or 1.
    weights : ndarray of shape (n,)
        Weights, whose sum is one.
    """

    loss: MarginLoss
    rows: Codes
    signs: Float
    weights: Float

    @property
    def loss_rows(self) -> Codes:
        """Rows whose losses are averaged."""
        return self.rows

    @property
    def shares(self) -> Float:
        """Share of each of these rows in the mean."""
        return self.weights

    def _margins(self, scores: Float, threshold: float = 0.0) -> Float:
        return np.asarray(self.signs * (scores[self.rows] - threshold))

    def value(self, scores: Float, threshold: float = 0.0) -> float:
        """Compute the mean loss; scores count from a threshold."""
        return float(self.weights @ self.loss.value(self._margins(scores, threshold)))

    def add_gradient(
        self, scores: Float, coefficient: float, out: Float, threshold: float = 0.0
    ) -> float:
        """Add a multiple of the gradient in the scores, and return the sum of what was added."""
        slope = self.loss.slope(self._margins(scores, threshold))
        added = coefficient * self.weights * self.signs * slope
        out[self.rows] += added
        return float(added.sum())

    def add_curvature(
        self, scores: Float, coefficient: float, out: Float, threshold: float = 0.0
    ) -> None:
        """Add a multiple of the bound of the Hessian's diagonal."""
        curvature = self.loss.curvature(self._margins(scores, threshold))
        out[self.rows] += coefficient * self.weights * curvature

    def find_shift(self, scores: Float, target: float, threshold: float = 0.0) -> float:
        """Find the shift of all margins that makes the mean a target; NaN without one."""
        return self.loss.find_shift(self._margins(scores, threshold), self.weights, target)

    def shift(self, scores: Float, shift: float) -> None:
        """Shift the margins in place."""
        scores[self.rows] += self.signs * shift


@dataclass(frozen=True)
class QuantileLoss:
    """The mean loss of negative rows, with a threshold that positive rows make.

    The threshold is the score of one positive row, so that the gradient has an entry there.

    Parameters
    ----------
    positive : ndarray of int of shape (n_positive,)
        Positive rows.
    weights : ndarray of shape (n_positive,)
        Weights of the positive rows, whose sum is one.
    negatives : MeanLoss
        Loss of the negative rows.
    recall : float
        Share of the positive rows at or above the threshold.
    """

    positive: Codes
    weights: Float
    negatives: MeanLoss
    recall: float

    @property
    def rows(self) -> Codes:
        """Rows of the surrogate among all rows."""
        return np.concatenate([self.positive, self.negatives.rows])

    @property
    def loss_rows(self) -> Codes:
        """Rows whose losses are averaged, which are the negative ones."""
        return self.negatives.rows

    @property
    def shares(self) -> Float:
        """Share of each of these rows in the mean."""
        return self.negatives.weights

    def _threshold_row(self, scores: Float) -> int:
        """Find the positive row whose score is the largest threshold with the recall."""
        order = np.argsort(-scores[self.positive], kind="stable")
        reached = np.cumsum(self.weights[order])
        return int(self.positive[order[np.searchsorted(reached, self.recall - ROUNDING)]])

    def value(self, scores: Float) -> float:
        """Compute the mean loss of the negative rows."""
        return self.negatives.value(scores, scores[self._threshold_row(scores)])

    def add_gradient(self, scores: Float, coefficient: float, out: Float) -> None:
        """Add a multiple of the gradient in the scores, that of the threshold included."""
        row = self._threshold_row(scores)
        out[row] -= self.negatives.add_gradient(scores, coefficient, out, scores[row])

    def add_curvature(self, scores: Float, coefficient: float, out: Float) -> None:
        """Add a multiple of the bound of the Hessian's diagonal, at a fixed threshold."""
        row = self._threshold_row(scores)
        self.negatives.add_curvature(scores, coefficient, out, scores[row])

    def find_shift(self, scores: Float, target: float) -> float:
        """Find the shift of the negative rows' margins that makes the mean a target."""
        return self.negatives.find_shift(scores, target, scores[self._threshold_row(scores)])

    def shift(self, scores: Float, shift: float) -> None:
        """Shift the margins of the negative rows in place."""
        self.negatives.shift(scores, shift)


MOST_SURROGATES = 32
ROWS_PER_SURROGATE = 50  # Validation rows that the sensitivity to a surrogate is estimated from.
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

    def __repr__(self) -> str:
        return str(self)


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


Part: TypeAlias = MeanLoss | QuantileLoss


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
        self._parts = tuple(
            _bind(one, rows, selected, what)
            for one, selected in zip(surrogates, _select(surrogates, rows), strict=True)
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

    def hessian_bound(self, scores: Float, coefficients: Float) -> Float:
        """Bound the diagonal of the Hessian of the weighted sum, for weights that are >= 0.

        The Hessian itself for convex smooth losses, and its absolute value for the sigmoid.

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
            part.add_curvature(scores, coefficient, found)
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
            shares[part.loss_rows] += coefficient * part.shares
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
            shared = owner[part.rows]
            if (shared >= 0).any():
                raise ValueError(
                    f"{self.names[shared.max()]} and {self.names[k]} share rows, and only "
                    f"surrogates of different rows are moved one by one: use "
                    f"estimator='interpolation', or other surrogates."
                )
            owner[part.rows] = k

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
            [part.find_shift(scores, u) for part, u in zip(self._parts, targets, strict=True)]
        )
        is_out_of_range = np.isnan(shifts)
        for part, shift in zip(self._parts, np.where(is_out_of_range, 0.0, shifts), strict=True):
            part.shift(moved, shift)
        return moved, is_out_of_range


def _select(surrogates: Sequence[Surrogate], rows: Rows) -> Sequence[Bool]:
    """Find the labelled rows of each surrogate."""
    cells = Cells(rows, [[selector.key for selector in one.on] for one in surrogates])
    views = [cells.views[v] for v in cells.view_of]
    return [
        cells.select(view, one.on)[view.small_codes] & (rows.y >= 0)
        for one, view in zip(surrogates, views, strict=True)
    ]


def _bind(one: Surrogate, rows: Rows, selected: Bool, what: str) -> Part:
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
        shares = weight[inside] / weight[inside].sum()
        return MeanLoss(MARGIN_LOSSES[one.loss], inside, np.where(is_positive, 1.0, -1.0), shares)
    if is_positive.all() or not is_positive.any():
        raise ValueError(
            f"{one} compares rows of both classes, and selects {int(is_positive.sum())} positive "
            f"and {int((~is_positive).sum())} negative {what} rows: give on= both classes."
        )
    positive, negative = inside[is_positive], inside[~is_positive]
    return QuantileLoss(
        positive,
        weight[positive] / weight[positive].sum(),
        MeanLoss(
            MARGIN_LOSSES["hinge"],
            negative,
            np.full(negative.size, -1.0),
            weight[negative] / weight[negative].sum(),
        ),
        one.recall,
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
