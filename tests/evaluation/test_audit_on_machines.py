"""An audit by rows on several machines is that of all rows."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from counted_data import Data, by
from dealt_rows import measure_deals, take_rows

import gbm_constrained as gc
from gbm_constrained.evaluation.audit import bind_audited, tabulate_decisions
from gbm_constrained.statistics.sampled_intervals import ScoredDecisions

N = 200
RULES = [
    gc.fnr() <= 0.1,
    by(gc.selection_rate(), "region") <= 0.05,
    gc.precision() >= 0.7,
    by(gc.log_loss()) <= 0.2,
]


class Decided:
    """A classifier with given decisions and probabilities of its rows."""

    def __init__(self, decided, loss, y):
        self.classes_ = np.arange(2)
        self.decided = decided
        right = np.exp(-loss)
        second = np.where(y == 1, right, 1.0 - right)
        self.probability = np.column_stack([1.0 - second, second])

    def predict(self, X):
        return self.decided

    def predict_proba(self, X):
        return self.probability


@pytest.mark.parametrize("weighted", [False, True])
def test_tables_are_those_of_the_public_audit(weighted):
    data = Data(11, weighted=weighted)
    if weighted:
        data.weight = np.ceil(16.0 * data.weight) / 16.0
    loss = np.random.default_rng(11).uniform(0.01, 3.0, N)
    other = 1 - data.decided
    tables = []

    def measure(at, communicator):
        cells, compiled = bind_audited(RULES, take_rows(data, at, communicator))
        scored = {
            "Decided": ScoredDecisions(data.decided[at], loss[at]),
            "other": ScoredDecisions(other[at], loss[at]),
        }
        found = tabulate_decisions(cells, compiled, scored)
        tables.append(found)
        frames = (found.frame, found.groups, found.models)
        numbers = [frame.select_dtypes("number").to_numpy(np.float64) for frame in frames]
        return [*numbers, found.n_rows, found.accuracy]

    measure_deals(measure, N, group=data.sex)
    models = [Decided(decided, loss, data.y) for decided in (data.decided, other)]
    given = {"sex": data.sex, "region": data.region}
    expected = gc.audit(
        models[0], np.zeros((N, 1)), data.y, RULES, sensitive_features=given,
        sample_weight=data.weight, others={"other": models[1]},
    )  # fmt: skip
    assert expected.frame["verdict"].nunique() > 1
    for found in tables:
        assert (found.n_rows, found.weighted) == (N, weighted)
        for name in ("frame", "groups", "models"):
            pd.testing.assert_frame_equal(
                getattr(found, name), getattr(expected, name), rtol=1e-9, atol=1e-9
            )
