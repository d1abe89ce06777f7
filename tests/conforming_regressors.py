"""Regressors as scikit-learn's estimator checks are given them, and the parents to compare with.

The checks find classes by name when they pickle, so that these live in a module.
"""

from __future__ import annotations

import lightgbm as lgb
import xgboost as xgb
from conforming import CONSTRAINED_OPTIONS, OPTIONS, WithGroups

from gbm_constrained import ConstrainedLGBMRegressor, ConstrainedXGBRegressor
from gbm_constrained.constraints.rates import gap, mean_loss, mean_prediction


class GroupedXGBRegressor(WithGroups, ConstrainedXGBRegressor):
    pass


class GroupedLGBMRegressor(WithGroups, ConstrainedLGBMRegressor):
    pass


OWN = {"xgboost": ConstrainedXGBRegressor, "lightgbm": ConstrainedLGBMRegressor}
GROUPED = {"xgboost": GroupedXGBRegressor, "lightgbm": GroupedLGBMRegressor}
PARENTS = {"xgboost": xgb.XGBRegressor, "lightgbm": lgb.LGBMRegressor}


def library_of_regressor(estimator):
    """Name of the library whose class an estimator is of."""
    return next(name for name, parent in PARENTS.items() if isinstance(estimator, parent))


def estimators():
    """Each regressor without rules, with a bounded loss, and with a gap of means."""
    made = []
    for library, own in OWN.items():
        more = {**OPTIONS[library], **CONSTRAINED_OPTIONS[library]}
        apart = gap(mean_prediction(), by="half", min_group_size=1)
        made += [
            own(constraints=[], **OPTIONS[library]),
            own(constraints=[mean_loss("squared") <= 0.5], **more),
            GROUPED[library](constraints=[apart <= 0.1], **more),
        ]
    return made
