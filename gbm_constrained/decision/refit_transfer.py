"""A threshold that was chosen on the folds, for the model of all rows.

Where rules ask for one class alone, as the bound of a miss rate does, its rows are weighed and,
being few, learnt by heart. The model of all rows knows more of them than the boosters of the
folds, and gives all rows that look like them higher scores: at the threshold chosen on the folds
it decides for that class more often than they do, meets the rule with room, and pays with errors
on the other class.

The other class has more rows, which are not weighed, and says how much bolder the model is. Trees
of more rows rank them no worse; so if the model decides as many rows of the other class for the
class that is asked for as the boosters did out of fold, it misses no more rows of the latter than
they did. The threshold is moved to where that is so. On its own rows the model makes somewhat
fewer errors than on others, which its share of what the boosters lose (Efron, 1983) accounts for;
see :meth:`gbm_constrained.training.measurement.Scouts.optimism`.

Measured on validation rows (miss rates of the smaller class at most 0.1, both libraries, learning
rates 0.1 and 0.3 or 0.4, mean of 4 or 6 splits): 0.079 to 0.092 before, 0.091 to 0.104 after, at
0.3 to 3.3 points more accuracy on Adult, Bank and Default. On the 700 rows of German it is noise.

Under all other rules the model is brought to decide as many of all rows for the second class as
the boosters of the folds did. Where multipliers gather the scores of a group around the threshold,
a shift of a tenth may otherwise turn the decisions of the group.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.threshold_search import shift_for_share
from gbm_constrained.problem.linear_constraints import CompiledConstraints


def rows_to_match(compiled: CompiledConstraints, cells: Cells) -> Bool | None:
    """Rows by which a threshold is carried over.

    All of the class that rules are not about, if they look at rows of one of two classes, none is
    broken by deciding for that class, and it is the smaller one. All rows otherwise.

    Parameters
    ----------
    compiled : CompiledConstraints
        What binds the model.
    cells : Cells
        The partition of all rows.

    Returns
    -------
    ndarray of shape (n_samples,), bool, or None
        None with several classes, whose biases are taken as they are, and for mean losses.
    """
    if cells.classes.size > 2 or compiled.B.nnz or not len(compiled):
        return None
    everyone = np.asarray(cells.in_objective[cells.codes])
    towards_one = (compiled.A[:, 1::2] - compiled.A[:, 0::2]).tocoo()
    at_stake = towards_one.data != 0.0
    labels, signs = cells.labels[towards_one.col[at_stake]], np.sign(towards_one.data[at_stake])
    asked = 1 if (signs < 0).all() else 0
    if not labels.size or (labels != asked).any() or (signs != 1 - 2 * asked).any():
        return everyone
    mass = [cells.weight[cells.labelled & (cells.labels == k)].sum() for k in (0, 1)]
    if mass[asked] >= mass[1 - asked]:
        return everyone
    other = cells.in_objective & (cells.labels == 1 - asked)
    return np.asarray(other[cells.codes])


@dataclass(frozen=True)
class FoldScores:
    """Scores that the boosters of the folds give rows, out of fold and in training.

    Parameters
    ----------
    held_out : tuple of ndarray
        Positions of the rows that some booster has not seen, and their scores.
    training : sequence of tuple of ndarray
        Positions of the training rows of each booster, and their scores.
    optimism : float
        Share of the difference between training and held-out rates that is left in a model of
        all rows.
    """

    held_out: tuple[Codes, Array]
    training: Sequence[tuple[Codes, Array]]
    optimism: float


def match_positive_rate(
    scores: FoldScores, shift: Float, margin: Array, inside: Bool, weight: Float | None
) -> Float:
    """Shift under which a model of all rows decides as the boosters of the folds do at theirs.

    Parameters
    ----------
    scores : FoldScores
        Scores of these boosters.
    shift : ndarray of shape (1,)
        Their shift.
    margin : ndarray of shape (n_samples,)
        Scores of all rows under the model.
    inside : ndarray of shape (n_samples,), bool
        The rows to go by, from :func:`rows_to_match`.
    weight : ndarray of shape (n_samples,) or None
        Weights of all rows.

    Returns
    -------
    ndarray of shape (1,)
    """
    weight = inside.astype(np.float64) if weight is None else np.where(inside, weight, 0.0)

    def positive_rate(rows: Codes, scores: Array) -> float:
        return float(np.average(scores + shift[0] > 0, weights=weight[rows]))

    if not all(weight[rows].any() for rows, _ in (scores.held_out, *scores.training)):
        return shift  # folds of groups
    held_out = positive_rate(*scores.held_out)
    if not 0.0 < held_out < 1.0:  # alike at many thresholds
        return shift
    training = np.mean([positive_rate(*part) for part in scores.training])
    wanted = held_out + scores.optimism * (float(training) - held_out)
    return shift_for_share(margin[inside], wanted, weight[inside])
