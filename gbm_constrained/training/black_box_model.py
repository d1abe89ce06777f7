r"""Trained models whose parameters a black-box metric is optimised over.

With the columns :math:`\phi` of a model, groups g and an intercept b, a row has the score

.. math:: f(x) = f_0 + \sum_j \theta_j \phi_j(x) + o_{g(x)} + b .

The columns are the scores of each round of a booster, the indicators of its leaves, or features.
Surrogates that are convex in scores are therefore convex in these parameters (Jiang et al.,
"Optimizing Black-box Metrics with Adaptive Surrogates", ICML 2020, section 4).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Protocol

import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.group_shifts import GroupOffsets


@dataclass(frozen=True)
class ScoreColumns:
    """Columns whose weighted sum scores rows.

    Parameters
    ----------
    matrix : array or sparse array of shape (n_samples, n_parameters)
        Columns of the model, and columns beside it.
    base : float
        Score that all rows start from.
    """

    matrix: Any
    base: float


class AdjustableModel(Protocol):
    """A trained model whose scores are linear in parameters."""

    @property
    def takes_offsets(self) -> bool:
        """Whether offsets of groups may be added to the scores."""

    @property
    def names(self) -> Sequence[str]:
        """Names of the parameters."""

    @property
    def start(self) -> Float:
        """Parameters that leave the model as it is, of shape (n_parameters,)."""

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Compute the columns of rows, and put further columns beside them."""

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the parameters, and add to all scores."""

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Add offsets to the scores of groups of training rows inside of the model."""


@dataclass(frozen=True)
class Parameters:
    """Parameters of a model, and what is added to its scores.

    Parameters
    ----------
    model : ndarray of shape (n_parameters,)
        Parameters of the model.
    offsets : ndarray of shape (n_groups,)
        Offset of the scores of each group.
    intercept : float
        What is added to the scores of all rows.
    """

    model: Float
    offsets: Float
    intercept: float

    @classmethod
    def split(cls, parameters: Float, n_groups: int) -> Parameters:
        """Split a vector of all parameters."""
        end = parameters.size - 1 - n_groups
        return cls(parameters[:end], parameters[end:-1], float(parameters[-1]))

    @property
    def vector(self) -> Float:
        """All parameters in one vector."""
        return np.concatenate([self.model, self.offsets, [self.intercept]])


def columns_beside(groups: Codes | None, n_groups: int, n_rows: int) -> Array:
    """Make the indicators of groups and a column of ones, in single precision.

    Parameters
    ----------
    groups : ndarray of int of shape (n_rows,) or None
        Group of each row; rows of no group have numbers from `n_groups` on.
    n_groups : int
        Number of groups.
    n_rows : int
        Number of rows.

    Returns
    -------
    ndarray of shape (n_rows, n_groups + 1)
    """
    columns = np.ones((n_rows, n_groups + 1), dtype=np.float32)
    if groups is not None:
        columns[:, :n_groups] = groups[:, None] == np.arange(n_groups)
    return columns
