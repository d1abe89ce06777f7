"""Boosters that are merged into one: its raw score is the mean of theirs."""

import re

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from scipy.special import expit, softmax

from gbm_constrained.scorers.lightgbm import models as of_lightgbm
from gbm_constrained.scorers.lightgbm.models import read_file
from gbm_constrained.scorers.xgboost import models as of_xgboost

N_ROWS = 900


def make_table(random):
    """A table with a category that few rows are of, missing values and a constant column."""
    X = pd.DataFrame(random.normal(size=(N_ROWS, 3)), columns=["a", "b", "c"])
    X.loc[random.random(N_ROWS) < 0.1, "b"] = np.nan
    names = random.choice(["first", "w", "x", "y"], N_ROWS)
    names[names == "first"] = "w"
    names[:60] = "first"
    X["d"] = pd.Categorical(names)
    X["e"] = 1.0
    score = X.a + X.b.fillna(1.0) * X.c + (X.d == "x") + 2.0 * (X.d == "first")
    return X, score.to_numpy()


TABLE, SCORE = make_table(np.random.default_rng(0))
X, NUMBERS = TABLE, TABLE[["a", "b", "c"]]  # multi-target trees take no categories
Y = {"binary": (SCORE > 1.5).astype(int), "several": np.digitize(SCORE, [-1.0, 1.5])}
FOLDS = [np.setdiff1d(np.arange(N_ROWS), np.arange(k, N_ROWS, 3)) for k in range(3)]
FOLDS[1] = FOLDS[1][FOLDS[1] >= 60]  # which has no row of the first category
KINDS = pytest.mark.parametrize("kind", list(Y))
ROUNDS = (12, 5, 9)  # as early stopping leaves them


@KINDS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"base_score": 0.9},
        {"num_parallel_tree": 2, "subsample": 0.5},
        {"multi_strategy": "multi_output_tree", "tree_method": "hist"},
    ],
)
def test_merged_boosters_of_xgboost_score_the_mean_and_are_read_from_a_file(
    kind, options, tmp_path
):
    X = NUMBERS if "multi_strategy" in options else TABLE
    models = [
        xgb.XGBClassifier(
            n_estimators=n, max_depth=3, n_jobs=1, enable_categorical=True, **options
        ).fit(X.iloc[rows], Y[kind][rows])
        for rows, n in zip(FOLDS, ROUNDS, strict=True)
    ]
    merged = of_xgboost.merge_boosters([model.get_booster() for model in models])
    merged.save_model(tmp_path / "model.ubj")
    read = xgb.XGBClassifier()
    read.load_model(tmp_path / "model.ubj")
    expected = np.mean([m.predict(X, output_margin=True).astype(float) for m in models], axis=0)
    scores = read.predict(X, output_margin=True)
    np.testing.assert_allclose(scores, expected, rtol=0, atol=3e-6)
    np.testing.assert_array_equal(merged.predict(xgb.DMatrix(
        X, enable_categorical=True), output_margin=True), scores)  # fmt: skip
    assert merged.num_boosted_rounds() == sum(ROUNDS)
    assert xgb.Booster(model_file=tmp_path / "model.ubj").num_boosted_rounds() == sum(ROUNDS)


def test_an_intercept_that_single_precision_cannot_hold_goes_into_the_leaves():
    y = Y["binary"]
    models = [
        xgb.XGBClassifier(n_estimators=2, base_score=p, n_jobs=1).fit(X[["a"]], y)
        for p in (1 - 1e-4, 1 - 1e-5)
    ]
    merged = of_xgboost.merge_boosters([model.get_booster() for model in models])
    scores = [m.predict(X[["a"]], output_margin=True).astype(float) for m in models]
    found = merged.predict(xgb.DMatrix(X[["a"]]), output_margin=True)
    np.testing.assert_allclose(found, np.mean(scores, axis=0), rtol=0, atol=1e-5)


def test_rounds_after_the_best_one_are_left_out():
    y = Y["binary"]
    given = {"eval_set": [(X[["a"]].iloc[:200], 1 - y[:200])]}  # which gets worse
    one = xgb.XGBClassifier(n_estimators=9, early_stopping_rounds=3, n_jobs=1)
    one.fit(X[["a"]], y, **given, verbose=False)
    assert one.best_iteration + 1 < one.get_booster().num_boosted_rounds()
    merged = of_xgboost.merge_boosters([one.get_booster()])
    assert merged.num_boosted_rounds() == one.best_iteration + 1
    np.testing.assert_allclose(
        merged.predict(xgb.DMatrix(X[["a"]]), output_margin=True),
        one.predict(X[["a"]], output_margin=True), rtol=0, atol=1e-6,
    )  # fmt: skip
    two = lgb.LGBMClassifier(n_estimators=9, verbose=-1, n_jobs=1).fit(X[["a"]], y)
    two.booster_.best_iteration = two._best_iteration = 4
    merged = of_lightgbm.merge_boosters([two.booster_])
    assert merged.num_trees() == 4
    np.testing.assert_array_equal(
        merged.predict(X[["a"]], raw_score=True), two.predict(X[["a"]], raw_score=True)
    )


@pytest.mark.parametrize(("booster", "named"), [("dart", "dart"), ("gblinear", "gblinear")])
def test_boosters_without_leaves_to_divide_are_refused(booster, named):
    model = xgb.XGBClassifier(n_estimators=2, booster=booster, n_jobs=1).fit(X[["a"]], Y["binary"])
    with pytest.raises(ValueError, match=rf"ensemble='folds'.*booster='{named}'.*ensemble=None"):
        of_xgboost.merge_boosters([model.get_booster()] * 2)


@KINDS
@pytest.mark.parametrize(
    "options",
    [
        {},
        {"boosting_type": "dart", "drop_rate": 0.5},
        {"boosting_type": "rf", "subsample": 0.5, "subsample_freq": 1},
        {"linear_tree": True},
        {"boosting_type": "goss"},
    ],
)
def test_merged_boosters_of_lightgbm_score_the_mean_and_are_read_from_a_file(
    kind, options, tmp_path
):
    models = [
        lgb.LGBMClassifier(
            n_estimators=n, num_leaves=5, min_child_samples=3, verbose=-1, n_jobs=1,
            min_data_per_group=1, cat_smooth=1.0, random_state=0, **options,
        ).fit(X.iloc[rows], Y[kind][rows])
        for rows, n in zip(FOLDS, ROUNDS, strict=True)
    ]  # fmt: skip
    boosters = [model.booster_ for model in models]
    merged = of_lightgbm.merge_boosters(boosters)
    merged.save_model(tmp_path / "model.txt")
    assert read_file(tmp_path / "model.txt", "gbm_constrained")[1] is None
    read = lgb.Booster(model_file=tmp_path / "model.txt")
    expected = np.mean([score_of(booster) for booster in boosters], axis=0)
    np.testing.assert_allclose(score_of(read), expected, rtol=0, atol=1e-12)
    of_expected = expit(expected) if kind == "binary" else softmax(expected, axis=1)
    np.testing.assert_allclose(read.predict(X), of_expected, rtol=0, atol=1e-12)
    np.testing.assert_array_equal(
        read.predict(X, raw_score=True), merged.predict(X, raw_score=True)
    )
    np.testing.assert_array_equal(
        read.feature_importance(), np.sum([one.feature_importance() for one in boosters], axis=0)
    )
    assert read.num_trees() == sum(one.num_trees() for one in boosters)


def score_of(booster):
    """Scores that probabilities are of: raw ones are the sum of the trees of a random forest."""
    raw = booster.predict(X, raw_score=True)
    is_average = "\naverage_output\n" in booster.model_to_string()
    return raw / booster.current_iteration() if is_average else raw


def test_what_lightgbm_has_seen_of_a_feature_is_what_any_fold_has():
    models = [
        lgb.LGBMClassifier(n_estimators=3, verbose=-1, n_jobs=1).fit(X.iloc[rows], y)
        for rows in FOLDS
        for y in [Y["binary"][rows]]
    ]
    merged = of_lightgbm.merge_boosters([model.booster_ for model in models]).model_to_string()
    infos = re.search("^feature_infos=(.*)$", merged, flags=re.M)[1].split(" ")
    seen = X.iloc[np.unique(np.concatenate(FOLDS))]
    for name, info in zip("abc", infos, strict=False):
        low, high = map(float, info[1:-1].split(":"))
        assert (low, high) == pytest.approx((seen[name].min(), seen[name].max()), abs=1e-15)
    assert sorted(map(int, infos[3].split(":"))) == [-1, *range(4)]
    alone = re.search("^feature_infos=(.*)$", models[1].booster_.model_to_string(), flags=re.M)
    assert "0" not in alone[1].split(" ")[3].split(":")
    assert infos[4] == "none"


def test_other_lists_of_categories_are_refused():
    other = X.assign(d=X.d.cat.reorder_categories(list(X.d.cat.categories)[::-1]))
    models = [
        lgb.LGBMClassifier(n_estimators=2, verbose=-1, n_jobs=1).fit(table, Y["binary"])
        for table in (X, other)
    ]
    with pytest.raises(ValueError, match=r"other lists of categories.*ensemble=None"):
        of_lightgbm.merge_boosters([model.booster_ for model in models])
    trained = [
        xgb.XGBClassifier(n_estimators=2, n_jobs=1, enable_categorical=True).fit(t, Y["binary"])
        for t in (X, other)
    ]
    with pytest.raises(ValueError, match=r"other lists of categories.*ensemble=None"):
        of_xgboost.merge_boosters([model.get_booster() for model in trained])
