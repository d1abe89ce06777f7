"""Rows and constraints that pair rates cannot be trained on: who says so, and what to do."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import BOTH, fit_linear
from small_fits import make

import gbm_constrained as gc

N = 300
GAP = gc.gap(gc.auc(), by="g") <= 0.2


def draw(seed=0):
    """Draw features, labels and three groups."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N, 3))
    return X, (X[:, 0] + rng.normal(size=N) > 0).astype(int), rng.integers(0, 3, N)


def fit(library, rules, *, X=None, y=None, g=None, **given):
    """Fit three rounds on drawn rows, or on others."""
    drawn = draw()
    X, y, g = (own if own is not None else of for own, of in zip((X, y, g), drawn, strict=True))
    model = make(library, rules, n_estimators=3, measure_on=gc.CrossFit(2))
    return model.fit(X, y, sensitive_features={"g": g}, **given)


def weights_without(inside):
    """Weights of one, and of zero where something holds."""
    return np.where(inside, 0.0, 1.0)


X, Y, G = draw()
REFUSED = {
    "mask of another length": (gc.auc(on=np.ones(5, bool)) >= 0.5, {}, "mask of 5 rows"),
    "mask of a side": (gc.auc(negatives=np.ones(5, bool)) >= 0.5, {}, "mask of 5 rows"),
    "unknown column": (
        gc.gap(gc.auc(), by="zzz") <= 0.1,
        {},
        r"gap\(auc, by='zzz'\) <= 0.1: column 'zzz' is neither in sensitive_features nor in X",
    ),
    "one group": (GAP, {"g": np.zeros(N)}, "of which 1 is left .*: at least 2 are needed"),
    "label that is not there": (
        gc.auc(label=7) >= 0.5,
        {},
        r"auc\(7\) >= 0.5: it names class 7, which is not in y: its classes are \[0, 1\]",
    ),
    "no weight on a side": (
        gc.auc() >= 0.5,
        {"sample_weight": weights_without(Y == 1)},
        "auc >= 0.5 is taken over rows whose total weight is zero .* positive sample_weight",
    ),
    "one side of a group without a row": (
        gc.auc(negatives={"g": 9}) >= 0.5,
        {},
        r"auc\[negatives g=9\] >= 0.5",
    ),
    "data set without labels": (
        gc.auc(on=gc.dataset("more")) >= 0.5,
        {"datasets": {"more": X[:50]}},
        r"auc\[more\] needs labels, .* give it as \(X, y\)",
    ),
    "data set that was not given": (
        gc.auc(on=gc.dataset("more")) >= 0.5,
        {},
        "data set 'more' was not given: pass it as fit",
    ),
}


@BOTH
@pytest.mark.parametrize("name", list(REFUSED))
def test_what_has_no_pairs_is_refused_before_training(library, name):
    rule, given, message = REFUSED[name]
    with pytest.raises((ValueError, TypeError), match=message):
        fit(library, [rule], constraint_callbacks=[lambda _: pytest.fail("trained")], **given)


@pytest.mark.parametrize(
    ("make_rule", "message"),
    [
        (lambda: gc.auc() >= 1.2, "an AUC of 80 per cent is written 0.8; got 1.2"),
        (lambda: GAP.expression <= 1.2, r"gap\(auc, by='g'\) must be a rate in \[0, 1\]"),
        (lambda: gc.auc() + gc.fpr() <= 0.5, "one is a pair rate"),
        (lambda: gc.cross_auc() >= 0.5, r"write gap\(cross_auc\(\), by=...\)"),
        (lambda: gc.cross_auc(group="both"), "group must be one of"),
    ],
)
def test_what_is_no_constraint_is_refused_where_it_is_written(make_rule, message):
    with pytest.raises((ValueError, TypeError), match=message):
        make_rule()


def test_linear_models_refuse_the_same():
    message = "it names class 7, which is not in y"
    with pytest.raises(ValueError, match=message):
        fit_linear(X, Y, gc.auc(label=7) >= 0.5)


WITHOUT_POSITIVES = np.where(G == 1, 0, Y)
LONE = np.where(np.arange(N) == np.flatnonzero((G == 2) & (Y == 1))[0], 3, G)


@BOTH
@pytest.mark.parametrize(
    ("given", "of_group"),
    [
        ({"y": WITHOUT_POSITIVES}, r"g=1 \(0\)"),
        ({"sample_weight": weights_without((G == 1) & (Y == 1))}, r"g=1 \(0\)"),
        ({"g": LONE}, r"g=3 \(0\)"),
    ],
    ids=["no positives", "no weight on positives", "one row"],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_groups_without_one_side_are_named_and_left_out(library, given, of_group):
    message = rf"gap\(auc, by='g'\) <= 0.2: .* {of_group}.* Groups without any such row are left"
    with pytest.warns(UserWarning, match=message):
        model = fit(library, [GAP], **given)
    left_out = "g=" + of_group[2]
    assert left_out not in set(model.group_report_["group"])
    assert model.constraint_report_[["train", "held_out", "low", "high"]].notna().all(axis=None)


@BOTH
def test_missing_groups_are_a_group_of_their_own(library):
    g = np.where(np.arange(N) < 90, np.nan, G.astype(float))
    rule = gc.gap(gc.auc(), by="g", min_group_size=1) <= 0.9
    model = fit(library, [rule], g=g)
    assert "g=missing" in set(model.group_report_["group"])


def test_scores_that_all_tie_are_missed_or_met_at_one_half():
    with pytest.warns(gc.MissedConstraintsWarning, match=r"auc >= 0.6: 0\.\d+"):
        model = fit("xgboost", [gc.auc() >= 0.6], X=np.zeros((N, 2)))
    assert model.constraint_report_["train"].tolist() == [0.5]
