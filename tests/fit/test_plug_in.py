"""A threshold that is moved without multipliers: what comes back, and where it is enough."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from helpers import CLASSIFIERS, EITHER, KINDS, PARENTS, RULES, margins_of, quiet
from plug_in_fits import OPTIONS, ROUNDS, SOLVERS, TOLERANCE, draw_table, make
from scipy.stats import norm
from sklearn.datasets import load_digits
from sklearn.model_selection import train_test_split

import gbm_constrained as gc
from gbm_constrained.fit.cross_fit import choose_by_held_out, measure_optimism, tighten_bounds
from gbm_constrained.solvers import AutoSolver


@pytest.fixture(scope="module")
def table():
    return draw_table()


# --- the threshold alone ------------------------------------------------------------------------


@EITHER
@pytest.mark.parametrize(
    ("kind", "measure_on"), [("binary", "crossfit"), ("several", "holdout"), ("several", "watch")]
)
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


@EITHER
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


@EITHER
@pytest.mark.parametrize(
    ("kind", "options"), [("binary", {}), ("binary", {"scale_pos_weight": 3.0}), ("several", {})]
)
def test_boosters_of_the_folds_are_the_librarys_own(library, kind, options, table, conclusions):
    """On the rows of a fold, from where the model of all rows starts, by the bins asked for."""
    X, y = table[0], table[1][kind]
    options = {"max_bin": 255, **options}
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


@EITHER
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


@pytest.mark.parametrize("library", ["xgboost"])
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


@EITHER
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


@EITHER
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


@EITHER
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


# --- which constraints -------------------------------------------------------------------------

OF_LABELS = [
    gc.fnr() <= 0.1,
    gc.fpr() <= 0.1,
    gc.recall(label=2) >= 0.9,
    gc.class_error(1) <= 0.1,
    gc.precision() >= 0.9,
    gc.f1() >= 0.5,
    gc.selection_rate() <= 0.1,
    gc.confusion(0, 1) <= 0.1,
    gc.accuracy() >= 0.9,
    gc.error_rate(on=gc.label(1)) <= 0.1,
    gc.fnr() + 0.5 * gc.fpr() <= 0.3,
]
MODEL = [0, 1]
OF_MORE = [
    gc.gap(gc.fpr(), by="g") <= 0.1,
    gc.ratio(gc.selection_rate(), by="g") >= 0.8,
    gc.each(gc.fnr(), by="g") <= 0.1,
    gc.fnr(on={"g": 1}) <= 0.1,
    gc.fpr(on={"g": 1}) - 0.5 * gc.fpr() <= 0.1,
    gc.churn(to=MODEL) <= 0.1,
    gc.wins(over=MODEL) / gc.losses(to=MODEL) >= 2,
    gc.log_loss() <= 0.3,
    gc.log_loss(on=gc.label(1)) <= 0.3,
    gc.selection_rate(on=[True, False]) <= 0.1,
]


@pytest.mark.parametrize(
    ("constraint", "is_of_labels"),
    [*((c, True) for c in OF_LABELS), *((c, False) for c in OF_MORE)],
    ids=str,
)
def test_constraints_on_labels_and_decisions_alone(constraint, is_of_labels):
    assert constraint.is_of_labels == is_of_labels


@EITHER
@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize(
    ("constraints", "options"),
    [
        ([gc.gap(gc.fpr(), by="g") <= 0.02], {}),
        ([gc.fnr() <= 0.1, gc.gap(gc.fpr(), by="g") <= 0.02], {}),
        ([gc.fnr(on={"g": 1}) <= 0.1], {}),
        ([gc.fnr() <= 0.1], {"solver": "abpp"}),
        ([gc.fnr() <= 0.1], {"solver": "cbpr"}),
        (gc.as_log_loss([gc.fnr() <= 0.1], n_classes=2), {}),
        ([gc.fnr() <= 0.1], {"iterate": "randomized"}),
    ],
)
def test_multipliers_beside_plain_boosters_or_alone(library, constraints, options, table, grown):
    X, y = table[0], table[1]["binary"]
    group = {"g": np.arange(y.size) % 2}
    make(library, constraints, **options).fit(X, y, sensitive_features=group)
    # Unless multipliers or a mixture are asked for, plain boosters come first.
    assert grown[:1] == [bool(options)]
    assert len(grown) <= 1 + (not options)


@EITHER
def test_constraints_that_are_met_at_any_price_do_not_count(library, table, grown):
    """What no decision breaks is no reason to weigh rows."""
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.2, gc.gap(gc.fpr(), by="g") <= 1.0], solver="auto")
    model.fit(X, y, sensitive_features={"g": np.arange(y.size) % 2})
    assert grown[0] is False


# --- which of the two ---------------------------------------------------------------------------


@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize(
    ("library", "kind", "guarantee"),
    [
        ("xgboost", "several", None),
        ("lightgbm", "binary", None),
        ("lightgbm", "several", "expected"),
        ("xgboost", "binary", "high_probability"),
    ],
)
def test_auto_is_one_of_the_two(library, kind, guarantee, table, conclusions, grown):
    """The one that makes fewer errors out of fold, where both are grown."""
    X, y = table[0], table[1][kind]
    constraints = {"binary": [gc.fnr() <= 0.12], "several": [gc.class_error(2) <= 0.25]}[kind]
    threshold, abpp, auto = (
        make(
            library, constraints, solver=solver, guarantee=guarantee, measure_on="crossfit",
            max_bin=255,
        ).fit(X, y)
        for solver in SOLVERS
    )  # fmt: skip
    assert grown[:3] == [False, True, False]
    is_weighed = auto.history_.filter(like="multiplier").to_numpy().any()
    same = abpp if is_weighed else threshold
    np.testing.assert_array_equal(auto.predict_proba(X), same.predict_proba(X))
    np.testing.assert_array_equal(auto.shift_, same.shift_)
    assert (conclusions[2].fit.measured.controller.solver.schedule is None) == is_weighed
    if guarantee is None and len(grown) == 4:
        # Violations count three or ten times in the search where no shift meets the constraints.
        choices = [  # before they are given room
            c.fit.measured.rows.credible.choices[c.choice.rounds] for c in conclusions
        ]
        costs = [c.error if c.violation == 0.0 else c.loss for c in choices]
        assert costs[2] == min(costs)
    if kind == "several":
        assert len(grown) == 4


def overfitted(rng, n):
    """Labels that are half noise: deep trees memorise the training rows."""
    X = rng.normal(size=(n, 8))
    return X, (X[:, 0] + X[:, 1] + 1.5 * rng.normal(size=n) > 1.0).astype(int)


@pytest.mark.parametrize("library", ["lightgbm"])
def test_memorised_rows_need_no_second_set_of_boosters(library, conclusions, grown):
    X, y = overfitted(np.random.default_rng(0), 3000)
    model = make(library, [gc.fnr() <= 0.3], n_estimators=80, learning_rate=0.3, max_depth=8)
    model.set_params(**({"num_leaves": 63} if library == "lightgbm" else {})).fit(X, y)
    assert grown == [False]
    assert not model.multipliers_.any()
    conclusion = conclusions[0]
    measured = conclusion.fit.measured
    grown_boosters = measured.boosters, measured.rows
    optimism = measure_optimism(conclusion.fit.problem, grown_boosters, conclusion.choice)
    assert optimism[0] > 0.3 * 0.3


def underfitted(rng, n):
    """Two products of features, which few small trees do not come to the end of."""
    X = rng.normal(size=(n, 6))
    score = X[:, 0] + X[:, 1] * X[:, 2] + X[:, 3] * X[:, 4]
    return X, (score + 0.3 * rng.normal(size=n) > 1.2).astype(int)


SMALL = {"n_estimators": 16, "learning_rate": 0.1, "max_depth": 3}


@pytest.mark.parametrize("library", ["xgboost"])
def test_few_small_trees_are_weighed(library, grown):
    """They go where the constraint puts the decision; a threshold alone cannot make up for it."""
    rng = np.random.default_rng(0)
    X, y = underfitted(rng, 20_000)
    X_new, y_new = underfitted(rng, 20_000)
    accuracies = []
    for solver in SOLVERS:
        model = make(library, [gc.fnr() <= 0.05], solver=solver, **SMALL).fit(X, y)
        assert (model.predict(X_new)[y_new == 1] == 0).mean() < 0.07
        accuracies.append(np.mean(model.predict(X_new) == y_new))
    threshold, abpp, auto = accuracies
    assert grown == [False, True, False, True]
    assert abpp > threshold + 0.01
    assert auto == abpp


@pytest.mark.parametrize("library", ["lightgbm"])
def test_a_threshold_is_not_enough_where_no_row_is_memorised(library, grown):
    """And a constraint that the plain model meets is none that a certificate would find met."""
    X, y = underfitted(np.random.default_rng(1), 20_000)
    options = {**SMALL, "n_estimators": 40}
    plain = make(library, [gc.fpr() <= 0.9], solver="threshold", **options).fit(X, y)
    own = plain.constraint_report_.held_out[0]
    assert 0.0 < own < 0.2
    make(library, [gc.fpr() <= 0.8 * own], **options).fit(X, y)
    assert grown == [False, False, True]
    for guarantee, expected in ((None, [False]), ("high_probability", [False, True])):
        grown.clear()
        make(library, [gc.fpr() <= 1.01 * own], guarantee=guarantee, **options).fit(X, y)
        assert grown == expected


@pytest.mark.parametrize("guarantee", [gc.Expected(), gc.HighProbability(0.1)])
def test_bounds_that_a_certificate_asks_for(guarantee, table, conclusions):
    """One more row may be wrong; or by so many standard errors fewer as delta says."""
    X, y = table[0], table[1]["binary"]
    make("lightgbm", [gc.fpr() <= 0.1], guarantee=guarantee).fit(X, y)
    fit = conclusions[0].fit
    boosters = fit.measured.boosters
    grown_boosters = boosters, fit.measured.rows
    choice = choose_by_held_out(grown_boosters, fit.options)
    tightened = tighten_bounds(grown_boosters, fit.certification, choice, fit.options)
    found = tightened.compiled.b
    n = (y[fit.data.certification] == 0).sum()
    if isinstance(guarantee, gc.Expected):
        assert found == pytest.approx([(0.1 * (n + 1) - 1) / n])
        return
    negatives = y[fit.data.training] == 0
    decided = boosters.held_margin(choice.rounds) + choice.shift[0] > 0
    rate = decided[negatives].mean()
    spread = np.sqrt(rate * (1.0 - rate) / n)
    assert found == pytest.approx([0.1 - norm.isf(0.1) * spread], abs=1e-6)


@EITHER
def test_constraints_that_the_plain_model_meets_are_no_reason_to_weigh(library, table, grown):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.95]).fit(X, y)
    assert grown == [False]
    assert not model.shift_.any()
    plain = PARENTS[library](n_estimators=ROUNDS, **OPTIONS[library]).fit(X, y)
    np.testing.assert_allclose(
        model.predict_proba(X), plain.predict_proba(X), atol=TOLERANCE[library]
    )


@pytest.mark.parametrize("library", ["xgboost"])
def test_strict_constraints_where_the_plain_model_is_hardly_ever_wrong(library):
    """One digit against the others, whose training rows are soon memorised."""
    X, y = load_digits(return_X_y=True)
    parts = train_test_split(X, (y == 3).astype(int), test_size=0.4, stratify=y, random_state=0)
    X, X_test, y, y_test = parts
    learning_rate = {"xgboost": 0.3, "lightgbm": 0.1}[library]
    model = make(library, [gc.fnr() <= 0.02], n_estimators=80, learning_rate=learning_rate).fit(
        X, y
    )
    decided = model.predict(X_test)
    assert np.mean(decided == y_test) > 0.9
    assert (decided[y_test == 1] == 0).mean() < 0.07


@pytest.mark.parametrize("library", ["lightgbm"])
def test_where_plain_boosters_fail_multipliers_are_tried(library, grown):
    """Steps of full length over few frauds, which the boosters do not even memorise."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(4000, 5))
    y = (X[:, 0] + 0.7 * X[:, 1] + 0.5 * rng.normal(size=4000) > 2.6).astype(int)
    make(library, [gc.fnr() <= 0.02], n_estimators=30, learning_rate=0.9).fit(X, y)
    assert grown[:2] == [False, True]
