"""Guarantees of what comes first, beside constraints that follow as well as they can."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
from helpers import BOTH
from scipy import stats
from small_fits import make

import gbm_constrained as gc
from gbm_constrained.statistics.order_statistics import minimum_rows

BUDGET = gc.selection_rate() <= 0.1
RULES = [BUDGET, (gc.recall() >= 0.7).with_priority(2)]


def draw(n, seed=0):
    """Rows of two classes that overlap, a quarter of them of the second one, and a group."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    score = X[:, 0] + 0.7 * X[:, 1] * (X[:, 2] > 0) + 0.8 * rng.normal(size=n)
    group = np.where(X[:, 0] + rng.normal(size=n) > 0, "a", "b")
    return X, (score > 0.95).astype(int), {"g": group}


def fit_quietly(library, rules, rows, **options):
    X, y, groups = rows
    options = {"guarantee": gc.HighProbability(delta=0.1), "n_estimators": 20, **options}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return make(library, rules, **options).fit(X, y, sensitive_features=groups)


def best_recall(model, X, y, share):
    """Recall of the best threshold that selects a share of the rows."""
    order = np.argsort(-model.predict_proba(X)[:, 1], kind="stable")
    return y[order[: int(share * y.size)]].sum() / y.sum()


@BOTH
@pytest.mark.parametrize("guarantee", [gc.HighProbability(0.1), gc.Expected()], ids=repr)
def test_what_comes_first_is_guaranteed_and_what_follows_is_as_good_as_that_allows(
    library, guarantee
):
    """The threshold is that of the first constraint alone: the recall is out of reach."""
    model = fit_quietly(library, RULES, draw(2500), guarantee=guarantee)
    report, found = model.constraint_report_, model.feasibility_
    assert report["rows"].tolist() == ["certification"] * 2
    assert report["verdict"].tolist() == ["met", "cannot be met"]
    assert report["given_up_for"].tolist() == ["", str(BUDGET)]
    assert "Not certified" not in str(found)
    n, k = 500, round(500 * report["held_out"][0])
    if isinstance(guarantee, gc.HighProbability):
        assert found.p_value <= found.level == 0.1
        assert found.p_value == pytest.approx(stats.binom.cdf(k, n, 0.1))
        assert stats.binom.cdf(k + 1, n, 0.1) > 0.1  # one more row would be too many
    else:
        assert k <= int(0.1 * (n + 1)) - 1
    others, labels, _ = draw(20_000, 1)
    selected = model.predict(others).mean()
    assert 0.06 <= selected <= 0.1
    recall = model.predict(others)[labels == 1].mean()
    assert recall == pytest.approx(best_recall(model, others, labels, selected), abs=1e-3)


@BOTH
def test_a_sequence_of_thresholds_is_tested_by_what_comes_first(library):
    """Of the thresholds that pass, the one is taken that misses the recall least."""
    rules = [gc.gap(gc.fpr(), by="g") <= 0.2, gc.fpr() <= 0.2]
    later = [(gc.recall() >= 0.95).with_priority(2), (gc.accuracy() >= 0.99).with_priority(3)]
    rows = draw(3000)
    alone, model = (fit_quietly(library, given, rows) for given in (rules, [*rules, *later]))
    assert model.feasibility_.p_value <= 0.1
    assert (model.constraint_report_["verdict"][:2] == "met").all()
    others, labels, _ = draw(10_000, 1)
    recalls = [fitted.predict(others)[labels == 1].mean() for fitted in (alone, model)]
    assert recalls[1] > recalls[0] + 0.05
    assert model.predict(others)[labels == 0].mean() <= 0.2


@BOTH
def test_several_classes_and_what_cannot_be_certified_at_all(library):
    """Rows that could never certify a constraint are enough if it comes second."""
    X, y, groups = draw(2000)
    several = np.where((y == 0) & (X[:, 3] > 0.8), 2, y)
    strict = gc.class_error(1) <= 0.001
    rules = [gc.selection_rate(1) <= 0.2, strict.with_priority(2)]
    model = fit_quietly(library, rules, (X, several, groups), n_estimators=8)
    assert model.feasibility_.p_value <= 0.1
    assert model.constraint_report_["verdict"][0] == "met"
    assert minimum_rows(0.001, 0.1) > 2000
    with pytest.raises(ValueError, match="cannot be given for class_error"):
        fit_quietly(library, [strict], (X, several, groups), n_estimators=8)


@BOTH
def test_a_guarantee_that_is_not_given_names_what_comes_first(library):
    rules = [gc.error_rate() <= 0.08, (gc.recall() >= 0.99).with_priority(2)]
    model = fit_quietly(library, rules, draw(1200))
    found = model.feasibility_
    assert found.p_value > found.level
    assert rules[0] in found.conflict
    assert "Not certified" in str(found)
