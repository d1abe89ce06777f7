"""Constraints on pair rates, as signed sums over sets of rows.

A pair rate is AUC(U, V) = Pr(score of a row of U > score of a row of V), half of the ties added,
for two sets of rows U and V. A set is a column of a matrix `members`: the weight of each row in
the set, zero outside. Its first two columns are the positives and the negatives, whose AUC is the
objective. A row may be in several sets, and a set may be compared with itself.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from gbm_constrained._typing import Float

POSITIVES, NEGATIVES = 0, 1  # Columns of `members` whose AUC is the objective.


class PairTerm(NamedTuple):
    """Multiple of the pair rate AUC(U, V).

    Parameters
    ----------
    coefficient : The factor, not zero.
    upper : Column of U in `members`.
    lower : Column of V in `members`.
    """

    coefficient: float
    upper: int
    lower: int


@dataclass(frozen=True)
class PairRule:
    """One-sided constraint ``sum of terms <= bound``.

    Parameters
    ----------
    terms : Multiples of pair rates.
    bound : Largest value of their sum.
    name : How the rule is called in reports.
    """

    terms: tuple[PairTerm, ...]
    bound: float
    name: str = ""

    def negated_terms(self) -> frozenset[PairTerm]:
        """Negate the terms: those of a rule that bounds the same sum from below."""
        return frozenset(PairTerm(-c, upper, lower) for c, upper, lower in self.terms)


def bound_difference(
    first: tuple[int, int], second: tuple[int, int], bound: float, name: str = ""
) -> list[PairRule]:
    """Write ``|AUC(first) - AUC(second)| <= bound`` as two rules; (2) of the paper.

    Parameters
    ----------
    first, second : (U, V). Columns of `members`.
    bound : Largest absolute difference.
    name : How the difference is called in reports.
    """
    return [
        PairRule((PairTerm(sign, *first), PairTerm(-sign, *second)), bound, name)
        for sign in (1.0, -1.0)
    ]


def density_ratios(members: Float) -> Float:
    """Divide the weights of rows in sets by their mean, so that each column has the mean one.

    Parameters
    ----------
    members : ndarray of shape (n_samples, n_sets), float64
        Weight of each row in each set.

    Returns
    -------
    ndarray of shape (n_samples, n_sets), float64
        ``1_U(i) / Pr(U)`` of the paper, for each set U.

    Raises
    ------
    ValueError
        If a set has no row of positive weight.
    """
    mean = members.mean(axis=0)
    empty = np.flatnonzero(mean <= 0)
    if empty.size:
        raise ValueError(
            f"set {empty[0]} of the pair rules has no row of positive weight, so that its pair "
            f"rates are undefined: leave out the rule, or give rows of that set."
        )
    return np.asarray(members / mean)
