"""Maps of the scores of a booster that its own leaves carry."""

from __future__ import annotations

from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained.boosters import ubjson
from gbm_constrained.boosters.xgboost.merging import intercept_of, scale_leaves
from gbm_constrained.boosters.xgboost.model import shift_intercept
from gbm_constrained.decision.affine import Affine


def rescale(booster: xgb.Booster, affine: Affine) -> None:
    """Map the scores of a booster by its leaves, in place."""
    config, data = booster.save_config(), booster.save_raw("ubj")
    read: dict[str, Any] = ubjson.read(data)
    for tree in read["learner"]["gradient_booster"]["model"]["trees"]:
        scale_leaves(tree, np.float32(affine.scale))  # The arrays are views of the data.
    start = float(intercept_of(read)[0])
    booster.load_model(data)
    booster.load_config(config)
    shift_intercept(booster, np.array([affine.shift + (affine.scale - 1.0) * start]))
