"""Weights of the rounds of a trained booster, as parameters of a black-box metric."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np

from gbm_constrained._typing import Array, Float


def collect_rounds(score: Callable[[int], Array], n_rounds: int, beside: Array) -> Array:
    """Score rows by each round, and put further columns beside the scores.

    Parameters
    ----------
    score : callable
        Computes the scores of a round.
    n_rounds : int
        Number of rounds.
    beside : ndarray of shape (n_samples, k)
        Further columns.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
        The only array of that size that is made.
    """
    matrix = np.empty((len(beside), n_rounds + beside.shape[1]), dtype=np.float32, order="F")
    for t in range(n_rounds):
        matrix[:, t] = score(t)
    matrix[:, n_rounds:] = beside
    return matrix


def check_number(weights: Float, n_rounds: int) -> None:
    """Refuse weights that are not one for each round."""
    if weights.shape != (n_rounds,):
        raise ValueError(
            f"weights must hold one number for each of the {n_rounds} rounds, got shape "
            f"{weights.shape}."
        )
