"""Fixtures that several test files of training share."""

from __future__ import annotations

import lightgbm as lgb
import pytest
import xgboost as xgb
from metric_fits import Trainings


@pytest.fixture
def trainings(monkeypatch):
    found = Trainings()
    for library, name in ((xgb.sklearn, "train"), (lgb.sklearn, "train")):
        monkeypatch.setattr(library, name, found.wrap(getattr(library, name)))
    return found
