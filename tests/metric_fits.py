"""Small fits for a metric, and a count of the trainings of either library."""

from __future__ import annotations

import numpy as np
import pandas as pd
import xgboost as xgb
from helpers import CLASSIFIERS, Interruption

from gbm_constrained import CrossFit

N, ROUNDS, FOLDS = 600, 6, 3
RNG = np.random.default_rng(3)
X = RNG.normal(size=(N, 4))
SCORE = X[:, 0] + X[:, 1] * X[:, 2] + 0.7 * RNG.normal(size=N)
Y = np.digitize(SCORE, [0.0, 1.2])
GROUP = pd.Series(np.where(X[:, 3] + RNG.normal(size=N) > 0, "a", "b"), name="g")
OWN = {
    "xgboost": {"max_depth": 3, "subsample": 0.8},
    "lightgbm": {"num_leaves": 7, "subsample": 0.8, "subsample_freq": 1, "verbose": -1},
}


def make(library, **options):
    options = {
        "n_estimators": ROUNDS,
        "measure_on": CrossFit(FOLDS),
        "n_jobs": 1,
        **OWN[library],
        **options,
    }
    return CLASSIFIERS[library](**options)


def bytes_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return bytes(model.get_booster().save_raw("ubj"))
    return model.booster_.model_to_string(num_iteration=-1).encode()


def rounds_of(model):
    if isinstance(model, xgb.XGBClassifier):
        return model.get_booster().num_boosted_rounds()
    return model.booster_.current_iteration()


class Trainings:
    """Counts trainings of either library, and interrupts one of them."""

    def __init__(self):
        self.count, self.last = 0, None

    def interrupt_at(self, number):
        self.count, self.last = 0, number

    def wrap(self, fit):
        def counted(*args, **kwargs):
            self.count += 1
            if self.count == self.last:
                raise Interruption
            return fit(*args, **kwargs)

        return counted
