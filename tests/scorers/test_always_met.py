"""A constraint that every model meets changes nothing beside constraints that bind."""

import numpy as np
import pandas as pd
import pytest
from vacuous_pairs import weights

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

EVEN = np.arange(1600) % 2 == 0
MORE = {
    "in cells that there are": lambda n: [gc.selection_rate(1) <= 1.0, gc.precision(1) >= 0.0],
    "in cells of their own": lambda n: [
        gc.error_rate(on=EVEN[:n]) <= 1.0,
        gc.gap(gc.error_rate(), by="h") <= 1.0,
        gc.ratio(gc.class_error(1), by="h") >= 0.0,
    ],
}


def beside(library, X, y, rules, more=(), n_estimators=8, **options):
    """Fit constraints with others before and after them."""
    sources = {"xgboost": gc.ConstrainedXGBClassifier, "lightgbm": gc.ConstrainedLGBMClassifier}
    quiet = {"verbose": -1} if library == "lightgbm" else {}
    model = sources[library](
        constraints=[*more[:1], *rules, *more[1:]], n_estimators=n_estimators, n_jobs=1,
        learning_rate=0.3, **quiet, **options,
    )  # fmt: skip
    given = {"g": np.arange(y.size) // 3 % 3, "h": np.arange(y.size) // 5 % 2}
    return model.fit(X, y, sample_weight=weights(y.size), sensitive_features=given)


# The search for the biases of several classes is long: new cells alone, and half of the rounds.
@pytest.mark.parametrize(
    ("library", "measure_on", "kind", "cells", "n_estimators"),
    [
        ("xgboost", gc.CrossFit(2), "binary", list(MORE), 8),
        ("lightgbm", "train", "binary", list(MORE), 8),
        ("lightgbm", "holdout", "binary", list(MORE), 8),
        ("xgboost", "train", "several", ["in cells of their own"], 4),
        ("lightgbm", "holdout", "several", ["in cells of their own"], 4),
    ],
)
def test_constraints_that_are_always_met_change_no_bit_of_those_that_bind(
    library, measure_on, kind, cells, n_estimators, request
):
    X, y = request.getfixturevalue(kind)
    options = {"measure_on": measure_on, "n_estimators": n_estimators}
    rules = [
        gc.class_error(1) <= 0.1,
        gc.gap(gc.selection_rate(1), by="g") <= 0.02,
        gc.gap(gc.error_rate(), by="g") <= 0.05,
    ]
    alone = beside(library, X, y, rules, **options)
    # Multipliers, or a threshold alone where these cost more.
    assert alone.history_.filter(like="multiplier").to_numpy().any() or alone.shift_.any()
    for name in cells:
        more = MORE[name](y.size)
        model = beside(library, X, y, rules, more, **options)
        np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
        report = model.constraint_report_
        assert report["constraint"].tolist() == list(map(str, model.constraints))
        assert report["train"].notna().all()
        always = [rule.is_always_met for rule in model.constraints]
        assert report.loc[always, "train_satisfied"].all()
        assert not report.loc[always, "multiplier"].any()
        pd.testing.assert_series_equal(
            model.multipliers_[alone.multipliers_.index], alone.multipliers_
        )
        assert len(model.multipliers_) > len(alone.multipliers_)


@pytest.mark.parametrize(
    "options",
    [
        {"iterate": "best"},
        {"iterate": "randomized"},
        {"guarantee": gc.Expected(fraction=0.4)},
        {"guarantee": gc.HighProbability(fraction=0.4)},
    ],
)
def test_constraints_that_are_always_met_change_no_choice(options, binary):
    X, y = binary
    alone = beside("lightgbm", X, y, [gc.fpr() <= 0.2], **options)
    for make_more in MORE.values():
        model = beside("lightgbm", X, y, [gc.fpr() <= 0.2], make_more(y.size), **options)
        np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))
        own = model.constraint_report_[model.constraint_report_["constraint"] == "fpr <= 0.2"]
        pd.testing.assert_frame_equal(
            own.reset_index(drop=True), alone.constraint_report_, check_dtype=False
        )


def test_multipliers_of_constraints_that_are_always_met_are_warm_starts_of_nothing(binary):
    X, y = binary
    more = MORE["in cells of their own"](y.size)
    first = beside("lightgbm", X, y, [gc.fpr() <= 0.02], more, measure_on="train")
    start = first.multipliers_.to_numpy() + 0.1
    options = {"measure_on": "train", "solver": AutoSolver(initial_multipliers=start)}
    model = beside("lightgbm", X, y, [gc.fpr() <= 0.02], more, **options)
    own = {
        "measure_on": "train",
        "solver": AutoSolver(initial_multipliers=start[first.multipliers_.index == "fpr <= 0.02"]),
    }
    alone = beside("lightgbm", X, y, [gc.fpr() <= 0.02], **own)
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


def test_which_constraints_are_always_met():
    always = [
        gc.fpr() <= 1.0,
        gc.recall() >= 0.0,
        gc.precision() >= 0.0,
        gc.precision() <= 1.0,
        gc.f1() <= 1.0,
        gc.gap(gc.fpr(), by="g") <= 1.0,
        gc.ratio(gc.fpr(), by="g") >= 0.0,
        gc.each(gc.fpr(), by="g") <= 1.0,
        gc.fpr() + gc.fnr() <= 2.0,
        gc.fpr() - gc.fnr() >= -1.0,
    ]
    may_fail = [
        gc.fpr() <= 0.999,
        gc.fpr() >= 1.0,
        gc.recall() <= 0.0,
        gc.precision() >= 1.0,
        gc.fpr() - gc.fnr() <= 0.0,
        gc.ratio(gc.fpr(), by="g") >= 1.0,
        gc.gap(gc.fpr(), by="g") <= 0.0,
        gc.log_loss() <= 50.0,
    ]
    assert all(rule.is_always_met for rule in always)
    assert not any(rule.is_always_met for rule in may_fail)
