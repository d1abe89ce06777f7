"""The table of rates: each prints as it is written, and has the value that counting gives."""

from __future__ import annotations

import inspect
import sys
from types import SimpleNamespace

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained.constraints import rates

rng = np.random.default_rng(0)
N = 400
PROBABILITY = rng.dirichlet(np.ones(3), N)
# Labels `y`, decisions `d` and those of another model `old`, all of classes 0, 1 and 2; the
# positive class is 2.
ROWS = SimpleNamespace(
    y=rng.integers(0, 3, N),
    d=PROBABILITY.argmax(axis=1),
    old=rng.integers(0, 3, N),
    sex=rng.choice(["F", "M"], N),
    weight=rng.gamma(2.0, size=N),
)
ROWS.loss = -np.log(PROBABILITY[np.arange(N), ROWS.y])
OLD = ROWS.old
MASK = rng.random(N) < 0.5
ON_MASK = f"[mask of {MASK.sum()} rows]"


def mean(event, rows=True):
    """Weighted mean over some rows."""
    return np.average(event, weights=ROWS.weight * rows)


# Text of a rate: the rate, and its value by counting.
RATES = {
    "error_rate": (gc.error_rate(), lambda r: mean(r.d != r.y)),
    "error_rate[y=1]": (gc.error_rate(on=gc.label(1)), lambda r: mean(r.d != r.y, r.y == 1)),
    "error_rate[sex=F]": (
        gc.error_rate(on={"sex": "F"}),
        lambda r: mean(r.d != r.y, r.sex == "F"),
    ),
    f"error_rate{ON_MASK}": (gc.error_rate(on=MASK), lambda r: mean(r.d != r.y, MASK)),
    "accuracy": (gc.accuracy(), lambda r: mean(r.d == r.y)),
    "selection_rate": (gc.selection_rate(), lambda r: mean(r.d == 2)),
    "selection_rate(1)": (gc.selection_rate(1), lambda r: mean(r.d == 1)),
    "tpr": (gc.tpr(), lambda r: mean(r.d == 2, r.y == 2)),
    "tpr(0)": (gc.tpr(0), lambda r: mean(r.d == 0, r.y == 0)),
    "recall": (gc.recall(), lambda r: mean(r.d == 2, r.y == 2)),
    "recall(0)": (gc.recall(0), lambda r: mean(r.d == 0, r.y == 0)),
    "fnr": (gc.fnr(), lambda r: mean(r.d != 2, r.y == 2)),
    f"fnr{ON_MASK}": (gc.fnr(on=MASK), lambda r: mean(r.d != 2, (r.y == 2) & MASK)),
    "fnr(1)": (gc.fnr(1), lambda r: mean(r.d != 1, r.y == 1)),
    "fpr": (gc.fpr(), lambda r: mean(r.d == 2, r.y != 2)),
    f"fpr{ON_MASK}": (gc.fpr(on=MASK), lambda r: mean(r.d == 2, (r.y != 2) & MASK)),
    "fpr(1)": (gc.fpr(1), lambda r: mean(r.d == 1, r.y != 1)),
    "tnr": (gc.tnr(), lambda r: mean(r.d != 2, r.y != 2)),
    "tnr(0)": (gc.tnr(0), lambda r: mean(r.d != 0, r.y != 0)),
    "class_error(1)": (gc.class_error(1), lambda r: mean(r.d != 1, r.y == 1)),
    "class_error(0)": (gc.class_error(np.int64(0)), lambda r: mean(r.d != 0, r.y == 0)),
    f"class_error(1){ON_MASK}": (
        gc.class_error(1, on=MASK),
        lambda r: mean(r.d != 1, (r.y == 1) & MASK),
    ),
    "confusion(0, 2)": (gc.confusion(0, 2), lambda r: mean(r.d == 2, r.y == 0)),
    "confusion(0, 2)/all": (
        gc.confusion(0, 2, normalize="all"),
        lambda r: mean((r.y == 0) & (r.d == 2)),
    ),
    "confusion(0, 2)/pred": (
        gc.confusion(0, 2, normalize="pred"),
        lambda r: mean(r.y == 0, r.d == 2),
    ),
    "precision": (gc.precision(), lambda r: mean(r.y == 2, r.d == 2)),
    "precision(1)[sex=F]": (
        gc.precision(1, on={"sex": "F"}),
        lambda r: mean(r.y == 1, (r.d == 1) & (r.sex == "F")),
    ),
    "f1": (
        gc.f1(),
        lambda r: 2 * mean((r.y == 2) & (r.d == 2)) / (mean(r.y == 2) + mean(r.d == 2)),
    ),
    "log_loss": (gc.log_loss(), lambda r: mean(r.loss)),
    "log_loss[y=1]": (gc.log_loss(on=gc.label(1)), lambda r: mean(r.loss, r.y == 1)),
    f"log_loss{ON_MASK}": (gc.log_loss(on=MASK), lambda r: mean(r.loss, MASK)),
    "churn": (gc.churn(to=OLD), lambda r: mean(r.d != r.old)),
    "wins": (gc.wins(over=OLD), lambda r: mean((r.d == r.y) & (r.old != r.y))),
    "losses": (gc.losses(to=OLD), lambda r: mean((r.d != r.y) & (r.old == r.y))),
}
# Comparisons of rates (test_expressions, test_gaps), and values of scores and of predicted numbers
# (test_pair_rates, test_calibration, test_row_means, test_costs).
ELSEWHERE = {
    "auc", "calibration_error", "cost", "coverage", "cross_auc", "each", "gap", "gap_norm",
    "mean_loss", "mean_prediction", "mean_rank", "mean_residual", "ratio", "share_above",
}  # fmt: skip
EVERY_RATE = pytest.mark.parametrize("text", RATES)


class Fixed:
    """A classifier whose decisions are given."""

    classes_ = np.arange(3)

    def predict(self, X):
        return ROWS.d

    def predict_proba(self, X):
        return PROBABILITY


def test_the_table_has_every_rate():
    written = inspect.getsource(sys.modules[__name__])
    missing = [name for name in rates.__all__ if f"gc.{name}(" not in written]
    assert set(missing) == ELSEWHERE


@EVERY_RATE
def test_the_value_of_a_rate_is_that_of_counting(text):
    rate, count = RATES[text]
    report = gc.audit(
        Fixed(), np.zeros((N, 1)), ROWS.y, rate <= 0.9, positive=2,
        sensitive_features={"sex": ROWS.sex}, sample_weight=ROWS.weight,
    )  # fmt: skip
    assert report.frame.loc[0, "value"] == pytest.approx(count(ROWS), rel=1e-12)


@EVERY_RATE
def test_a_rate_and_its_bound_print_as_they_are_written(text):
    rate = RATES[text][0]
    assert str(rate) == text
    assert str(rate <= 0.05) == f"{text} <= 0.05"


def test_all_rates_are_different_and_hashable():
    """A hash is by content, so that rates of other names differ too."""
    every = [rate for rate, _ in RATES.values()]
    assert len(set(every)) == len(every)
    assert len({rate <= 0.5 for rate in every}) == len(every)
