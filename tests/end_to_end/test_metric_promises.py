"""A metric on rows that the trees have seen promises what new rows do not give."""

from __future__ import annotations

import numpy as np
import pytest
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.datasets import load_compas
from gbm_constrained.metrics import h_mean


def promise_and_test(measure_on, seed):
    """H-mean that a fit reports on the rows that it was measured on, and that of test rows."""
    data = load_compas(target="score_text")
    rest, test, y, y_test = train_test_split(
        data.data, data.target, test_size=0.3, random_state=seed
    )
    model = gc.ConstrainedLGBMClassifier(
        maximize=h_mean(), measure_on=measure_on, n_estimators=60, n_jobs=1, verbose=-1
    )
    model.fit(rest, y)
    report = model.metric_report_
    measured = "train" if measure_on == "train" else "held_out"
    return report.loc[report["is_returned"], measured].item(), model.score(test, y_test)


@pytest.mark.filterwarnings("ignore:measure_on='train' optimises:UserWarning")
def test_training_rows_promise_too_much_and_rows_out_of_fold_do_not():
    """Paper's section 8 counts confusion on training rows, which is not safe for boosted trees."""
    promised, reached = np.mean([promise_and_test("train", seed) for seed in range(3)], axis=0)
    assert promised - reached > 0.1
    promised, reached = np.mean([promise_and_test("crossfit", seed) for seed in range(3)], axis=0)
    assert abs(promised - reached) < 0.02  # twice the standard error of a mean over 3 x 2,165 rows
