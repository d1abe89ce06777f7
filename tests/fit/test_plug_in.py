"""Constraints that a moved threshold meets without multipliers: what comes back."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from helpers import BOTH, CLASSIFIERS, KINDS, PARENTS, RULES, margins_of, quiet
from plug_in_fits import OPTIONS, ROUNDS, TOLERANCE, draw_table, make

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver


@pytest.fixture(scope="module")
def table():
    return draw_table()


# --- the threshold alone ------------------------------------------------------------------------


@BOTH
@KINDS
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout", "watch"])
def test_the_model_is_the_librarys_own(library, kind, measure_on, table, conclusions):
    """Of all rows; with its shift beside it."""
    X, y = table[0], table[1][kind]
    X, y, X_held, y_held = X[:700], y[:700], X[700:], y[700:]
    watches = {"eval_set": [(X_held, y_held)], **quiet(library)} if measure_on == "watch" else {}
    model = make(
        library, RULES[kind], solver="threshold", probabilities="calibrated",
        measure_on="holdout" if measure_on == "watch" else measure_on,
    )  # fmt: skip
    model.fit(X, y, sample_weight=np.linspace(1.0, 2.0, 700), **watches)
    plain = PARENTS[library](n_estimators=ROUNDS, **OPTIONS[library])
    plain.fit(X, y, sample_weight=np.linspace(1.0, 2.0, 700))
    choice = conclusions[0].choice
    np.testing.assert_allclose(
        margins_of(model, X), margins_of(plain, X, choice.rounds), atol=TOLERANCE[library], rtol=0
    )
    assert model.shift_.any()
    assert not model.multipliers_.any()
    assert not model.history_.filter(like="multiplier").to_numpy().any()
    scores = margins_of(model, X_held) + model.shift_
    decided = scores.argmax(axis=1) if kind == "several" else (scores > 0).astype(int)
    np.testing.assert_array_equal(model.predict(X_held), decided)


@BOTH
@KINDS
def test_metrics_and_early_stopping_are_the_librarys_own(library, kind, table):
    X, y = table[0], table[1][kind]
    X, y, X_held, y_held = X[:700], y[:700], X[700:], y[700:]
    params = {**OPTIONS[library], "n_estimators": 60, "learning_rate": 0.5}

    def brier(y_true, p):
        truth = np.eye(3)[y_true.astype(int)] if kind == "several" else y_true
        return np.mean((truth - p) ** 2)

    def brier_of_lightgbm(y_true, p):
        return "brier", brier(y_true, p), False

    def fit(kind_of_model, **more):
        if library == "xgboost":
            metrics = ["merror" if kind == "several" else "auc", brier]
            model = kind_of_model(early_stopping_rounds=3, eval_metric=metrics, **params, **more)
            return model.fit(X, y, eval_set=[(X, y), (X_held, y_held)], verbose=False)
        model = kind_of_model(**params, **more)
        return model.fit(
            X, y, eval_set=[(X, y), (X_held, y_held)], eval_metric=brier_of_lightgbm,
            callbacks=[lgb.early_stopping(3, verbose=False)],
        )  # fmt: skip

    plain = fit(PARENTS[library])
    given = {"constraints": RULES[kind], "solver": "threshold"}
    model = fit(CLASSIFIERS[library], **given)
    if library == "xgboost":
        assert model.evals_result() == plain.evals_result()
        assert len(plain.evals_result()["validation_0"]["brier"]) < 60
        assert model.objective == plain.objective
    else:
        for name, values in plain.evals_result_.items():
            for metric, found in values.items():
                np.testing.assert_allclose(model.evals_result_[name][metric], found, rtol=1e-12)
        assert plain.best_iteration_ < 60
    assert model.shift_.any()


def plain_scores(library, kind, X, y, weight, rows, start, **options):
    """Scores of all rows by the plain library, trained on some of them."""
    options = {**OPTIONS[library], **options}
    if library == "xgboost":
        plain = PARENTS[library](n_estimators=ROUNDS, base_score=start, **options)
        return margins_of(plain.fit(X[rows], y[rows], sample_weight=weight[rows]), X)
    several = {"objective": "multiclass", "num_class": 3}
    params = {"objective": "binary"} if kind == "binary" else several
    whole = lgb.Dataset(X, y, weight=weight, params={**params, **options}).construct()
    part = whole.subset(rows).construct()
    part.set_init_score(np.repeat(start, rows.size))
    return lgb.train({**params, **options}, part, ROUNDS).predict(X, raw_score=True) + start


@BOTH
@pytest.mark.parametrize(
    ("kind", "options"), [("binary", {}), ("binary", {"scale_pos_weight": 3.0}), ("several", {})]
)
def test_boosters_of_the_folds_are_the_librarys_own(library, kind, options, table, conclusions):
    """On the rows of a fold, from where the model of all rows starts."""
    X, y = table[0], table[1][kind]
    weight = np.linspace(1.0, 2.0, y.size).astype(np.float32).astype(float)
    model = make(library, RULES[kind], solver="threshold", **options)
    model.fit(X, y, sample_weight=weight)
    boosters = conclusions[0].fit.measured.boosters
    fold, member = boosters.folds[0], boosters.members[0]  # all have its bins in XGBoost
    if library == "xgboost":
        start = member.native["base_score"]
    else:
        share = np.log(np.bincount(y, weight) / weight.sum())
        start = share if kind == "several" else share[1:] - share[:1]
    scores = plain_scores(library, kind, X, y, weight, fold.training, start, **options)
    for found, rows in (
        (member.held_margin(), fold.held),
        (member.own_margin(ROUNDS), fold.training),
    ):
        np.testing.assert_allclose(found, scores[rows], atol=TOLERANCE[library], rtol=0)


@BOTH
def test_the_threshold_is_the_best_of_all(library, table, conclusions):
    """By brute force over the scores out of fold; of the larger class."""
    X, y = table[0], table[1]["binary"]
    make(library, [gc.fpr() <= 0.03], solver="threshold", iterate="last").fit(X, y)
    conclusion = conclusions[0]
    scores = conclusion.fit.measured.boosters.held_margin(conclusion.choice.rounds).astype(float)
    best = 1.0
    for cut in [np.inf, *np.unique(scores)]:
        decided = scores >= cut
        if decided[y == 0].mean() <= conclusion.choice.bounds[0]:
            best = min(best, np.mean(decided != y))
    assert conclusion.choice.bounds[0] <= 0.03  # lower if it leaves room
    shifted = scores + conclusion.choice.shift[0] > 0
    assert shifted[y == 0].mean() <= 0.03
    assert np.mean(shifted != y) == pytest.approx(best, abs=1e-12)


# --- around it ----------------------------------------------------------------------------------


@BOTH
def test_a_start_of_multipliers_is_none_for_the_threshold(library, table):
    """They are where the second set of boosters begins."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 80, "learning_rate": 0.3}
    models = [
        make(
            library, [gc.fpr() <= 0.04], solver=AutoSolver(initial_multipliers=start), **options
        ).fit(X, y)
        for start in (None, [3.0])
    ]
    assert not any(model.multipliers_.any() for model in models)
    np.testing.assert_array_equal(models[0].predict_proba(X), models[1].predict_proba(X))


@BOTH
def test_callbacks_are_notified_of_both_sets(library, table, grown):
    X, y = table[0], table[1]["several"]
    states = []
    make(library, RULES["several"]).fit(X, y, constraint_callbacks=[states.append])
    assert grown == [False, True]
    without, weighed = (
        [s for s in states if s.rows == rows]
        for rows in ("out of fold, without multipliers", "out of fold")
    )
    training = [s for s in states if s.phase == "training"]
    assert states == without + weighed + training
    assert not any(s.multipliers.any() for s in without)
    assert any(s.multipliers.any() for s in weighed)
    done = [s.done for s in states]
    assert done == sorted(done)
    assert {s.total for s in without} == {5 * ROUNDS}
    assert {s.total for s in weighed + training} == {9 * ROUNDS}
    assert training[0].done == 8 * ROUNDS


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure_on": "train"}, r"solver='threshold'.*measure_on='train'.*'auto', 'holdout' or"),
        ({"iterate": "ergodic"}, "iterate='ergodic' has no place there: use 'last' or 'best'"),
        ({"iterate": "randomized"}, "iterate='randomized' has no place"),
    ],
)
def test_what_the_threshold_alone_refuses(library, options, message, table):
    X, y = table[0], table[1]["binary"]
    with pytest.raises(ValueError, match=message):
        make(library, [gc.fnr() <= 0.1], solver="threshold", **options).fit(X, y)


@BOTH
def test_continued_training_moves_a_threshold_on_held_out_rows_only(library, table):
    X, y = table[0], table[1]["binary"]
    name = {"xgboost": "xgb_model", "lightgbm": "init_model"}[library]
    begin = {name: make(library, [], n_estimators=3).fit(X[:600], y[:600])}
    model = make(library, [gc.fnr() <= 0.1], solver="threshold", measure_on="auto")
    with pytest.raises(ValueError, match="solver='threshold' is moved on rows"):
        model.fit(X, y, **begin)
    model.set_params(measure_on="holdout")
    model.fit(X[:600], y[:600], eval_set=[(X[600:], y[600:])], **begin, **quiet(library))
    assert model.shift_.any()
    assert (model.predict(X[600:])[y[600:] == 1] == 0).mean() <= 0.1


def test_the_linear_model_has_no_threshold_alone(table):
    model = gc.ConstrainedLogisticRegression(
        constraints=[gc.fnr() <= 0.1], constraint_solver="threshold"
    )
    with pytest.raises(ValueError, match=r"constraint_solver must be one of \['auto', 'abpp', "):
        model.fit(table[0], table[1]["binary"])
