r"""M2FGB (Pereira, Valdrighi and Raimundo, FAccT 2025), our reimplementation from its paper.

.. math:: \min_F \max_{\mu \in \Delta} (1 - \lambda) L(F) + \lambda \sum_g \mu_g L_g(F)

L is the mean cross-entropy of all rows. For equal true positive rates, :math:`L_g` is that of the
positive rows of group g. In each round the dual variables go up by the losses of the groups and
are projected to the simplex, and a tree is grown on the gradient at them. The paper has no bound:
weight and dual step are searched, within the limits below.
"""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from lightgbm import LGBMRegressor
from scipy.special import expit

from .rules import Rule, merit
from .split import Fitted, Split

WEIGHTS = (0.01, 0.03, 0.1, 0.2, 0.35, 0.5, 0.65, 0.8, 0.9, 0.97)
STEPS = (0.01, 0.1)
SETTINGS = ((0.0, STEPS[0]), *product(WEIGHTS, STEPS))  # Weight and step; the plain booster first.


def project_to_simplex(point: Any) -> Any:
    """Find the nearest point whose coordinates are at least zero and sum to one."""
    descending = np.sort(point)[::-1]
    excess = (np.cumsum(descending) - 1.0) / np.arange(1, point.size + 1)
    return np.maximum(point - excess[descending > excess][-1], 0.0)


class MinMaxObjective:
    """Gradient and Hessian of the Lagrangian, whose dual variables move in each round.

    Parameters
    ----------
    y, groups : ndarray of int
        Labels 0 and 1, and groups from 0 on.
    weight : float
        That of the largest loss of a group, from 0 to 1.
    step : float
        The dual step.
    """

    def __init__(self, y: Any, groups: Any, weight: float, step: float) -> None:
        self._weight, self._step = weight, step
        size = np.bincount(groups[y == 1], minlength=groups.max() + 1)
        # A row of this matrix averages the losses of the positive rows of a group.
        self._of_row = np.where(y == 1, groups, -1)
        self._size = np.maximum(size, 1)
        self.dual = project_to_simplex(np.where(size > 0, 1.0 / size.size, -1.0))

    def __call__(self, y: Any, score: Any) -> tuple[Any, Any]:
        loss = np.logaddexp(0.0, np.where(y == 1, -score, score))
        inside = self._of_row >= 0
        sums = np.bincount(self._of_row[inside], loss[inside], self._size.size)
        self.dual = project_to_simplex(self.dual + self._step * sums / self._size)
        of_group = np.where(inside, (self.dual / self._size)[self._of_row], 0.0)
        of_rows = 1.0 - self._weight + self._weight * y.size * of_group
        p = expit(score)
        return of_rows * (p - y), of_rows * np.maximum(p * (1.0 - p), 1e-16)


class M2FGB:
    """For each bound: the best setting on the validation rows, trained again on all rows.

    Of the settings that meet the bound there the one of fewest errors is taken, else the one that
    is nearest to it. They are trained without the validation rows once for all bounds.
    """

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        X, _, _ = split.part(split.calibration)
        self._split, self._booster = split, booster
        self._found = [decide_by(split, booster, s, ~split.calibration)(X) for s in SETTINGS]

    def fit(self, rule: Rule, asked: float) -> Fitted:
        _, y, groups = self._split.part(self._split.calibration)
        (_, _, at), setting = min(
            (merit(rule, asked, y, decisions, groups), setting)
            for setting, decisions in zip(SETTINGS, self._found, strict=True)
        )
        decide = decide_by(self._split, self._booster, setting)
        return Fitted(lambda X, groups: decide(X), at)


class EachSetting:
    """M2FGB in each of its settings, whose position is what is asked; no rows are kept."""

    def __init__(self, split: Split, booster: dict[str, Any], seed: int) -> None:
        self._split, self._booster = split, booster

    def fit(self, rule: Rule, asked: float) -> Fitted:
        decide = decide_by(self._split, self._booster, SETTINGS[int(asked)])
        return Fitted(lambda X, groups: decide(X))


def decide_by(
    split: Split, booster: dict[str, Any], setting: tuple[float, float], rows: Any = slice(None)
) -> Callable[[Any], Any]:
    """Train on some of the rows, and return the decisions of that model."""
    X, y, groups = split.part(rows)
    start = float(np.log(np.mean(y) / np.mean(1 - y)))  # LightGBM's own start
    model = LGBMRegressor(
        objective=MinMaxObjective(y, groups, *setting), n_jobs=1, random_state=0, verbose=-1,
        **booster,
    )  # fmt: skip
    model.fit(X, y, init_score=np.full(y.size, start))
    return lambda X: (model.predict(X) + start > 0.0).astype(int)
