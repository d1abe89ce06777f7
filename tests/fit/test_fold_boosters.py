"""Fold boosters: plain fits on the other folds, grown in step, and what they know of rates."""

from __future__ import annotations

import json

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, KINDS, PARENTS, margins_of
from measured_fits import OPTIONS, ROUNDS, TOLERANCE, draw_table, make, score
from scipy import sparse
from sklearn.utils import _safe_indexing

import gbm_constrained as gc


@pytest.fixture(scope="module")
def table():
    return draw_table()


def variant(name, X, n_classes):
    """A kind of input: features, and arguments of fit."""
    rng = np.random.default_rng(5)
    if name == "categories":
        kind = np.array(["a", "b", "c"])[(np.abs(X[:, 3]) * 2).astype(int) % 3]
        return pd.DataFrame(X, columns=list("abcde")).assign(kind=pd.Categorical(kind)), {}
    if name == "missing":
        return np.where(rng.random(X.shape) < 0.2, np.nan, X), {}
    if name == "sparse":
        return sparse.csr_matrix(np.where(np.abs(X) < 0.7, 0.0, X)), {}
    if name == "weights":
        return X, {"sample_weight": rng.exponential(size=len(X)).round(3)}
    if name == "start":
        shape = len(X) if n_classes == 2 else (len(X), n_classes)
        return X, {"start": rng.normal(size=shape).astype(np.float32).astype(float)}
    return X, {}


def intercept_of(library, parent, X, y, weight):
    """What the library's own fit on all rows begins with; the boosters on parts do, too."""
    if library == "xgboost":
        booster = parent.fit(X, y, sample_weight=weight).get_booster()
        config = json.loads(booster.save_config())["learner"]["learner_model_param"]
        values = json.loads(config["base_score"])
        return values[0] if np.size(values) == 1 else list(values)
    weight = np.ones(y.size) if weight is None else weight.astype(np.float32).astype(float)
    share = np.bincount(y, weight) / weight.sum()
    logs = np.log(share) if share.size > 2 else np.log(share[1] / share[0])
    return np.broadcast_to(logs, (y.size, share.size) if share.size > 2 else y.size)


NAMES = ["numpy", "categories", "missing", "sparse", "weights", "start"]


@KINDS
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *((library, name) for library in CLASSIFIERS for name in NAMES),
        ("lightgbm", "subsample"),  # XGBoost's boosters take turns at one source of randomness
    ],
)
def test_fold_boosters_are_plain_fits_on_the_other_folds(library, kind, name, table, conclusions):
    """Without multipliers: to rounding, after each number of rounds, pooled by row."""
    X, y = table[0], table[1][kind]
    n_classes = y.max() + 1
    X, given = variant(name, X, n_classes)
    start, weight = given.pop("start", None), given.get("sample_weight")
    options = {}
    if name == "subsample":
        options = {"subsample": 0.6, "subsample_freq": 1, "random_state": 4}
    own = dict(given)
    if start is not None:
        own["base_margin" if library == "xgboost" else "init_score"] = start
    make(library, [gc.error_rate() <= 1.0], measure_on=gc.CrossFit(3), **options).fit(X, y, **own)
    (fit,) = (found.fit for found in conclusions)
    assert not any(multipliers.any() for multipliers in fit.measured.controller.path)
    parent = PARENTS[library](n_estimators=ROUNDS, **OPTIONS[library], **options)
    begin = start
    if start is None:
        begin = intercept_of(library, parent, X, y, weight)
    expected = {}
    for fold in fit.measured.boosters.folds:
        part = {} if weight is None else {"sample_weight": weight[fold.training]}
        if library == "lightgbm":
            part["init_score"] = begin[fold.training]
        elif start is None:
            parent.set_params(base_score=begin)
        else:
            part["base_margin"] = start[fold.training]
        parent.fit(_safe_indexing(X, fold.training), y[fold.training], **part)
        held = _safe_indexing(X, fold.held)
        # Scores are those of predict: LightGBM's adds none of the user's, and XGBoost's does.
        begin_held = begin[fold.held] if (library == "xgboost") == (start is not None) else None
        for rounds in (1, 4, ROUNDS):
            found = margins_of(parent, held, rounds, begin_held)
            pooled = expected.setdefault(rounds, np.full((y.size, *found.shape[1:]), np.nan))
            pooled[fold.held] = found
    for rounds, pooled in expected.items():
        found = fit.measured.boosters.held_margin(rounds)
        assert found.shape == pooled.shape
        scale = max(1.0, abs(pooled).max())
        np.testing.assert_allclose(found, pooled, rtol=0, atol=2 * scale * TOLERANCE[library])
    np.testing.assert_array_equal(
        fit.measured.boosters.held_margin(), fit.measured.boosters.held_margin(ROUNDS)
    )


@BOTH
def test_boosters_on_parts_have_the_same_bins(library, conclusions):
    """Of features of many values: 8 bins are cut 7 times, and 4 boosters have the same cuts."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0.3).astype(int)
    options = {"max_bin": 8, "n_estimators": 12}
    make(library, [gc.error_rate() <= 1.0], measure_on="crossfit", **options).fit(X, y)
    cuts, alone = {}, {}
    for i, member in enumerate(conclusions[0].fit.measured.boosters.members):
        trees = member.booster.trees_to_dataframe()
        if library == "xgboost":
            feature, cut = trees["Feature"].replace("Leaf", None), trees["Split"]
        else:
            feature, cut = trees["split_feature"], trees["threshold"]
        for name, value in zip(feature[feature.notna()], cut[feature.notna()], strict=True):
            cuts.setdefault(name, set()).add(value)
            alone.setdefault((name, i), set()).add(value)
    assert max(map(len, alone.values())) > 4
    assert max(map(len, cuts.values())) <= 7


@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_rounds_that_grow_no_tree(measure_on, table, conclusions):
    """LightGBM keeps none where no split pays: prefixes are those of the rounds asked for."""
    X, y = table[0], table[1]["binary"]
    options = {"min_split_gain": 6.0, "n_estimators": 40, "learning_rate": 0.5}
    make("lightgbm", [gc.fnr() <= 0.1], measure_on=measure_on, **options).fit(X, y)
    (fit,) = (found.fit for found in conclusions)
    grown = [member.booster.current_iteration() for member in fit.measured.boosters.members]
    assert min(grown) < 38, "every round grew a tree, so that nothing is proved"
    for record in fit.measured.controller.solver.history[1:]:
        margin = fit.measured.boosters.held_margin(record.rounds)
        missed = np.mean(margin[y[fit.measured.controller.rows] == 1] <= 0)
        assert record.functionals[0] == pytest.approx(missed, abs=1e-12)


@BOTH
@KINDS
@pytest.mark.parametrize("options", [{}, {"subsample": 0.6, "learning_rate": 0.3}], ids=str)
def test_scores_that_are_kept_are_those_of_the_prefixes(
    library, kind, options, table, conclusions
):
    """Scores are kept while boosters grow; to score prefixes again takes longer."""
    X, y = table[0], table[1][kind]
    constraints = [gc.fnr() <= 0.1] if kind == "binary" else [gc.class_error(0) <= 0.1]
    make(library, constraints, n_estimators=20, **options).fit(X, y)
    boosters = conclusions[-1].fit.measured.boosters
    kept = dict(boosters._held)
    assert len(kept) >= 3
    boosters._held.clear()
    for rounds, scores in kept.items():
        assert np.array_equal(scores, boosters.held_margin(rounds))


def test_lightgbm_scores_tables_and_their_numbers_alike(conclusions):
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({0: rng.normal(size=n), "kind": rng.choice(list("abc"), n)})
    frame["kind"] = frame["kind"].where(frame.index % 7 > 0).astype("category")
    frame["few"] = pd.Categorical(rng.integers(5, 8, n), categories=[7, 6, 5, 4], ordered=True)
    frame["count"] = pd.array(np.where(frame.index % 5, 3, None), dtype="Int64")
    frame["flag"] = rng.random(n) < 0.5
    frame["single"] = rng.normal(size=n).astype(np.float32)
    frame = frame.iloc[rng.permutation(n)]
    score = frame[0] + 2 * (frame["kind"] == "a") + frame["flag"] + rng.normal(size=n)
    make("lightgbm", [gc.fnr() <= 0.1], min_child_samples=5).fit(frame, score > 1.5)
    boosters = conclusions[-1].fit.measured.boosters
    for rounds in (4, 6):
        for member, fold in zip(boosters.members, boosters.folds, strict=True):
            scored = member.booster.predict(
                frame.iloc[fold.held], raw_score=True, num_iteration=rounds
            )
            found = member.held_margin(rounds) - member.start[0]
            np.testing.assert_allclose(found, scored, rtol=0, atol=1e-14)
    assert np.ptp(scored) > 0.1


@BOTH
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_optimism_is_what_boosters_lose_and_more_rows_leave(
    library, measure_on, table, conclusions
):
    """Gaps of error rates out of fold, less the mean of those that each booster grows on."""
    X, y = table[0], table[1]["binary"]
    group = np.random.default_rng(2).integers(0, 2, y.size)

    def margins(member, rows, rounds):
        if library == "xgboost":
            return score(library, member, X[rows], rounds)
        raw = member.booster.predict(X[rows], raw_score=True, num_iteration=rounds)
        return raw + member.start[0]

    def difference(margin, rows):
        wrong = (margin > 0) != (y[rows] == np.unique(y)[1])
        return wrong[group[rows] == 0].mean() - wrong[group[rows] == 1].mean()

    constraints = [gc.gap(gc.error_rate(), by="g", small_groups="hold") <= 0.01]
    model = make(library, constraints, measure_on=measure_on, solver="abpp")
    model.fit(X, y, sensitive_features={"g": group})
    boosters = conclusions[0].fit.measured.boosters
    rows = boosters.controller.rows
    history = boosters.controller.solver.history
    for k in range(1, len(history)):
        seen = [
            difference(margins(member, fold.training, 2 * k), fold.training)
            for member, fold in zip(boosters.members, boosters.folds, strict=True)
        ]
        lost = difference(boosters.held_margin(2 * k), rows) - np.mean(seen)
        higher, bounds = boosters.optimism(k)
        # Of all rows there are a third more. Shares of cells are those of all rows: parts that
        # are a row off differ by that.
        np.testing.assert_allclose(higher, [0.75 * lost, -0.75 * lost], atol=0.01)
        np.testing.assert_array_equal(bounds, history[k].bounds)
    np.testing.assert_array_equal(boosters.optimism(99)[0], higher)


@BOTH
def test_schedules_of_the_learning_rate_are_followed_by_all(library, table, conclusions):
    """With a rate that falls to nothing, later rounds of the boosters on parts add nothing."""
    X, y = table[0], table[1]["binary"]
    rates = [0.3] * 4 + [1e-12] * 5
    model = make(library, [gc.fnr() <= 0.1], measure_on="crossfit")
    if library == "xgboost":
        model.set_params(callbacks=[xgb.callback.LearningRateScheduler(rates)])
        model.fit(X, y)
    else:
        model.fit(X, y, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    boosters = conclusions[0].fit.measured.boosters
    # XGBoost's scheduler sets the rate after a round, for the next one.
    assert abs(boosters.held_margin(4) - boosters.held_margin(2)).max() > 0.05
    np.testing.assert_allclose(boosters.held_margin(ROUNDS), boosters.held_margin(5), atol=1e-6)
