"""Constraints that the model of all rows violates, and the boosters of the folds do not."""

from __future__ import annotations

import numpy as np
import pytest
from helpers import CLASSIFIERS
from references import draw_decisions_of_folds
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.decision.choose import (
    correct_training_values,
    estimate_optimism,
    estimate_optimism_of_decisions,
    find_refit_violations,
    find_training_violations,
    refit_violation,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of

CLASSES = {gc.ConstrainedLGBMClassifier: {"verbose": -1}, gc.ConstrainedXGBClassifier: {}}


def test_what_is_broken_on_training_rows_beyond_chance():
    """By hand: the exact lower limit of each rate; rules that may ask for errors are left out."""
    y, group = np.arange(400) % 2, np.arange(400) // 2 % 2
    rules = [gc.fpr() <= 0.1, gc.recall() >= 0.9, gc.fnr() <= 0.5, gc.gap(gc.fpr(), by="g") <= 0.0]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns={"g": group}))
    found = {}
    for wrong in (20, 28, 29, 60):  # of 200 rows of either class
        decided = np.where(np.arange(400) < 2 * wrong, 1 - y, y)
        beyond = stats.binom.sf(wrong - 1, 200, 0.1) <= 0.025
        found[wrong] = find_training_violations(compiled, CellCounts.of(cells, decided)).tolist()
        assert found[wrong] == [beyond, beyond, False, False]
    assert not found[20][0]
    assert found[60][0]


@pytest.mark.parametrize("library", CLASSES)
def test_a_model_unlike_its_folds_is_warned_of(library):
    """Leaves of so many rows that three quarters of them cannot be split, and all can."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(160, 2))
    y = (X[:, 0] + rng.normal(size=160) > 0.3).astype(int)
    leaves = (
        {"min_child_samples": 65} if "LGBM" in library.__name__ else {"min_child_weight": 16.0}
    )
    options = dict(n_estimators=30, n_jobs=1, random_state=0, **CLASSES[library], **leaves)
    clf = library(constraints=[gc.fpr() <= 0.05], **options)
    with pytest.warns(gc.FragileConstraintsWarning, match="breaks them by its own training rows"):
        clf.fit(X, y)
    report = clf.constraint_report_.loc[0]
    assert report["held_out"] <= 0.05
    assert report["train"] == pytest.approx(np.mean(clf.predict(X)[y == 0]))
    assert report["train"] > 0.1
    assert report["satisfied"]  # by its value, which is no evidence here
    assert report["verdict"] == clf.feasibility_.status == "cannot be told"
    (rule,) = clf.feasibility_.refuted
    assert (rule.constraint, rule.trained) == (clf.constraints[0], report["train"])
    assert f"{report['train']:.4f} by training rows" in str(clf.feasibility_)


@pytest.mark.parametrize(("seed", "refuted"), [(16, False), (110, True), (138, False)])
def test_prefixes_are_held_against_training_rows_as_well(seed, refuted):
    """Those whose rates are on record, and which no shift moves."""
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(160, 2))
    y = (X[:, 0] + rng.normal(size=160) > 0.8).astype(int)
    clf = gc.ConstrainedLGBMClassifier(
        constraints=[gc.fpr() <= 0.05], iterate="best", n_estimators=15, learning_rate=0.3,
        min_child_samples=50, random_state=0, n_jobs=1, verbose=-1, solver="abpp",
    ).fit(X, y)  # fmt: skip
    assert clf.booster_.current_iteration() < 15
    assert not clf.shift_.any()
    report = clf.constraint_report_.loc[0]
    negatives = (y == 0).sum()
    wrong = round(report["train"] * negatives)
    assert (stats.binom.sf(wrong - 1, negatives, 0.05) <= 0.025) == refuted
    assert report["held_out"] <= 0.05
    assert report["satisfied"]
    assert report["verdict"] == ("cannot be told" if refuted else "met")
    assert bool(clf.feasibility_.refuted) == refuted


@pytest.mark.parametrize("library", [gc.ConstrainedLGBMClassifier, gc.ConstrainedXGBClassifier])
def test_gaps_of_error_rates_that_the_training_rows_refute(library):
    """A fit that holds is not refuted; evidence of its training rows puts the verdict in doubt."""
    rng = np.random.default_rng(0)
    group, X = rng.integers(0, 2, 6000), rng.normal(size=(6000, 4))
    score = 2.0 * X[:, 0] * np.where(group == 1, 0.3, 2.0)
    y = (rng.random(6000) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    clf = library(
        constraints=[gc.gap(gc.error_rate(), by="g") <= 0.05], n_estimators=60, learning_rate=0.2,
        measure_on="crossfit", n_jobs=1, solver="abpp", **CLASSES[library],
    )  # fmt: skip
    clf.fit(X, y, sensitive_features={"g": group})
    assert clf.feasibility_.refuted == ()
    assert clf.constraint_report_["satisfied"].all()
    found = clf.feasibility_.add_training_evidence(np.array([0.12]), np.array([True]))
    with pytest.warns(gc.FragileConstraintsWarning, match="breaks them by its own training rows"):
        found.warn(raises=False)
    assert [rule.trained for rule in found.refuted] == [0.12]
    assert found.status == "cannot be told"
    assert "breaks the constraint on its training rows, 0.1200" in found.rules[0].verdict.reason


def test_what_training_rows_say_of_gaps_of_error_rates():
    """Both sides of a gap are moved by what is lost on unseen rows; other gaps prove nothing."""
    rng = np.random.default_rng(1)
    rules = [
        gc.gap(gc.error_rate(), by="g") <= 0.1,
        gc.gap(gc.fpr(), by="g") <= 0.1,
        gc.error_rate(on={"g": 1}) >= 0.1,
    ]
    compiled, cells, _, _ = draw_decisions_of_folds(rng, [0.5], rules=rules)
    y, group = cells.rows.y, np.asarray(cells.rows.attribute(("g",)).codes)
    decided = np.where(group == 1, y, 1 - y)  # all wrong in one group, none in the other
    counts = CellCounts.of(cells, decided)
    values = functionals_of(compiled, counts)
    own = compiled.rows_of(values)
    assert not find_training_violations(compiled, counts).any()
    none = np.zeros(len(compiled))
    np.testing.assert_array_equal(
        find_training_violations(compiled, counts, none), [True, False, True]
    )
    np.testing.assert_allclose(correct_training_values(compiled, values, none), [1.0, 1.0, 0.0])
    # As much is lost as brings the groups together, and the other one to a half.
    lost = np.where(compiled.owner == 0, -own, 0.0) + np.where(compiled.owner == 2, -0.5, 0.0)
    assert not find_training_violations(compiled, counts, lost).any()
    np.testing.assert_allclose(
        correct_training_values(compiled, values, lost), [0.0, 1.0, 0.5], atol=1e-12
    )


# --- scores in few clumps, and memorised labels -------------------------------------------------


@pytest.mark.parametrize("library", CLASSES)
def test_selection_rates_are_held_against_training_rows(library):
    """Four scores: the threshold falls among those that boosters of folds give to one of them."""
    rng = np.random.default_rng(2)
    X = rng.integers(0, 2, (20_000, 2)).astype(float)
    y = (X @ [1.0, 0.3] + 0.6 * rng.normal(size=len(X)) > 0.975).astype(int)
    leaves = {"num_leaves": 8} if "LGBM" in library.__name__ else {"max_depth": 3}
    options = dict(n_estimators=30, n_jobs=1, random_state=0, **CLASSES[library], **leaves)
    clf = library(constraints=[gc.selection_rate() <= 0.2], **options)
    with pytest.warns(gc.FragileConstraintsWarning, match="breaks them by its own training rows"):
        clf.fit(X, y)
    report = clf.constraint_report_.loc[0]
    assert report["held_out"] <= 0.2 < 0.22 < report["train"] == clf.predict(X).mean()
    assert report["satisfied"]  # by its value, which is no evidence here
    assert report["verdict"] == clf.feasibility_.status == "cannot be told"
    assert [rule.trained for rule in clf.feasibility_.refuted] == [report["train"]]


@pytest.mark.parametrize("library", CLASSES)
@pytest.mark.parametrize(
    "rule", [gc.selection_rate() <= 0.2, gc.gap(gc.selection_rate(), by="g") <= 0.05], ids=str
)
@pytest.mark.parametrize("iterate", ["last", "best"])
def test_selection_rates_of_trees_that_memorise_labels(library, rule, iterate):
    """They select more of their own rows than of others, and violate no constraint by that."""
    rng = np.random.default_rng(0)
    group, X = rng.integers(0, 2, 3000), rng.normal(size=(3000, 4))
    y = (X[:, 0] + 0.6 * group + 1.5 * rng.normal(size=3000) > 0.8).astype(int)
    deep = (
        {"num_leaves": 63, "min_child_samples": 3}
        if "LGBM" in library.__name__
        else {"max_depth": 12}
    )
    clf = library(
        constraints=[rule], iterate=iterate, n_estimators=40, learning_rate=0.3, n_jobs=1,
        measure_on="crossfit", **CLASSES[library], **deep,
    )  # fmt: skip
    clf.fit(np.c_[X, group], y, sensitive_features={"g": group})
    report = clf.constraint_report_.loc[0]
    if iterate == "last" and rule == (gc.selection_rate() <= 0.2):
        assert report["train"] > rule.bound + 0.04
    assert clf.feasibility_.refuted == ()


def test_what_training_rows_say_of_shares_of_predictions():
    """Labels must not be looked at, and what the boosters memorise is taken off."""
    rng = np.random.default_rng(1)
    rules = [
        gc.selection_rate() <= 0.3,
        gc.gap(gc.selection_rate(), by="g") <= 0.1,
        gc.selection_rate(on=gc.label(1)) <= 0.3,
        gc.gap(gc.fpr(), by="g") <= 0.1,
        gc.selection_rate(on={"g": 1}) - 0.1 * gc.fpr() <= 0.1,
    ]
    assert [rule.is_of_predictions for rule in rules] == [True, True, False, False, False]
    compiled, cells, folds, decided = draw_decisions_of_folds(rng, [(0.2, 0.6)] * 2, rules=rules)
    counts = CellCounts.of(cells, decided)
    assert not find_training_violations(compiled, counts).any()
    none = np.zeros(len(compiled))
    expected = [True, True, False, False, False]
    np.testing.assert_array_equal(find_training_violations(compiled, counts, none), expected)
    unknown = np.full(len(compiled), np.nan)
    assert not find_training_violations(compiled, counts, unknown).any()
    # By hand: all boosters select 0.2 and 0.6 of their own rows, and 0.25 of any others.
    unseen = functionals_of(compiled, CellCounts.of(cells, rng.permutation(8000) < 2000))
    lost = estimate_optimism_of_decisions(
        compiled, cells, [(f, decided[f]) for f in folds], unseen
    )
    assert lost[0] == pytest.approx(0.25 - decided.mean(), abs=1e-12)
    group = np.asarray(cells.rows.attribute(("g",)).codes)
    apart = decided[group == 1].mean() - decided[group == 0].mean()
    assert np.abs(lost[compiled.owner == 1]).max() == pytest.approx(apart, abs=0.03)
    assert not find_training_violations(compiled, counts, lost).any()


@pytest.mark.usefixtures("one_pass")
@pytest.mark.parametrize(
    ("constraints", "leaves", "named"),
    [
        ([gc.fnr() + 1e-9 * gc.fpr() <= 0.05, gc.log_loss() <= 10.0], 31, "refuted"),
        ([gc.fnr() <= 0.05], 8, "unsteady"),
    ],
)
def test_constraints_that_the_folds_miss_are_doubted_as_well(constraints, leaves, named):
    """Steps so short that all rows have nearly one score: they are decided one way together.

    Beside a constraint on a mean loss the threshold is not carried over to the model of all rows.
    """
    rng = np.random.default_rng(0)
    X = rng.normal(size=(800, 5))
    y = (X[:, 0] + 0.7 * X[:, 1] + rng.normal(size=800) > 0.8).astype(int)
    clf = CLASSIFIERS["lightgbm"](
        constraints=constraints, max_delta_step=0.1, n_estimators=200, num_leaves=leaves,
        random_state=0, n_jobs=1, verbose=-1, solver="abpp",
    )  # fmt: skip
    with pytest.warns(
        gc.FragileConstraintsWarning, match="These constraints are missed|folds miss these"
    ):
        clf.fit(X, y)
    report, found = clf.constraint_report_.loc[0], clf.feasibility_
    assert report["held_out"] > 0.05
    assert not report["satisfied"]
    assert found.status == "cannot be told"
    (doubted,) = getattr(found, named)
    assert not doubted.is_met
    assert str(constraints[0]) in found.message


def test_optimism_is_the_share_of_the_difference_that_more_rows_leave():
    training = [np.array([0.1, 0.3]), np.array([0.2, 0.1])]
    found = estimate_optimism(np.array([0.25, 0.2]), training, 0.8)
    np.testing.assert_allclose(found, [0.08, 0.0], atol=1e-15)
    assert estimate_optimism(0.3, [0.1, 0.2]) == pytest.approx(0.15)


@pytest.mark.parametrize("lost", [0.0, 0.02, 0.3])
def test_a_refit_violation_is_beyond_sampling_error(lost):
    """By hand: the normal limit of the difference of two rates."""
    y, group = np.arange(4000) % 2, np.arange(4000) // 2 % 2
    rules = [gc.gap(gc.error_rate(), by="g") <= 0.1]
    cells, compiled = compile_constraints(rules, Rows(y, np.arange(2), columns={"g": group}))
    wrong = np.where(group == 1, np.arange(4000) % 20 < 4, np.arange(4000) % 20 < 2)
    counts = CellCounts.of(cells, np.where(wrong, 1 - y, y))
    rates = [wrong[group == g].mean() for g in (0, 1)]
    spread = np.sqrt(sum(p * (1 - p) / 2000 for p in rates))
    values = functionals_of(compiled, counts)
    found = refit_violation(compiled, counts, values, np.full(2, lost))
    signed = np.array([rates[0] - rates[1], rates[1] - rates[0]]) + lost - 0.1
    expected = np.where(signed > stats.norm.isf(0.025) * spread, signed, 0.0)
    np.testing.assert_allclose(np.sort(found), np.sort(expected), atol=1e-12)
    assert (found > 0.0).any() == (lost == 0.3 or signed.max() > stats.norm.isf(0.025) * spread)


def test_optimism_of_decisions_is_measured_only_where_it_is_needed():
    rng = np.random.default_rng(1)
    rules = [gc.selection_rate() <= 0.3, gc.fpr() <= 0.9]
    asked = []

    def optimism():
        asked.append(True)
        return np.array([-0.2, 0.0])

    compiled, cells, _, decided = draw_decisions_of_folds(rng, [0.2], rules=rules)
    counts = CellCounts.of(cells, decided)
    assert not find_refit_violations(compiled, counts, None, optimism).any()
    assert not asked
    counts = CellCounts.of(cells, (rng.random(8000) < 0.4).astype(int))
    assert not find_refit_violations(compiled, counts, None, optimism).any()
    assert asked
    counts = CellCounts.of(cells, (rng.random(8000) < 0.6).astype(int))
    found = find_refit_violations(compiled, counts, None, optimism)
    np.testing.assert_array_equal(found, [True, False])
