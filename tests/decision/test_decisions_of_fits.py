"""Decisions of fitted models, and their outcome on held-out rows."""

from __future__ import annotations

import pickle

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import EITHER, RULES, margins_of, quiet
from scipy import special, stats
from sklearn.base import clone
from sklearn.metrics import log_loss as cross_entropy
from small_fits import DEMANDING, ROUNDS, clopper_pearson, decided, make

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.solvers import AutoSolver

# Each library and each kind of problem once.
EACH = pytest.mark.parametrize(
    ("library", "kind"), [("xgboost", "several"), ("lightgbm", "binary")]
)
CLOSE = {"xgboost": 2e-6, "lightgbm": 1e-12}


def plain(library, model, tmp_path):
    """Decisions and probabilities of the saved file, by the library alone."""
    if library == "xgboost":
        model.save_model(tmp_path / "model.json")
        loaded = xgb.XGBClassifier()
        loaded.load_model(tmp_path / "model.json")
        return loaded.predict, loaded.predict_proba
    model.booster_.save_model(tmp_path / "model.txt")
    booster = lgb.Booster(model_file=tmp_path / "model.txt")

    def probabilities(X):
        p = booster.predict(X)
        return np.column_stack([1 - p, p]) if p.ndim == 1 else p

    return lambda X: decided(booster.predict(X, raw_score=True)), probabilities


@pytest.mark.parametrize(
    ("library", "kind", "measure_on"),
    [
        ("xgboost", "binary", "crossfit"),
        ("lightgbm", "binary", "holdout"),
        ("xgboost", "several", "holdout"),
        ("lightgbm", "several", "crossfit"),
    ],
)
def test_the_saved_file_decides_as_the_model_does(library, kind, measure_on, table, tmp_path):
    """Shifted in the model itself, or beside it: the decisions are the same."""
    X, y = table[0], table[1][kind]
    model = make(library, DEMANDING[kind], measure_on=measure_on).fit(X, y)
    beside = make(library, DEMANDING[kind], measure_on=measure_on, probabilities="calibrated")
    beside.fit(X, y)
    assert model.shift_.any()
    np.testing.assert_array_equal(model.shift_, beside.shift_)
    predict, probabilities = plain(library, model, tmp_path)
    np.testing.assert_array_equal(predict(X), model.predict(X))
    np.testing.assert_allclose(probabilities(X), model.predict_proba(X), atol=1e-7)
    margin, unmoved = margins_of(model, X), margins_of(beside, X)
    shift = model.shift_ if kind == "several" else model.shift_[0]
    np.testing.assert_allclose(margin, unmoved + shift, atol=CLOSE[library])
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    np.testing.assert_array_equal(model.predict(X), beside.predict(X))
    if measure_on == "crossfit":
        assert (decided(unmoved) != beside.predict(X)).any()
    # What is beside the model leaves its probabilities alone.
    if kind == "binary":
        p = special.expit(unmoved)
        np.testing.assert_allclose(beside.predict_proba(X)[:, 1], p, atol=1e-6)
    else:
        p = special.softmax(unmoved, axis=1)
        np.testing.assert_allclose(beside.predict_proba(X), p, atol=1e-6)


@EACH
def test_a_threshold_beside_the_model_travels_with_it(library, kind, table):
    X, y = table[0], table[1][kind]
    labels = y if library == "xgboost" else np.array(["a", "b", "c"])[y]
    rule = RULES["binary"] if kind == "binary" else [gc.class_error(labels[y == 2][0]) <= 0.2]
    model = make(library, rule, probabilities="calibrated").fit(X, labels)
    expected = model.predict(X)
    assert set(expected) <= set(labels)
    copy = pickle.loads(pickle.dumps(model))
    np.testing.assert_array_equal(copy.predict(X), expected)
    again = clone(copy)
    assert again.probabilities == "calibrated"
    assert not hasattr(again, "_threshold")
    np.testing.assert_array_equal(again.fit(X, labels).predict(X), expected)
    some = {"iteration_range": (0, 5)} if library == "xgboost" else {"num_iteration": 5}
    scores = margins_of(model, X, 5) + (model.shift_ if kind == "several" else model.shift_[0])
    np.testing.assert_array_equal(model.predict(X, **some), model.classes_[decided(scores)])
    again.set_params(constraints=[]).fit(X, labels)
    assert not hasattr(again, "_threshold")
    assert not hasattr(again, "shift_")


@EACH
def test_early_stopping_and_the_shift(library, kind, table):
    """The best iteration is the parent's; it is shifted as a whole, and reported as such."""
    X, y = table[0], table[1][kind]
    stopping = {"early_stopping_rounds": 4} if library == "xgboost" else {}
    given = {"eval_set": [(X[:200], y[:200])], **quiet(library)}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(4, verbose=False)]
    options = {"n_estimators": 60, "learning_rate": 0.6, **stopping}
    model = make(library, DEMANDING[kind], **options).fit(X[200:], y[200:], **given)
    best = model.best_iteration + 1 if library == "xgboost" else model.best_iteration_
    assert best < 55
    assert model.shift_.any()
    assert model.history_["rounds"].iloc[-1] == best
    margin = margins_of(model, X)
    np.testing.assert_allclose(margin, margins_of(model, X, best), atol=1e-12)
    np.testing.assert_array_equal(model.predict(X), decided(margin))
    target = 1 if kind == "binary" else 2
    report = model.constraint_report_
    for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
        wrong = decided(margin[part]) != y[part]
        rate = wrong[y[part] == target].mean()
        assert report[name][0] == pytest.approx(rate, abs=1e-9)
    assert report["rows"][0] == "eval_set[0]"


@EITHER
def test_mixtures_are_not_shifted(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, RULES["binary"], iterate="randomized").fit(X, y)
    assert not model.shift_.any()
    for guarantee in ("expected", "high_probability"):
        with pytest.raises(ValueError, match=rf"guarantee='{guarantee}'.*'randomized'"):
            make(library, RULES["binary"], iterate="randomized", guarantee=guarantee).fit(X, y)


def test_names_of_classes_do_not_matter(table):
    """In the same order; folds are drawn by position in the table, so that rows must not move."""
    X, y = table[0], table[1]["several"]
    model = make("lightgbm", RULES["several"]).fit(X, y)
    names = np.array(["ash", "birch", "elm"])
    other = make("lightgbm", [gc.class_error("elm") <= 0.2]).fit(X, names[y])
    np.testing.assert_array_equal(other.predict_proba(X), model.predict_proba(X))
    np.testing.assert_array_equal(other.predict(X), names[model.predict(X)])


def test_flat_initial_scores_of_several_classes(table):
    """Class by class, as LightGBM takes them: certification rows are taken from each class."""
    X, y = table[0], table[1]["several"]
    start = np.random.default_rng(1).normal(size=(y.size, 3))
    rule, options = [gc.class_error(2) <= 0.5], {"guarantee": "high_probability"}
    square = make("lightgbm", rule, **options).fit(X, y, init_score=start)
    flat = make("lightgbm", rule, **options).fit(X, y, init_score=start.ravel(order="F"))
    np.testing.assert_array_equal(margins_of(square, X), margins_of(flat, X))


@pytest.mark.parametrize("save_best", [False, True])
def test_early_stopping_by_a_callback(save_best, table):
    """The model that is shifted and reported is the one that predicts."""
    X, y = table[0], table[1]["binary"]
    options = {"n_estimators": 60, "learning_rate": 0.6}
    start = make("xgboost", [gc.fnr() <= 0.1], n_estimators=4).fit(X[200:], y[200:])
    for given in ({}, {"xgb_model": start, "measure_on": "train"}):
        options["callbacks"] = [xgb.callback.EarlyStopping(rounds=3, save_best=save_best)]
        measured = {"measure_on": given.pop("measure_on", "crossfit")}
        model = make("xgboost", [gc.fnr() <= 0.1], **options, **measured)
        model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False, **given)
        before = 4 if given else 0
        assert model.best_iteration < 50
        assert before + model.history_["rounds"].iloc[-1] == model.best_iteration + 1
        for name, part in (("train", slice(200, None)), ("held_out", slice(200))):
            missed = np.mean(model.predict(X[part])[y[part] == 1] == 0)
            assert model.constraint_report_[name][0] == pytest.approx(missed, abs=1e-9)


def test_a_model_that_stopped_early_is_continued(table):
    """XGBoost keeps the best iteration of the first fit, which would predict without the rest."""
    X, y = table[0], table[1]["binary"]
    first = xgb.XGBClassifier(
        n_estimators=60, early_stopping_rounds=3, n_jobs=1, learning_rate=0.6
    )
    first.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], verbose=False)
    model = make("xgboost", [gc.fnr() <= 0.1], n_estimators=6)
    model.fit(X[200:], y[200:], xgb_model=first)
    assert model.history_["rounds"].iloc[-1] == 6
    missed = np.mean(model.predict(X[200:])[y[200:] == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed, abs=1e-9)


@EITHER
def test_a_fit_that_is_refused_leaves_the_model_as_it_was(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.1], probabilities="calibrated").fit(X, y)
    decisions, shift = model.predict(X), model.shift_
    assert shift.any()
    with pytest.raises(ValueError, match="class 7"):
        model.set_params(constraints=[gc.class_error(7) <= 0.1]).fit(X, y)
    np.testing.assert_array_equal(model.predict(X), decisions)
    np.testing.assert_array_equal(model.shift_, shift)
    model.set_params(constraints=[]).fit(X, y)
    assert not hasattr(model, "shift_")
    assert not hasattr(model, "_threshold")


@EITHER
def test_a_mixture_of_a_single_iteration_is_that_model(library, table):
    X, y = table[0], table[1]["binary"]
    model = make(
        library,
        [gc.fnr() <= 0.1],
        iterate="randomized",
        solver=AutoSolver(rounds_per_iteration=ROUNDS + 1),
    )
    model.fit(X, y)
    assert model.prefixes_["rounds"].tolist() == [ROUNDS]
    missed = np.mean(model.predict(X, random_state=0)[y == 1] == 0)
    assert model.constraint_report_.train[0] == pytest.approx(missed)
    assert 0 < model.constraint_report_.held_out[0] < 1


def test_a_threshold_is_not_that_of_a_file_loaded_later(table, tmp_path):
    X, y = table[0], table[1]["binary"]
    plain = xgb.XGBClassifier(n_estimators=3, n_jobs=1).fit(X, y)
    plain.save_model(tmp_path / "model.json")
    model = make("xgboost", [gc.fnr() <= 0.02], probabilities="calibrated").fit(X, y)
    model.load_model(tmp_path / "model.json")
    np.testing.assert_array_equal(model.predict(X), plain.predict(X))


@EITHER
def test_training_rows_are_not_unseen(library, table):
    X, y = table[0], table[1]["binary"]
    report = make(library, RULES["binary"], measure_on="train").fit(X, y).constraint_report_
    assert report.columns.tolist() == [
        "constraint", "bound", "train", "held_out", "low", "high", "rows", "multiplier",
        "train_satisfied", "satisfied", "verdict",
    ]  # fmt: skip
    assert report[["held_out", "low", "high", "satisfied"]].isna().all(axis=None)
    assert (report["rows"] == "training rows").all()
    model = make(library, RULES["binary"], measure_on="train")
    model.fit(X[300:], y[300:], eval_set=[(X[:300], y[:300])], **quiet(library))
    report = model.constraint_report_.loc[0]
    assert report["rows"] == "eval_set[0]"
    missed = model.predict(X[:300])[y[:300] == 1] == 0
    assert report.held_out == pytest.approx(missed.mean())
    expected = clopper_pearson(missed.sum(), missed.size)
    np.testing.assert_allclose([report.low, report.high], expected, atol=1e-9)


@pytest.mark.parametrize(
    ("library", "probabilities"), [("xgboost", "shifted"), ("lightgbm", "calibrated")]
)
def test_a_mean_loss_has_the_interval_of_a_mean(library, probabilities, table):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.1, gc.log_loss() <= 0.9], probabilities=probabilities)
    model.fit(X[300:], y[300:], eval_set=[(X[:300], y[:300])], **quiet(library))
    report = model.constraint_report_.loc[1]
    assert report["rows"] == "eval_set[0]"
    loss = -np.log(model.predict_proba(X[:300])[np.arange(300), y[:300]])
    half = stats.norm.ppf(0.975) * loss.std() / np.sqrt(300)
    expected = [loss.mean(), loss.mean() - half, loss.mean() + half]
    np.testing.assert_allclose(list(report[["held_out", "low", "high"]]), expected, rtol=1e-5)
    out_of_fold = (
        make(library, [gc.fnr() <= 0.1, gc.log_loss() <= 0.9]).fit(X, y).constraint_report_
    )
    assert out_of_fold[["low", "high"]].notna().all(axis=None)


@pytest.mark.parametrize(
    ("library", "kind", "probabilities"),
    [
        ("xgboost", "binary", "shifted"),
        ("lightgbm", "binary", "calibrated"),
        ("xgboost", "several", "calibrated"),
        ("lightgbm", "several", "shifted"),
    ],
)
@pytest.mark.filterwarnings("ignore::gbm_constrained.FragileConstraintsWarning")
def test_mean_losses_are_those_of_the_probabilities(
    library, kind, probabilities, table, conclusions
):
    """On all rows alike: training rows, evaluation sets that report or moved something, folds."""
    X, y = table[0], table[1][kind]
    rules = [*DEMANDING[kind], gc.log_loss() <= 0.8]
    new = slice(0, 200), slice(200, None)
    for measure_on in ("crossfit", "holdout"):
        model = make(library, rules, measure_on=measure_on, probabilities=probabilities)
        sets = [tuple(part[at] for part in (X, y)) for at in new]
        model.fit(*sets[1], eval_set=[sets[0]], **quiet(library))
        assert model.shift_.any()
        report, last = model.constraint_report_.loc[1], model.history_.iloc[-1]
        of_new, of_train = (cross_entropy(rows[1], model.predict_proba(rows[0])) for rows in sets)
        assert report.train == pytest.approx(of_train, abs=1e-6)
        assert report.held_out == pytest.approx(of_new, abs=1e-6)
        assert report.satisfied == (of_new <= 0.8)
        assert report.train_satisfied == (of_train <= 0.8)
        found = gc.audit(model, *sets[0], rules).frame
        np.testing.assert_allclose(found["value"], model.constraint_report_.held_out, atol=1e-6)
        assert last[f"value[{rules[1]}]"] == report.train
        assert last[f"held_out[{rules[1]}]"] == report.held_out
        boosters = conclusions[-1].fit.measured.boosters
        if boosters is None or boosters.log_odds == 0.0:  # The objective weighs no classes.
            assert last["objective"] == pytest.approx(of_train, abs=1e-6)
    model = make(library, rules, probabilities=probabilities).fit(X, y)
    margin = conclusions[-1].fit.measured.boosters.held_margin(conclusions[-1].choice.rounds)
    if probabilities == "shifted":
        margin = margin + (model.shift_ if kind == "several" else model.shift_[0])
    scores = margin if kind == "several" else np.column_stack([np.zeros(y.size), margin])
    out_of_fold = cross_entropy(y, special.softmax(scores, axis=1))
    assert model.constraint_report_.held_out[1] == pytest.approx(out_of_fold, abs=1e-6)


@EITHER
def test_a_mean_loss_that_the_shift_breaks_is_not_met(library, table):
    X, y = table[0], table[1]["binary"]
    rules = [*DEMANDING["binary"], gc.log_loss() <= 0.7]
    model = make(library, rules)
    with pytest.warns(gc.MissedConstraintsWarning, match=r"shift.*breaks(.|\n)*log_loss <= 0.7: "):
        model.fit(X, y)
    rule = model.feasibility_.rules[1]
    assert model.feasibility_.status == "missed"
    assert model.feasibility_.broken_by_shift == (rule,)
    assert rule.value == model.constraint_report_.held_out[1] > 0.7 > rule.unshifted
    assert not model.constraint_report_.satisfied[1]
    beside = make(library, rules, probabilities="calibrated").fit(X, y)
    assert beside.constraint_report_.held_out[1] == rule.unshifted
    assert beside.constraint_report_.satisfied[1]
    assert beside.feasibility_.broken_by_shift == ()


def test_rates_and_mean_losses_of_one_rule_are_of_decisions_and_probabilities(table):
    X, y = table[0], table[1]["binary"]
    rules = [gc.fnr() <= 0.05, gc.fpr() + gc.log_loss() <= 2.0]
    model = make("lightgbm", rules, probabilities="calibrated")
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])])
    assert model.shift_.any()
    for column, rows in (("train", slice(200, None)), ("held_out", slice(0, 200))):
        alarms = (model.predict(X[rows]) == 1)[y[rows] == 0].mean()
        loss = cross_entropy(y[rows], model.predict_proba(X[rows]))
        found = model.constraint_report_[column][1]
        assert found == pytest.approx(alarms + loss, abs=1e-6)


@EITHER
def test_a_rule_that_cannot_bind_leaves_other_rules_alone(library, table):
    """Rates over other rows of the same partition: neither folds nor steps nor shift change."""
    X, y = table[0], table[1]["binary"]
    one = make(library, [gc.fnr() <= 0.1]).fit(X, y)
    two = make(library, [gc.fnr() <= 0.1, gc.fpr() <= 1.0]).fit(X, y)
    np.testing.assert_allclose(two.shift_, one.shift_, atol=1e-6)
    np.testing.assert_allclose(margins_of(two, X), margins_of(one, X), atol=1e-5)
    assert two.constraint_report_.held_out[0] == pytest.approx(one.constraint_report_.held_out[0])


@EITHER
def test_a_comparison_is_told_by_rows_of_all_of_its_groups(library):
    """Rows of an evaluation set without the group that breaks a gap do not prove that it holds."""
    rng = np.random.default_rng(0)
    n = 1500
    group = rng.choice(["u", "v", "w"], n)
    X = np.column_stack([rng.normal(size=(n, 2)), group == "w"])
    y = (X[:, 0] + 3 * X[:, 2] + rng.normal(size=n) / 2 > 0.5).astype(int)
    training, watched = np.arange(n) < 1000, (np.arange(n) >= 1000) & (group != "w")
    rules = [gc.gap(gc.selection_rate(), by="g") <= 0.1, gc.gap(gc.error_rate(), by="h") <= 0.5]
    model = make(library, rules, n_estimators=5, measure_on="crossfit")
    given = X[training], y[training]
    columns = {"g": group, "h": rng.choice(["a", "b"], n)}
    known = {"sensitive_features": {name: of[training] for name, of in columns.items()}}
    alone = model.fit(*given, **known).constraint_report_
    report = model.fit(
        *given, **known, **quiet(library), eval_set=[(X[watched], y[watched])],
        sensitive_features_eval_set=[{name: of[watched] for name, of in columns.items()}],
    ).constraint_report_  # fmt: skip
    assert report.rows.tolist() == ["out of fold", "eval_set[0]"]
    assert report.held_out[0] == alone.held_out[0] == model.history_.iloc[-1].filter(
        like="held_out"
    ).iloc[0]  # fmt: skip
    assert report.satisfied[0] == alone.satisfied[0]
    assert report.held_out[1] != alone.held_out[1]


@EITHER
def test_a_rule_that_is_met_to_the_last_digit_moves_nothing(library):
    """0.4 - 0.3 is larger than 0.1 in double precision, and another threshold has fewer errors."""
    X, y = np.repeat([[0.0], [1.0], [2.0]], 100, axis=0), np.repeat([0, 0, 1], 100)
    y[100:200] = np.arange(100) % 3 == 0
    X_new = np.concatenate([np.repeat([2.0, 1.0, 0.0], [k, 2, 8 - k]) for k in (4, 3)])
    y_new, group = (X_new > 0).astype(int), np.repeat(["a", "b"], 10)
    rule = gc.selection_rate(on={"g": "a"}) - gc.selection_rate(on={"g": "b"}) <= 0.1
    model = make(library, [rule], measure_on="holdout").fit(
        X, y, sensitive_features={"g": np.tile(["a", "b"], 150)}, **quiet(library),
        eval_set=[(X_new[:, None], y_new)], sensitive_features_eval_set=[{"g": group}],
    )  # fmt: skip
    report = model.constraint_report_.iloc[0]
    assert 0.1 < report.held_out < 0.1 + 1e-15
    assert report.satisfied
    assert report.multiplier == 0.0
    assert not model.shift_.any()


def test_rows_in_several_views_are_counted_once():
    """The accuracy is that of the rows, and its interval that of so many."""
    rng = np.random.default_rng(0)
    y, decided = rng.integers(0, 2, 300), rng.integers(0, 2, 300)
    rules = [gc.selection_rate(on=rng.random(300) < 0.7) <= 0.9 for _ in range(14)]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2)))
    assert len(cells.views) > 1
    rows = EvaluationSet(cells, compiled, "test")
    right = (decided == y).sum()
    expected = (right / 300, *clopper_pearson(right, 300))
    np.testing.assert_allclose(rows.accuracy(rows.counts(decided)), expected, rtol=1e-12)
    assert rows.error(decided) == pytest.approx(1.0 - right / 300)
