"""Constraints on groups, weights, labels and further data sets of every kind."""

from __future__ import annotations

import itertools

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from drop_in_fits import ANY, PARITY, SLACK, apart, gap_of, make, rates_of, with_solver
from helpers import EITHER, quiet
from sklearn.metrics import log_loss as mean_log_loss

import gbm_constrained as gc

# --- groups, weights and labels of every kind ---------------------------------------------------


def with_gaps(values, none):
    """Every fifth value missing."""
    return [none if i % 5 == 0 else v for i, v in enumerate(values)]


GROUPS = {
    "far integers": (lambda s: np.where(s == 1, 7, 0), ["0", "7"]),
    "strings": (lambda s: np.array(["F", "M"])[s], ["F", "M"]),
    "booleans": (lambda s: s == 1, ["False", "True"]),
    "categories": (
        lambda s: pd.Categorical(np.array(["v", "u"])[s], categories=["z", "v", "u", "a"]),
        ["u", "v"],
    ),
    "missing strings": (
        lambda s: np.array(with_gaps(np.array(["F", "M"])[s], None), dtype=object),
        ["F", "M", "missing"],
    ),
    "missing numbers": (lambda s: np.array(with_gaps(s, np.nan)), ["0.0", "1.0", "missing"]),
    "missing categories": (
        lambda s: pd.Categorical(with_gaps(np.array(["v", "u"])[s], None)),
        ["u", "v", "missing"],
    ),
    "nullable strings": (
        lambda s: pd.array(with_gaps(np.array(["F", "M"])[s], pd.NA), dtype="string"),
        ["F", "M", "missing"],
    ),
}


@pytest.mark.parametrize(
    ("library", "kind"),
    [
        *zip(itertools.cycle(["xgboost", "lightgbm"]), GROUPS, strict=False),
        *(("logistic", kind) for kind in ("booleans", "missing categories")),
    ],
)
def test_groups_of_every_kind(library, kind, problem):
    X, y, sex = problem
    make_groups, names = GROUPS[kind]
    groups = make_groups(sex)
    more = {"n_iterations": 150} if library == "logistic" and len(names) > 2 else {}
    fitted = make(library, PARITY, **more).fit(X, y, sensitive_features={"g": groups})
    report = fitted.group_report_
    assert report.group.tolist() == [f"g={name}" for name in names]
    assert report.rows.sum() == y.size
    found = gap_of(fitted.predict(X), groups)
    assert fitted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert found <= 0.04 + SLACK


@ANY
def test_missing_groups_can_be_refused(library, problem):
    X, y, sex = problem
    rule = gc.gap(gc.selection_rate(), missing="raise") <= 0.1
    with pytest.raises(ValueError, match="sensitive_feature_0 has missing values: fill them in"):
        make(library, rule).fit(X, y, sensitive_features=np.array(with_gaps(sex, np.nan)))


@ANY
def test_a_weight_is_a_repeated_row_in_a_gap(library, problem):
    """The same model, whose reported gap is that of the repeated rows."""
    X, y, sex = problem
    X = np.round(2 * X)  # few values: both fits cut at the same ones
    weight = np.random.default_rng(2).integers(1, 4, y.size)
    rows = np.repeat(np.arange(y.size), weight)
    options = {
        "xgboost": {"n_estimators": 12},
        "lightgbm": {"n_estimators": 12, "min_child_samples": 1, "min_data_in_bin": 1},
        "logistic": {},
    }[library]
    weighted = make(library, PARITY, **options)
    weighted.fit(X, y, sensitive_features=sex, sample_weight=weight)
    repeated = make(library, PARITY, **options)
    repeated.fit(X[rows], y[rows], sensitive_features=sex[rows])
    np.testing.assert_allclose(weighted.predict_proba(X), repeated.predict_proba(X), atol=2e-3)
    found = gap_of(weighted.predict(X[rows]), sex[rows])
    assert weighted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert repeated.constraint_report_.train[0] == pytest.approx(found, abs=0.01)


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"scale_pos_weight": 3.0}),
        ("lightgbm", {"scale_pos_weight": 3.0}),
        ("lightgbm", {"is_unbalance": True}),
        ("lightgbm", {"class_weight": "balanced"}),
        ("lightgbm", {"class_weight": {0: 1.0, 1: 4.0}}),
        ("logistic", {"class_weight": "balanced"}),
    ],
)
def test_class_weights_move_the_objective_and_not_the_rates(library, options, problem):
    X, y, sex = problem
    kept = np.flatnonzero((y == 0) | (np.arange(y.size) % 3 == 0))
    X, y, sex = X[kept], y[kept], sex[kept]
    plain = make(library, PARITY).fit(X, y, sensitive_features=sex)
    fitted = make(library, PARITY, **options).fit(X, y, sensitive_features=sex)
    assert fitted.predict(X).mean() > plain.predict(X).mean() + 0.03
    found = gap_of(fitted.predict(X), sex)
    assert fitted.constraint_report_.train[0] == pytest.approx(found, abs=1e-6)
    assert found <= 0.04 + SLACK


@ANY
def test_three_classes(library, problem):
    X, _, sex = problem
    score = X[:, 0] + 0.5 * X[:, 1] + np.random.default_rng(3).normal(size=600) * (0.3 + 1.5 * sex)
    y = np.digitize(score, [0.0, 1.2])
    labels = y if library == "xgboost" else np.array(["low", "mid", "top"])[y]
    top = 2 if library == "xgboost" else "top"
    rules = [
        gc.gap(gc.error_rate(), min_group_size=1) <= 0.1,
        gc.gap(gc.recall(top), min_group_size=1) <= 0.1,
    ]
    options = {"n_iterations": 120}
    if library != "logistic":
        options = {"n_estimators": 120, "learning_rate": 0.3 if library == "xgboost" else 0.2}
    fitted = make(library, rules, **options).fit(X, labels, sensitive_features=sex)
    right = fitted.predict(X) == labels
    found = [
        apart([right[rows & (sex == s)].mean() for s in (0, 1)])
        for rows in (np.ones(600, bool), labels == top)
    ]
    np.testing.assert_allclose(fitted.constraint_report_.train, found, atol=1e-6)
    assert max(found) <= 0.1 + SLACK
    right = make(library, [], **options).fit(X, labels).predict(X) == labels
    assert apart([right[sex == s].mean() for s in (0, 1)]) > 0.125
    with pytest.raises(ValueError, match="name one of them as label="):
        make(library, gc.gap(gc.tpr()) <= 0.1).fit(X, labels, sensitive_features=sex)


@EITHER
def test_early_stopping_and_the_held_out_gap(library, problem):
    """Held-out rows bring their own groups; the report is that of the best iteration."""
    X, y, sex = problem
    held, train = slice(0, 200), slice(200, 600)
    labels = y if library == "xgboost" else np.array(["no", "yes"])[y]
    given = {
        "sensitive_features": pd.Series(sex[train], name="sex"),
        "eval_set": [(X[held], labels[held])],
        "sensitive_features_eval_set": [pd.Series(sex[held], name="sex")],
        **quiet(library),
    }
    stopping = {"early_stopping_rounds": 5} if library == "xgboost" else {}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(5, verbose=False)]
    rule = gc.gap(gc.selection_rate(), by="sex", min_group_size=1) <= 0.04
    options = {"n_estimators": 300, "learning_rate": 0.5, **stopping}
    fitted = make(library, rule, **options).fit(X[train], labels[train], **given)
    best = fitted.best_iteration + 1 if library == "xgboost" else fitted.best_iteration_
    assert best < fitted.get_params()["n_estimators"] - 5
    report = fitted.constraint_report_
    for name, part in (("train", train), ("held_out", held)):
        chosen = fitted.predict(X[part]) == fitted.classes_[1]
        assert report[name][0] == pytest.approx(gap_of(chosen, sex[part]), abs=1e-9)
    assert fitted.history_["rounds"].iloc[-1] == best
    assert report.satisfied[0] == (report.held_out[0] <= 0.04)
    held_rates = rates_of(fitted.predict(X[held]) == fitted.classes_[1], sex[held])
    np.testing.assert_allclose(fitted.group_report_.held_out, held_rates, atol=1e-9)


# --- further data sets --------------------------------------------------------------------------


@pytest.fixture(scope="module")
def elsewhere(problem):
    """Unlabelled rows of another mixture, and positive ones that look negative."""
    rng = np.random.default_rng(5)
    monitor = rng.normal([0.5, -0.5, 0, 0], size=(300, 4))
    egregious = rng.normal([-0.6, 0, 0, 2.5], 0.5, size=(60, 4))
    return monitor, egregious


@ANY
@pytest.mark.parametrize("weighted", [False, True])
def test_coverage_and_egregious_examples(library, weighted, problem, elsewhere):
    """Constraints on other rows bind beside weights, evaluation sets and string labels."""
    X, y, _ = problem
    monitor, egregious = elsewhere
    labels = y if library == "xgboost" else np.array(["no", "yes"])[y]
    yes = labels[y == 1][0]
    rules = [
        gc.recall(on=gc.dataset("egregious")) >= 0.95,
        gc.selection_rate(on=gc.dataset("monitor")) <= 0.3,
    ]
    given = {
        "datasets": {"monitor": monitor, "egregious": (egregious, np.full(60, yes))},
        "sample_weight": np.random.default_rng(0).gamma(3.0, size=y.size) if weighted else None,
    }
    if library != "logistic":
        given.update(eval_set=[(X[:100], labels[:100])], **quiet(library))
    fitted = make(library, rules).fit(X, labels, **given)
    found = [(fitted.predict(rows) == yes).mean() for rows in (egregious, monitor)]
    np.testing.assert_allclose(fitted.constraint_report_.train, found, atol=1e-6)
    assert found[0] >= 0.95 - SLACK
    assert found[1] <= 0.3 + SLACK
    free = make(library, []).fit(X, labels, sample_weight=given["sample_weight"])
    assert (free.predict(egregious) == yes).mean() < 0.5
    assert np.isnan(fitted.constraint_report_.held_out).all()


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"gamma": 1e9}),
        ("xgboost", {"gamma": 1e9, "scale_pos_weight": 2.5}),
        ("lightgbm", {"min_split_gain": 1e9}),
        ("lightgbm", {"min_split_gain": 1e9, "class_weight": "balanced"}),
        ("lightgbm", {"min_split_gain": 1e9, "is_unbalance": True}),
        ("logistic", {"C": 1e-9}),
        ("logistic", {"C": 1e-9, "class_weight": "balanced"}),
    ],
)
def test_other_rows_leave_the_intercept_alone(library, options, problem):
    """Where nothing is learnt, a model is its intercept: that of the training rows."""
    X, y, _ = problem
    weight = np.where(y == 1, 0.5, 2.0)
    other = (X[:500], np.ones(500, dtype=int))
    rule = gc.error_rate(on=gc.dataset("other")) <= 1.0
    without = make(library, [], **options).fit(X, y, sample_weight=weight)
    fitted = make(library, rule, **options)
    fitted.fit(X, y, sample_weight=weight, datasets={"other": other})
    p = fitted.predict_proba(X)[:, 1]
    assert np.ptp(p) < 1e-5
    np.testing.assert_allclose(p, without.predict_proba(X)[:, 1], atol=1e-5)


@EITHER
def test_metrics_do_not_see_other_rows(library, problem, elsewhere):
    """What the parent records of an evaluation set is its own loss, the training rows' too."""
    X, y, _ = problem
    rule = gc.selection_rate(on=gc.dataset("monitor")) <= 0.3
    fitted = make(library, rule, n_estimators=8)
    fitted.fit(
        X, y, datasets={"monitor": elsewhere[0]}, eval_set=[(X, y), (X[:50], y[:50])],
        **quiet(library),
    )  # fmt: skip
    recorded = fitted.evals_result() if library == "xgboost" else fitted.evals_result_
    for scores, rows in zip(recorded.values(), (slice(None), slice(50)), strict=True):
        (values,) = scores.values()
        expected = mean_log_loss(y[rows], fitted.predict_proba(X[rows]))
        assert values[-1] == pytest.approx(expected, rel=1e-5)


# --- many masks ---------------------------------------------------------------------------------


@ANY
def test_thirty_masks(library, problem):
    """Far more masks than one partition of the rows can hold, all obeyed."""
    X, y, _ = problem
    masks = np.random.default_rng(6).random((30, y.size)) < 0.5
    bound = 0.12 if library == "logistic" else 0.06
    rules = [gc.fnr(on=mask) <= bound for mask in masks]
    options = {"n_iterations": 150}
    if library != "logistic":
        options = {"n_estimators": 60, "learning_rate": 0.3 if library == "xgboost" else 0.2}
    fitted = make(library, rules, **options).fit(X, y)
    missed = np.array([(fitted.predict(X) == 0)[mask & (y == 1)].mean() for mask in masks])
    np.testing.assert_allclose(fitted.constraint_report_.train, missed, atol=1e-6)
    assert missed.max() <= bound + 0.02
    free = make(library, [], **options).fit(X, y).predict(X)
    assert (free == 0)[y == 1].mean() > bound + 0.03


@ANY
def test_partitions_do_not_matter(library, problem, monkeypatch):
    """One partition by six masks, or three by two each: the same model, given the dual step.

    Without it the steps differ: of several partitions only a bound of the norm is known, and the
    floor of slopes is one of cells.
    """
    X, y, _ = problem
    monkeypatch.setattr("gbm_constrained.problem.lagrangian.MIN_SLOPE", 0.0)
    masks = np.random.default_rng(7).random((6, y.size)) < 0.5
    rules = [(gc.fnr if j % 2 else gc.error_rate)(on=mask) <= 0.1 for j, mask in enumerate(masks)]
    options = {"n_iterations": 25} if library == "logistic" else {"n_estimators": 25}
    probabilities = []
    for cells in (2048, 8):
        monkeypatch.setattr("gbm_constrained.data.cells.VIEW_CELLS", cells)
        fitted = make(library, rules, **with_solver(library, sigma=0.05), **options).fit(X, y)
        probabilities.append(fitted.predict_proba(X))
    assert fitted.multipliers_.max() > 0.01
    np.testing.assert_allclose(*probabilities, atol=1e-5)
