"""The boosters that benchmarks compare, by library: the plain ones, and ours."""

from __future__ import annotations

from typing import Any

from lightgbm import LGBMClassifier, LGBMRegressor
from xgboost import XGBClassifier, XGBRegressor

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLGBMRegressor,
    ConstrainedXGBClassifier,
    ConstrainedXGBRegressor,
)

LIBRARIES = ("xgboost", "lightgbm")
PLAIN = {"xgboost": XGBClassifier, "lightgbm": LGBMClassifier}
CONSTRAINED = {"xgboost": ConstrainedXGBClassifier, "lightgbm": ConstrainedLGBMClassifier}
PLAIN_REGRESSORS = {"xgboost": XGBRegressor, "lightgbm": LGBMRegressor}
CONSTRAINED_REGRESSORS = {"xgboost": ConstrainedXGBRegressor, "lightgbm": ConstrainedLGBMRegressor}
QUIET: dict[str, dict[str, Any]] = {
    "xgboost": {"verbosity": 0, "enable_categorical": True},
    "lightgbm": {"verbose": -1},
}


def make(library: str, constraints: Any, **parameters: Any) -> Any:
    """Make a classifier under constraints."""
    return CONSTRAINED[library](constraints=constraints, **{**QUIET[library], **parameters})


def make_plain(library: str, **parameters: Any) -> Any:
    """Make a classifier of the library itself."""
    return PLAIN[library](**{**QUIET[library], **parameters})
