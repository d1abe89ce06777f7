"""Groups as they stand in a file: many, and some of a few rows, do not decide for all others."""

from __future__ import annotations

import itertools
import os
import warnings
from pathlib import Path

import numpy as np
import pandas as pd
import pytest
from sklearn.metrics import roc_auc_score

import gbm_constrained as gc
from tests.helpers import CLASSIFIERS, EITHER, PARENTS

QUIET = {"lightgbm": {"verbose": -1}, "xgboost": {"learning_rate": 0.1}}
ACS = {
    "gap": (lambda: gc.gap(gc.tpr(), by="race") <= 0.03, "race"),
    "ratio": (lambda: gc.ratio(gc.selection_rate(), by="race") >= 0.8, "race"),
    "crossed": (lambda: gc.gap(gc.fpr(), by=["race", "sex"]) <= 0.02, ["race", "sex"]),
}

# What the other library shows as well.
REPEATED = [("xgboost", "crossed"), ("xgboost", "ratio"), ("lightgbm", "gap")]


def read(name):
    """Read a table that is not committed, or skip the test."""
    path = Path(os.environ.get("GBM_CONSTRAINED_DATA", "")) / f"{name}.parquet"
    if not path.is_file():
        pytest.skip(f"{name}.parquet is not committed and was not found.")
    return pd.read_parquet(path)


def fit_both(library, X, y, groups, constraint, rows, **options):
    """Fit some rows without and with a constraint, and decide the others by both."""
    given = {"n_estimators": 60, "n_jobs": 1, "random_state": 0, **QUIET[library], **options}
    X_train, X_test = X.iloc[rows], X.drop(X.index[rows])
    plain = PARENTS[library](**given).fit(X_train, y[rows])
    model = CLASSIFIERS[library](constraints=[constraint], **given)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(X_train, y[rows], sensitive_features=groups.iloc[rows])
    labels = np.delete(y, rows)
    return model, labels, plain.predict(X_test), np.asarray(model.predict(X_test))


@pytest.mark.parametrize(
    ("library", "name"),
    [
        pytest.param(*case, marks=[pytest.mark.slow] * (case in REPEATED))
        for case in itertools.product(CLASSIFIERS, ACS)
    ],
)
def test_nine_races_of_the_census(library, name):
    """The smallest race has .06 % of the rows; accuracy was .64 and recall .00 for plain .80."""
    table = read("acs_income")
    y = table["PINCP"].to_numpy().astype(int)
    groups = pd.DataFrame({"race": table["RAC1P"], "sex": table["SEX"]})
    X = table.drop(columns=["PINCP", "RAC1P", "SEX"]).astype(float)
    constraint, by = ACS[name]
    key = groups[by].astype(str).agg(" ".join, axis=1) if isinstance(by, list) else groups[by]
    found = []
    for seed in range(3):
        rows = np.random.default_rng(seed).permutation(len(table))[:8000]
        model, labels, plain, decided = fit_both(library, X, y, groups, constraint(), rows)
        assert decided[labels == 1].mean() > 0.5
        costs = model.cost_report_["error"]
        assert costs["returned"] <= costs["plain"] + 0.04
        base = {"gap": labels == 1, "ratio": labels >= 0, "crossed": labels == 0}[name]
        of_row = np.delete(key.to_numpy(), rows)
        large = pd.Series(of_row[base]).value_counts().index[:2]
        gaps = [
            abs(np.subtract(*(one[base & (of_row == group)].mean() for group in large)))
            for one in (plain, decided)
        ]
        found.append([np.mean(plain == labels), np.mean(decided == labels), *gaps])
    accuracy, kept, before, after = np.mean(found, axis=0)
    assert kept > accuracy - 0.05
    # The two largest groups come nearer, beyond the standard error of their difference.
    assert after < max(before, 0.03)


@EITHER
def test_races_of_compas(library):
    """Recall was .02 after 64 to 96 plain fits."""
    table = read("compas")
    rows = np.random.default_rng(0).permutation(len(table))[:5000]
    y, groups = table["two_year_recid"].to_numpy(), table[["race"]]
    X = table[["age", "priors_count", "juv_fel_count", "juv_misd_count", "juv_other_count"]]
    X = X.assign(sex=(table["sex"] == "Male").astype(int)).astype(float)
    constraint = gc.gap(gc.tpr(), by="race") <= 0.15
    _, labels, plain, decided = fit_both(library, X, y, groups, constraint, rows)
    assert decided[labels == 1].mean() > 0.4
    assert np.mean(decided == labels) > np.mean(plain == labels) - 0.03


@EITHER
def test_a_gap_of_many_groups_is_no_larger_than_without_the_constraint(library):
    """Adult by race gave 2.8 points away for a larger gap."""
    table = read("adult").drop(columns="split")
    rows = np.random.default_rng(0).permutation(len(table))[:12000]
    y = (table["income"].astype(str).str.contains(">50K")).to_numpy().astype(int)
    groups = table[["race"]]
    X = table.drop(columns=["income", "race", "sex"])
    X = X.apply(
        lambda column: column if column.dtype.kind in "if" else column.astype("category").cat.codes
    )
    constraint = gc.gap(gc.tpr(), by="race") <= 0.05
    _, labels, plain, decided = fit_both(library, X.astype(float), y, groups, constraint, rows)
    race = np.delete(groups["race"].astype(str).to_numpy(), rows)

    def widest(decisions):
        positive = labels == 1
        rates = [decisions[positive & (race == g)].mean() for g in np.unique(race)]
        return np.ptp(rates)

    assert widest(decided) <= widest(plain) + 0.01
    assert np.mean(decided == labels) > np.mean(plain == labels) - 0.02


def draw(n=6000, sizes=(0.6, 0.3, 0.08, 0.015, 0.005), seed=0):
    """Rows of five groups, of which the two smallest have some ninety and thirty rows."""
    rng = np.random.default_rng(seed)
    group = rng.choice(len(sizes), n, p=sizes)
    X = pd.DataFrame(rng.normal(size=(n, 4)), columns=list("abcd"))
    X["a"] -= 0.4 * (group == 1)
    y = (X["a"] + 0.5 * X["b"] + rng.logistic(size=n) > 0.3).astype(int).to_numpy()
    return X, y, pd.DataFrame({"g": group})


@EITHER
def test_small_groups_are_held_at_any_price_where_that_is_asked_for(library):
    """The gap of all groups on held-out rows is smaller, at more errors."""
    X, y, groups = draw(seed=1)
    reports = {}
    for small in ("keep", "hold"):
        constraint = gc.gap(gc.tpr(), by="g", small_groups=small) <= 0.05
        model, *_ = fit_both(library, X, y, groups, constraint, np.arange(4500))
        reports[small] = model.cost_report_
        assert "small_groups='hold'" in str(constraint) or small == "keep"
    gaps = {small: report.iloc[1, 1] for small, report in reports.items()}
    errors = {small: report["error"]["returned"] for small, report in reports.items()}
    assert gaps["hold"] < gaps["keep"]
    assert errors["hold"] > errors["keep"]
    assert errors["keep"] < reports["keep"]["error"]["plain"] + 0.03


@EITHER
def test_a_fit_of_many_groups_grows_no_more_boosters_than_one_of_two(library):
    """One set of plain fold boosters and two with multipliers, whatever the number of groups.

    Two groups of XGBoost have one set less: the first under multipliers is the best one so far.
    """
    X, y, groups = draw()
    counts = []
    for by in ("g", "two"):
        states = []
        model = CLASSIFIERS[library](
            constraints=[gc.gap(gc.selection_rate(), by=by) <= 0.01], n_estimators=30, n_jobs=1,
            **QUIET[library],
        )  # fmt: skip
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            table = groups.assign(two=groups["g"].clip(upper=1))[[by]]
            model.fit(X, y, sensitive_features=table, constraint_callbacks=[states.append])
        counts.append(sum(s.phase == "measuring" and s.iteration == 0 for s in states))
    assert counts == [3, {"xgboost": 2, "lightgbm": 3}[library]]


@EITHER
def test_an_auc_of_each_group_that_is_nearly_met_costs_next_to_nothing(library):
    """It cost three points of AUC and thirty plain fits."""
    X, y, groups = draw(9000, sizes=(0.6, 0.4))
    y = np.where(np.random.default_rng(1).random(y.size) < 0.35, 1 - y, y)
    options = {"n_estimators": 40, "n_jobs": 1, **QUIET[library]}
    plain = PARENTS[library](**options).fit(X[:6000], y[:6000])
    own = plain.predict_proba(X[6000:])[:, 1]
    states = []
    first = groups["g"][6000:] == 0
    reached = min(roc_auc_score(y[6000:][of], own[of]) for of in (first, ~first))
    model = CLASSIFIERS[library](
        constraints=[gc.each(gc.auc(), by="g") >= round(reached + 0.005, 3)], **options
    )
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model.fit(
            X[:6000], y[:6000], sensitive_features=groups[:6000],
            constraint_callbacks=[states.append],
        )  # fmt: skip
    scores = model.predict_proba(X[6000:])[:, 1]
    assert roc_auc_score(y[6000:], scores) > roc_auc_score(y[6000:], own) - 0.01
    assert sum(s.phase == "measuring" and s.iteration == 0 for s in states) <= 4
