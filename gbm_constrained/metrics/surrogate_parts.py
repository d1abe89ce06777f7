"""One surrogate on its rows: a mean loss of margins, or of distances to a quantile."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Codes, Float
from gbm_constrained.metrics.margin_losses import MarginLoss

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
