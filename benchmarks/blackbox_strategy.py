"""An evolution strategy over the weights of trees, for `benchmarks/blackbox.py`."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import lightgbm as lgb
import numpy as np
from blackbox_data import Part, Split

from gbm_constrained.scorers.lightgbm.models import LGBMTreeWeights
from gbm_constrained.solvers.black_box import LinearSpace, find_shift

N_GENERATIONS = 60
N_CHILDREN = 40  # 2,400 calls in all.
N_PARENTS = 10
FIRST_STEP = 0.3  # In units of perturbations that change scores by their standard deviation.
LAST_STEP = 0.03


def minimize_by_strategy(
    loss: Callable[..., float], split: Split, trees: dict[str, Any], seed: int
) -> dict[str, float]:
    """Minimise a loss from the best threshold, by the mean of the best children.

    The steps shrink from generation to generation, and the best child of all is returned.
    """
    model = lgb.LGBMClassifier(**trees).fit(*split.training[:2])
    weights = LGBMTreeWeights(model)

    def columns(part: Part) -> Any:
        groups = part.group.to_numpy()
        beside = np.column_stack([groups == 0, groups == 1, np.ones(groups.size)])
        return weights.score_columns(part.X, beside.astype(np.float32))

    space = LinearSpace(columns(split.training), columns(split.validation))
    test = LinearSpace(*[columns(split.test)] * 2)

    def value(part: Part, scores: Any) -> float:
        takes_groups = loss.__code__.co_argcount > 2
        return loss(part.y, scores, *([part.group.to_numpy()] if takes_groups else []))

    centre = np.concatenate([weights.start, np.zeros(3)])
    scores = space.validation_scores(centre)
    centre[-1], best_value = find_shift(lambda s: value(split.validation, s), scores, 1000)
    best, random = centre, np.random.RandomState(seed)
    unit = space.perturbation_scale(centre)
    for step in np.geomspace(FIRST_STEP, LAST_STEP, N_GENERATIONS):
        children = centre + unit * step * random.standard_normal((N_CHILDREN, centre.size))
        values = [value(split.validation, space.validation_scores(child)) for child in children]
        order = np.argsort(values, kind="stable")
        centre = children[order[:N_PARENTS]].mean(axis=0)
        if values[order[0]] < best_value:
            best, best_value = children[order[0]], values[order[0]]
    return {
        "strategy": value(split.test, test.validation_scores(best)),
        "promised": best_value,
    }
