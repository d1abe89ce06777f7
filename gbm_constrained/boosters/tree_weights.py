r"""Weights of the rounds of a trained booster, as parameters of a black-box metric.

With the scores :math:`f_t` of each round, groups g and an intercept b, a row has the score

.. math:: f(x) = b_0 + \sum_t \theta_t f_t(x) + o_{g(x)} + b .

The trees keep their structure. Surrogates that are convex in scores are therefore convex in these
parameters (Jiang et al., ICML 2020, section 4).
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.solvers.parameter_spaces import LinearSpace


@dataclass(frozen=True)
class RoundScores:
    """Scores of each round of a booster for some rows.

    Parameters
    ----------
    scores : ndarray of float32 of shape (n_samples, n_rounds)
        Scores of each round.
    base : float
        Score that all rows start from.
    groups : ndarray of int of shape (n_samples,), default=None
        Group of each row, counted from zero; None without offsets.
    """

    scores: Array
    base: float
    groups: Codes | None = None

    def matrix(self, n_groups: int) -> Array:
        """Put the scores, an indicator of each group, and a column of ones side by side."""
        columns = [self.scores]
        if self.groups is not None:
            columns.append((self.groups[:, None] == np.arange(n_groups)).astype(np.float32))
        return np.hstack([*columns, np.ones((len(self.scores), 1), dtype=np.float32)])


@dataclass(frozen=True)
class TreeWeights:
    """Parameters of a booster whose trees keep their structure.

    Parameters
    ----------
    rounds : ndarray of shape (n_rounds,)
        Weight of each round; ones leave a booster as it is.
    offsets : ndarray of shape (n_groups,)
        Offset of the scores of each group; zeros leave a booster as it is.
    intercept : float
        What is added to the scores of all rows.
    """

    rounds: Float
    offsets: Float
    intercept: float

    @classmethod
    def identity(cls, n_rounds: int, n_groups: int) -> TreeWeights:
        """Make the weights that leave a booster as it is."""
        return cls(np.ones(n_rounds), np.zeros(n_groups), 0.0)

    @classmethod
    def from_parameters(cls, parameters: Float, n_rounds: int) -> TreeWeights:
        """Split a vector of all parameters."""
        return cls(parameters[:n_rounds], parameters[n_rounds:-1], float(parameters[-1]))

    @property
    def parameters(self) -> Float:
        """All parameters in one vector."""
        return np.concatenate([self.rounds, self.offsets, [self.intercept]])


def make_space(training: RoundScores, validation: RoundScores, n_groups: int = 0) -> LinearSpace:
    """Make the space of a booster's tree weights.

    Parameters
    ----------
    training, validation : RoundScores
        Scores of the rounds, and groups of both or of neither.
    n_groups : int, default=0
        Number of groups with an offset.

    Returns
    -------
    LinearSpace
    """
    return LinearSpace(
        training.matrix(n_groups), validation.matrix(n_groups), training.base, validation.base
    )


def check_number(weights: Float, n_rounds: int) -> None:
    """Refuse weights that are not one for each round."""
    if weights.shape != (n_rounds,):
        raise ValueError(
            f"weights must hold one number for each of the {n_rounds} rounds, got shape "
            f"{weights.shape}."
        )
