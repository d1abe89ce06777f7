r"""Prices of missing a class, by which a rule is improved on the rows that it is counted on.

A linear loss has one plug-in rule, that of its own costs, which is the best one where the
probabilities are right. Where they are not, other costs may decide better. With a price s on
missing class j, which is added to the cost of all other decisions for rows of this class, a row
with expected costs :math:`e_k(x)` is decided as j from

.. math:: s_j(x) = \frac{e_j(x) - \min_{k \ne j} e_k(x)}{P(y = j \mid x)}

on, and as before below. One sort of the rows therefore finds the best price of a class exactly. Of
two classes that is the best threshold. Of several, the prices of the classes are found in turn.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.reductions.plug_in import PlugIn

MAX_PASSES = 3  # Over the classes: later ones gain less than what other rows would lose.
MIN_GAIN = 1e-9  # Of the loss of all rows, below which it is rounding.


def improve_rule(oracle: PlugIn, costs: Float, cost: Float) -> Float:
    """Lower the cost of a rule, counted by the labels of the oracle's rows.

    Parameters
    ----------
    oracle : PlugIn
        The oracle.
    costs : ndarray of shape (n_joint_cells, n_classes)
        The rule.
    cost : ndarray of shape (n_functionals,)
        Cost of each functional.

    Returns
    -------
    ndarray of shape (n_joint_cells, n_classes)
        A rule that costs no more; `costs` itself where no price of one class lowers the cost.
    """
    of_rows = oracle.costs_of_rows(cost)
    for _ in range(MAX_PASSES):
        before = costs
        for j in range(oracle.joint.n_classes):
            costs = _price_class(oracle, costs, of_rows, j)
        if costs is before:
            break
    return costs


def _price_class(oracle: PlugIn, costs: Float, of_rows: Float, j: int) -> Float:
    """Find the best price of missing a class, and add it to the costs."""
    is_class = oracle.joint.labels == j
    expected = oracle.probabilities @ costs
    own = expected[:, j].copy()
    expected[:, j] = np.inf
    other = expected.argmin(axis=1)
    every = np.arange(len(other))
    probability = oracle.probabilities[:, is_class].sum(axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        turn = np.nan_to_num((own - expected[every, other]) / probability, nan=0.0)
    order = np.argsort(turn, kind="stable")
    turn, gain = turn[order], (of_rows[every, other] - of_rows[:, j])[order]
    total = np.append(0.0, gain.cumsum())  # Gain of deciding so many rows as the class.
    now = int(np.searchsorted(turn, 0.0, side="right"))
    least = _least_price(costs[is_class], j)
    ends = np.concatenate([[turn[0] - 1.0], turn, [turn[-1] + 1.0]])
    low, high = np.maximum(ends[:-1], least), ends[1:]
    is_possible = np.isfinite(low) & np.isfinite(high) & (low < high)
    best = int(np.where(is_possible, total, -np.inf).argmax())
    if not total[best] > total[now] + MIN_GAIN * np.abs(of_rows).sum() or not is_possible[best]:
        return costs
    priced = costs.copy()
    priced[np.ix_(is_class, np.arange(costs.shape[1]) != j)] += (low[best] + high[best]) / 2
    return np.asarray(priced / np.abs(priced).max())


def _least_price(costs: Float, j: int) -> float:
    """Find the price from which on it costs something to miss rows of a class."""
    others = np.delete(costs, j, axis=1) - costs[:, [j]]
    return -float(others.min(initial=np.inf))
