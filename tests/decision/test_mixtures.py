"""Which prefix of an ensemble is kept, or with which probability each is drawn."""

from __future__ import annotations

import pickle
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, quiet
from hypothesis import given, settings
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays
from scipy.optimize import linprog
from sklearn.metrics import log_loss as mean_log_loss

from gbm_constrained import (
    ConstrainedLogisticRegression,
    InfeasibleConstraintsWarning,
    error_rate,
    fnr,
    fpr,
    gap,
    selection_rate,
)
from gbm_constrained.decision.mixtures import find_best_prefix, find_last_prefix, find_mixture
from gbm_constrained.solvers import AutoSolver

# --- the choice by itself -----------------------------------------------------------------------


def interior(c, violations, slack=False):
    """Least cost over all mixtures that meet the constraints, by an interior-point method.

    With `slack`, the smallest largest expected violation instead; None where there is nothing.
    """
    n, m = violations.shape
    extra = np.full((m, 1), -1.0 if slack else 0.0)
    found = linprog(
        np.append(np.zeros(n), 1.0) if slack else np.append(c, 0.0),
        A_ub=np.hstack([violations.T, extra]),
        b_ub=np.zeros(m),
        A_eq=np.append(np.ones(n), 0.0)[None],
        b_eq=[1.0],
        bounds=[(0, None)] * n + [(None, None) if slack else (0, 0)],
        method="highs-ipm",
        # Where prefixes violate rules by about as much, errors hang on the digits beyond 1e-7.
        options={"primal_feasibility_tolerance": 1e-10, "ipm_optimality_tolerance": 1e-12},
    )
    return found.fun if found.success else None


@st.composite
def tables(draw):
    """Errors and violations: fractions of few rows, which tie often, or numbers of five digits.

    A linear programme is solved to 1e-7: it cannot tell finer ones apart.
    """
    n, m = draw(st.integers(1, 12)), draw(st.integers(1, 4))
    kind = draw(st.sampled_from(["fractions", "numbers"]))
    low = draw(st.sampled_from([-20, -8, 0, 1]))
    if kind == "fractions":
        errors = draw(arrays(np.int64, n, elements=st.integers(0, 20))) / 20
        violations = draw(arrays(np.int64, (n, m), elements=st.integers(low, 20))) / 40
        return errors, violations
    unit = st.floats(0, 1, allow_subnormal=False)
    errors, violations = draw(arrays(float, n, elements=unit)), draw(
        arrays(float, (n, m), elements=unit)
    )  # fmt: skip
    return np.round(errors, 5), np.round(violations, 5) + low / 40


@settings(max_examples=150, deadline=None)
@given(tables())
def test_best_prefix_by_trying_all(table):
    """The last of least error among the feasible, or the least infeasible."""
    errors, violations = table
    chosen = find_best_prefix(errors, violations)
    worst = [max(0.0, *row) for row in violations.tolist()]
    feasible = [t for t, w in enumerate(worst) if w <= 1e-12]
    cost = errors if feasible else worst
    candidates = feasible or range(len(errors))
    least = min(cost[t] for t in candidates)
    assert chosen == max(t for t in candidates if cost[t] == least)


@settings(max_examples=150, deadline=None)
@given(tables())
def test_last_prefix_by_trying_all(table):
    """The very last if feasible; else the last of the least infeasible in the later half."""
    _, violations = table
    chosen = find_last_prefix(violations)
    worst = [max(0.0, *row) for row in violations.tolist()]
    n = len(worst)
    if worst[-1] <= 1e-12:
        assert chosen == n - 1
        return
    late = [t for t in range(n) if 2 * t >= n - 1]  # as few as make a half
    assert chosen == max(t for t in late if worst[t] == min(worst[i] for i in late))


@settings(max_examples=150, deadline=None)
@given(tables())
def test_mixture_is_the_optimum_of_the_linear_programme(table):
    errors, violations = table
    n, m = violations.shape
    chosen, probability = find_mixture(errors, violations)
    assert chosen.size == probability.size <= m + 1
    assert (np.diff(chosen) > 0).all()
    assert chosen.min() >= 0
    assert chosen.max() < n
    assert (probability > 0).all()
    assert probability.sum() == pytest.approx(1, abs=1e-12)
    expected = probability @ violations[chosen]
    excess = max(0.0, interior(errors, violations, slack=True))
    assert expected.max() <= excess + 1e-7
    if excess < 1e-7:
        excess = 0.0
    optimum = interior(errors, violations - excess)
    if optimum is not None:
        assert probability @ errors[chosen] == pytest.approx(optimum, abs=1e-5)


def test_rules_met_in_the_mean_are_met_to_rounding():
    """Reports count a violation of 1e-12; nor is a prefix kept whose probability is nothing."""
    rng = np.random.default_rng(0)
    mixed = 0
    for _ in range(300):
        n, m = rng.integers(2, 40), rng.integers(1, 6)
        errors, violations = rng.random(n), rng.integers(-9, 20, (n, m)) / rng.integers(37, 500)
        chosen, probability = find_mixture(errors, violations)
        expected = (probability @ violations[chosen]).max()
        assert expected <= 1e-13 or expected > 1e-6
        assert probability.min() > 1e-6
        mixed += violations.max(axis=1).min() > 0 and expected <= 1e-13
    assert mixed > 20, "no rule is met by a mixture only, so that nothing is proved"


@settings(max_examples=100, deadline=None)
@given(tables())
def test_mixture_under_one_constraint_by_trying_all_pairs(table):
    """Two prefixes are enough: the best pair whose mean meets the bound."""
    errors, violations = table
    g = violations[:, 0]
    chosen, probability = find_mixture(errors, g[:, None])
    found = probability @ errors[chosen]
    if g.min() > 0:
        assert probability @ g[chosen] == pytest.approx(g.min(), abs=1e-7)
        near = errors[g <= g.min() + 1e-12].min()
        assert found <= near + 1e-7
        return
    best = errors[g <= 0].min()
    for low in np.flatnonzero(g < 0):
        for high in np.flatnonzero(g > 0):
            share = g[high] / (g[high] - g[low])
            best = min(best, share * errors[low] + (1 - share) * errors[high])
    assert found == pytest.approx(best, abs=1e-6)
    assert probability @ g[chosen] <= 1e-7


def test_mixture_by_hand():
    errors = np.array([0.1, 0.4, 0.2])
    violations = np.array([[0.1, -0.1], [-0.3, -0.3], [0.1, 0.3]])
    assert find_best_prefix(errors, violations) == 1
    chosen, probability = find_mixture(errors, violations)
    assert chosen.tolist() == [0, 1]
    np.testing.assert_allclose(probability, [0.75, 0.25], atol=1e-9)
    # None is feasible: the largest expected violation is least at equal parts of the two.
    chosen, probability = find_mixture(np.array([0.1, 0.2]), np.array([[0.3, 0], [0, 0.3]]))
    np.testing.assert_allclose(probability, [0.5, 0.5], atol=1e-6)
    assert find_best_prefix(np.array([0.1, 0.2]), np.array([[0.3, 0], [0, 0.2]])) == 1
    # Each violates one rule, and their mean meets both.
    chosen, probability = find_mixture(np.array([0.1, 0.2]), np.array([[0.2, -0.4], [-0.2, 0.2]]))
    np.testing.assert_allclose(probability, [0.5, 0.5], atol=1e-9)


# --- in a fit -----------------------------------------------------------------------------------

DEFAULTS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1},
}
ROUNDS = 61
LENGTHS = range(ROUNDS, ROUNDS + 20, 2)  # the last iterate of some is not the best
OPTIONS = {
    "n_estimators": ROUNDS,
    "learning_rate": 0.3,
    "solver": AutoSolver(rounds_per_iteration=2),
    "measure_on": "train",  # what is chosen by unseen rows is tested in test_decision.py
}
RULES = [
    fnr() <= 0.1,
    fpr() <= 0.3,
    gap(selection_rate(), min_group_size=1) <= 0.05,
]
TIGHT = [fnr() <= 0.01, fpr() <= 0.03, gap(selection_rate(), min_group_size=1) <= 0.01]


def make(library, rules=RULES, **options):
    options = {**DEFAULTS[library], **OPTIONS, **options}
    return CLASSIFIERS[library](constraints=rules, **options)


def first(library, rounds):
    """Argument of predict for the first rounds."""
    if library == "xgboost":
        return {"iteration_range": (0, int(rounds))}
    return {"num_iteration": int(rounds)}


def plain(library, model, tmp_path):
    """The saved model, read by the library alone."""
    if library == "xgboost":
        model.save_model(tmp_path / "model.json")
        loaded = xgb.XGBClassifier()
        loaded.load_model(tmp_path / "model.json")
        return lambda X: loaded.predict_proba(X)[:, 1]
    model.booster_.save_model(tmp_path / "model.txt")
    return lgb.Booster(model_file=tmp_path / "model.txt").predict


@pytest.fixture(scope="module")
def problem():
    """Two groups, and labels that are a coin's in a third of the rows: rules cost errors."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 700)
    X = rng.normal(size=(700, 5))
    X[:, 0] += 0.8 * sex
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.8 * rng.normal(size=700) > 0.7).astype(int)
    rng = np.random.default_rng(1)
    return X, np.where(rng.random(700) < 0.33, rng.integers(0, 2, 700), y), sex


def split(problem, n=200):
    """Training rows, and what held-out rows are given as."""
    X, y, sex = problem
    given = {
        "sensitive_features": sex[n:],
        "eval_set": [(X[:n], y[:n])],
        "sensitive_features_eval_set": [sex[:n]],
    }
    return X[n:], y[n:], sex[n:], (X[:n], y[:n], sex[:n]), given


def functionals(decisions, y, sex):
    """Rates that the rules speak of: misses, alarms, selected of each group."""
    return np.array([
        (decisions == 0)[y == 1].mean(),
        decisions[y == 0].mean(),
        decisions[sex == 0].mean(),
        decisions[sex == 1].mean(),
    ])  # fmt: skip


def values(rates):
    return [rates[0], rates[1], abs(rates[2] - rates[3])]


@BOTH
@pytest.mark.parametrize("rules", [RULES, TIGHT], ids=["some", "none"])
def test_best_is_a_prefix_and_reported_as_such(library, rules, problem, tmp_path):
    """The model is cut at the best iteration; the reports and its file are those of the rest."""
    X, y, sex, held, given = split(problem)
    for n_estimators in LENGTHS:
        options = {"n_estimators": n_estimators}
        last = make(library, rules, **options).fit(X, y, **given, **quiet(library))
        history = last.history_.iloc[1:]
        worst = np.max(
            [np.maximum(history[f"value[{rule}]"] - rule.bound, 0) for rule in rules], axis=0
        )
        cost = np.where(worst <= 1e-12, history.error, 10.0 + worst)
        rounds = int(history["rounds"].iloc[cost.size - 1 - cost[::-1].argmin()])
        assert (worst <= 1e-12).any() == (rules is RULES)
        if rounds < n_estimators:
            break
    else:
        pytest.fail("never a prefix, so that nothing is proved")
    best = make(library, rules, iterate="best", **options).fit(X, y, **given, **quiet(library))
    booster = best.get_booster() if library == "xgboost" else best.booster_
    grown = booster.num_boosted_rounds() if library == "xgboost" else booster.current_iteration()
    assert grown == rounds
    for part in (X, held[0]):
        expected = last.predict_proba(part, **first(library, rounds))
        np.testing.assert_array_equal(best.predict_proba(part), expected)
        np.testing.assert_allclose(plain(library, best, tmp_path)(part), expected[:, 1], atol=1e-7)
    report = best.constraint_report_
    for name, rows in (("train", (X, y, sex)), ("held_out", held)):
        rates = functionals(best.predict(rows[0]), *rows[1:])
        np.testing.assert_allclose(report[name], values(rates)[: len(rules)], atol=1e-9)
        if rules is RULES:
            np.testing.assert_allclose(best.group_report_[name], rates[2:], atol=1e-9)
    assert best.history_["rounds"].iloc[-1] == rounds
    reached = history[history["rounds"] == rounds].iloc[0]
    for name in ("error", "objective", *(f"value[{rule}]" for rule in rules)):
        assert best.history_[name].iloc[-1] == pytest.approx(reached[name], rel=1e-5), name
    if rules is RULES:
        assert report.train_satisfied.all()
    assert not hasattr(best, "prefixes_")


@BOTH
@pytest.mark.parametrize("rules", [RULES, TIGHT], ids=["some", "none"])
def test_last_steps_back_to_where_rules_were_met(library, rules, problem):
    """Whatever the last round is: kept if feasible, and else the least violating late one is."""
    X, y, sex = problem
    bounds = [rule.bound for rule in rules]
    stepped_back = 0
    for n in range(20, 62, 2):
        clf = make(library, rules, n_estimators=n).fit(X, y, sensitive_features=sex)
        whole = make(library, rules, n_estimators=n, iterate="randomized")
        whole.fit(X, y, sensitive_features=sex)
        violation = {}
        for r in range(2, n + 1, 2):
            reached = values(functionals(whole.predict(X, **first(library, r)), y, sex))
            violation[r] = max(0.0, *np.subtract(reached, bounds).round(12))
        kept = int(clf.history_["rounds"].iloc[-1])
        grown = clf.get_booster().num_boosted_rounds() if library == "xgboost" else clf.n_iter_
        assert grown == kept
        report = clf.constraint_report_
        assert max(0.0, *(report.train - bounds).round(12)) == violation[kept]
        late = [r for r in violation if r / 2 - 1 >= int(0.5 * (n // 2))]
        least = min(violation[r] for r in late)
        assert kept == (n if violation[n] == 0 else max(r for r in late if violation[r] == least))
        stepped_back += kept < n
    assert stepped_back >= 2, "every last iterate was kept, so that nothing is proved"


@BOTH
def test_best_may_be_the_last(library, problem):
    """Nothing is cut where no prefix is better; a vacuous rule asks for the least error."""
    X, y, _ = problem
    best = make(library, [fnr() <= 1.0], iterate="best").fit(X, y)
    last = make(library, [fnr() <= 1.0]).fit(X, y)
    rounds = int(best.history_["rounds"].iloc[-1])
    errors = [
        np.mean(last.predict(X, **first(library, r)) != y) for r in last.history_["rounds"][1:]
    ]
    assert np.mean(best.predict(X) != y) == min(errors)
    np.testing.assert_array_equal(
        best.predict_proba(X), last.predict_proba(X, **first(library, rounds))
    )


@BOTH
@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_early_stopping_limits_the_prefixes(library, iterate, problem):
    X, y, sex, held, given = split(problem)
    stopping = {"early_stopping_rounds": 6} if library == "xgboost" else {}
    if library == "lightgbm":
        given["callbacks"] = [lgb.early_stopping(6, verbose=False)]
    options = {"n_estimators": 200, "solver": AutoSolver(rounds_per_iteration=1), **stopping}
    last = make(library, **options).fit(X, y, **given, **quiet(library))
    stopped = last.best_iteration + 1 if library == "xgboost" else last.best_iteration_
    assert stopped < 190
    fitted = make(library, iterate=iterate, **options).fit(X, y, **given, **quiet(library))
    if iterate == "best":
        chosen = [int(fitted.history_["rounds"].iloc[-1])]
        probability = [1.0]
        expected = last.predict_proba(X, **first(library, chosen[0]))
        np.testing.assert_array_equal(fitted.predict_proba(X), expected)
    else:
        chosen, probability = fitted.prefixes_["rounds"], fitted.prefixes_["probability"]
        np.testing.assert_array_equal(fitted.predict_proba(X), last.predict_proba(X))
    assert max(chosen) <= stopped
    for name, rows in (("train", (X, y, sex)), ("held_out", held)):
        rates = sum(
            p * functionals(last.predict(rows[0], **first(library, r)), *rows[1:])
            for r, p in zip(chosen, probability, strict=True)
        )
        np.testing.assert_allclose(fitted.constraint_report_[name], values(rates), atol=1e-6)


@BOTH
def test_randomized_report_is_the_expectation(library, problem, tmp_path):
    """Training, held-out and group rates are means over prefixes, and meet what can be met."""
    X, y, sex, held, given = split(problem)
    fitted = make(library, iterate="randomized").fit(X, y, **given, **quiet(library))
    prefixes = fitted.prefixes_
    assert prefixes["probability"].sum() == pytest.approx(1, abs=1e-12)
    assert len(prefixes) <= 1 + len(fitted.multipliers_)
    assert set(prefixes["rounds"]) <= set(fitted.history_["rounds"][1:])
    for name, rows in (("train", (X, y, sex)), ("held_out", held)):
        rates = sum(
            p * functionals(fitted.predict(rows[0], **first(library, r)), *rows[1:])
            for r, p in prefixes.itertuples(index=False)
        )
        np.testing.assert_allclose(fitted.constraint_report_[name], values(rates), atol=1e-9)
        np.testing.assert_allclose(fitted.group_report_[name], rates[2:], atol=1e-9)

    # No mixture of prefixes has a smaller error, and one that meets the rules is found.
    history = fitted.history_.iloc[1:]
    decided = np.array([fitted.predict(X, **first(library, r)) for r in history["rounds"]])
    all_rates = np.array([functionals(d, y, sex) for d in decided])
    rows = np.column_stack([
        all_rates[:, 0] - 0.1,
        all_rates[:, 1] - 0.3,
        all_rates[:, 2] - all_rates[:, 3] - 0.05,
        all_rates[:, 3] - all_rates[:, 2] - 0.05,
    ])  # fmt: skip
    errors = (decided != y).mean(axis=1)
    optimum = interior(errors, rows)
    assert optimum is not None
    error = sum(
        p * np.mean(fitted.predict(X, **first(library, r)) != y)
        for r, p in prefixes.itertuples(index=False)
    )
    assert error == pytest.approx(optimum, abs=1e-6)
    assert fitted.constraint_report_.train_satisfied.all()
    whole = fitted.predict_proba(X, **first(library, ROUNDS))
    np.testing.assert_array_equal(fitted.predict_proba(X), whole)
    np.testing.assert_allclose(plain(library, fitted, tmp_path)(X), whole[:, 1], atol=1e-7)


@BOTH
def test_randomized_where_no_prefix_is_feasible(library, problem):
    """The mean of two prefixes may meet rules that neither does; error is then no objective."""
    X, y, *_ = split(problem)
    fitted = make(library, [fnr() <= 0.03, fpr() <= 0.03], iterate="randomized", n_estimators=9)
    with pytest.warns(InfeasibleConstraintsWarning, match="No mixture") as told:
        fitted.fit(X, y)
    counted = []
    for rounds in (2, 4, 6, 8, 9):
        decided = fitted.predict(X, **first(library, rounds))
        counted.append(
            [np.mean(decided[y == 1] == 0) - 0.03, np.mean(decided[y == 0] == 1) - 0.03]
        )
    violations = np.array(counted)
    assert violations.max(axis=1).min() > 0
    excess = (fitted.constraint_report_.train - fitted.constraint_report_.bound).max()
    assert excess == pytest.approx(max(0.0, interior(None, violations, slack=True)), abs=1e-6)
    assert f"by {excess:.3g}." in str(told[0].message)


@pytest.mark.parametrize(
    ("seed", "bound", "is_met"), [(2, 0.26, True), (3, 0.1, True), (2, 0.1, False)]
)
def test_gaps_that_no_mixture_closes_further_are_held_at_their_bounds(seed, bound, is_met):
    """Multipliers aim inside of them; what is said to be violated is the bound that was asked."""
    rng = np.random.default_rng(seed)
    X, sex = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    y = (X[:, 0] + 0.9 * sex + rng.normal(size=400) > 0.3).astype(int)
    options = {"num_leaves": 7, "learning_rate": 0.5, "n_estimators": 6, "iterate": "randomized"}
    model = make("lightgbm", [gap(fpr(), by="sex") <= bound], measure_on="crossfit", **options)
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(np.column_stack([X, sex]), y, sensitive_features={"sex": sex})
    value = model.constraint_report_.held_out[0]
    assert (value <= bound) == is_met
    gaps = model.history_[f"held_out[gap(fpr, by='sex') <= {bound}]"].to_numpy()[1:]
    assert is_met or value == pytest.approx(gaps.min(), abs=1e-9)
    found = [str(w.message) for w in told if w.category is InfeasibleConstraintsWarning]
    assert len(found) == (not is_met)
    assert is_met or f"by {value - bound:.3g}." in found[0]


@BOTH
@pytest.mark.parametrize("measured", ["crossfit", "holdout", "watched"])
@pytest.mark.parametrize(
    ("n", "bounds", "draws"), [(6, (1.0, 0.9), 1), (6, (0.25, 0.1), 2), (7, (0.25, 0.1), 2)]
)
def test_the_whole_ensemble_is_among_what_unseen_rows_choose_from(
    library, measured, n, bounds, draws, problem, conclusions
):
    """It begins no iteration of the boosters; an evaluation set has seen it where it ends one.

    The mixture and its rates are those of decisions that are counted here.
    """
    X, y, _, held, given = split(problem)
    watched = measured == "watched"
    given = {"eval_set": given["eval_set"]} if watched else {}
    options = {
        "n_estimators": n,
        "solver": AutoSolver(rounds_per_iteration=3),
        "learning_rate": 0.09,
    }
    options["measure_on"] = "holdout" if watched else measured
    lengths = sorted({3, 6, n})
    rules = [fnr() <= bounds[0], fpr() <= bounds[1]]
    fitted = make(library, rules, iterate="randomized", random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", InfeasibleConstraintsWarning)
        fitted.fit(X, y, **given, **quiet(library))
    if watched:
        labels = held[1]
        decided = [fitted.predict(held[0], **first(library, r)) for r in lengths]
    else:
        boosters = conclusions[-1].fit.measured.boosters
        labels = y[boosters.controller.rows]
        decided = [(boosters.held_margin(r) > 0).astype(int) for r in lengths]
    rates = np.array([[np.mean(d[labels == 1] == 0), d[labels == 0].mean()] for d in decided])
    errors = np.array([np.mean(d != labels) for d in decided])
    chosen, probability = find_mixture(errors, rates - bounds)
    assert chosen.size == draws
    assert lengths[chosen[-1]] == n, "another prefix is better, so that nothing is proved"
    assert fitted.prefixes_["rounds"].tolist() == [lengths[t] for t in chosen]
    np.testing.assert_allclose(fitted.prefixes_["probability"], probability, atol=1e-6)
    expected = probability @ rates[chosen]
    np.testing.assert_allclose(fitted.constraint_report_.held_out, expected, atol=1e-6)
    last = fitted.history_.iloc[-1]
    np.testing.assert_allclose([last[f"held_out[{r}]"] for r in rules], expected, atol=1e-6)


@BOTH
def test_history_ends_with_the_returned_classifier(library, problem):
    """Values of the last row are expectations, as in the report; so is the error."""
    X, y, _, _, given = split(problem)
    for n_estimators in LENGTHS:
        fitted = make(library, iterate="randomized", n_estimators=n_estimators)
        fitted.fit(X, y, **given, **quiet(library))
        if len(fitted.prefixes_) > 1:
            break
    else:
        pytest.fail("never a mixture, so that nothing is proved")
    last, report = fitted.history_.iloc[-1], fitted.constraint_report_
    assert last["rounds"] == n_estimators
    for column, name in (("value", "train"), ("held_out", "held_out")):
        found = [last[f"{column}[{rule}]"] for rule in RULES]
        np.testing.assert_allclose(found, report[name], atol=1e-12)
    error = sum(
        p * np.mean(fitted.predict(X, **first(library, r)) != y)
        for r, p in fitted.prefixes_.itertuples(index=False)
    )
    assert last["error"] == pytest.approx(error, abs=1e-9)


def test_a_warning_of_predict_is_given_once(problem):
    """And not for each prefix that is asked: LightGBM's, of rows without names of columns."""
    X, y, *_ = split(problem)
    frame = pd.DataFrame(X, columns=[f"f{j}" for j in range(X.shape[1])])
    rules = [fnr() <= 0.03, fpr() <= 0.03]
    fitted = make("lightgbm", rules, iterate="randomized", n_estimators=9).fit(frame, y)
    assert len(fitted.prefixes_) > 1
    with pytest.warns(UserWarning, match="X does not have valid feature names") as told:
        fitted.predict(X)
    assert len(told) == 1


@BOTH
def test_rows_are_drawn_independently_by_the_probabilities(library, problem):
    """Reproducible for a seed; over seeds the mean decision is that of the prefixes."""
    X, y, *_ = split(problem)
    rules = [fnr() <= 0.03, fpr() <= 0.03]  # early prefixes differ in many rows
    fitted = make(library, rules, iterate="randomized", n_estimators=9).fit(X, y)
    prefixes = fitted.prefixes_
    assert len(prefixes) > 1
    decided = np.array([fitted.predict(X, **first(library, r)) for r in prefixes["rounds"]])
    expected = prefixes["probability"].to_numpy() @ decided
    disputed = np.flatnonzero((expected > 0.01) & (expected < 0.99))
    assert disputed.size > 5
    rows = X[disputed]
    drawn = np.array([fitted.predict(rows, random_state=seed) for seed in range(250)])
    spread = np.sqrt(expected * (1 - expected) / 250)[disputed]
    assert (abs(drawn.mean(axis=0) - expected[disputed]) < 5 * spread).all()
    total = drawn.sum(axis=1)
    variance = (expected * (1 - expected))[disputed].sum()  # of independent rows
    assert 0.5 * variance < total.var() < 2 * variance
    np.testing.assert_array_equal(drawn[0], fitted.predict(rows, random_state=0))
    state = np.random.RandomState(0)
    np.testing.assert_array_equal(drawn[0], fitted.predict(rows, random_state=state))
    assert (fitted.predict(rows, random_state=state) != drawn[0]).any()
    copy = pickle.loads(pickle.dumps(fitted))
    np.testing.assert_array_equal(copy.predict(rows, random_state=0), drawn[0])
    np.testing.assert_array_equal(fitted.predict_proba(X), fitted.predict_proba(X))
    unanimous = (decided == decided[0]).all(axis=0)
    np.testing.assert_array_equal(fitted.predict(X)[unanimous], decided[0][unanimous])


@BOTH
def test_random_state_is_refused_where_nothing_is_drawn(library, problem):
    X, y, sex, *_ = split(problem)
    given = {"sensitive_features": sex}
    message = "random_state=0 draws from the prefixes"
    fitted = make(library, [fnr() <= 0.1], iterate="randomized").fit(X, y)
    fitted.predict(X, random_state=0)
    raw = {"output_margin": True} if library == "xgboost" else {"raw_score": True}
    for options in (first(library, 4), raw):
        with pytest.raises(ValueError, match=message):
            fitted.predict(X, random_state=0, **options)
    for iterate in ("last", "best", "ergodic"):
        fitted.set_params(iterate=iterate, constraints=RULES).fit(X, y, **given)
        assert not hasattr(fitted, "prefixes_"), "of an earlier fit"
        with pytest.raises(ValueError, match=message):
            fitted.predict(X, random_state=0)
    options = {"measure_on": "crossfit", "probabilities": "calibrated"}
    beside = make(library, [fnr() <= 0.02], **options).fit(X, y)
    assert beside.shift_.any(), "a threshold stands beside the model"
    with pytest.raises(ValueError, match=message):
        beside.predict(X, random_state=0)
    fitted.set_params(iterate="randomized").fit(X, y, **given)
    assert hasattr(fitted, "prefixes_")
    fitted.set_params(constraints=None).fit(X, y)
    assert not hasattr(fitted, "prefixes_")
    with pytest.raises(ValueError, match=message):
        fitted.predict(X, random_state=0)


@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_what_has_no_prefixes_is_refused(iterate, problem):
    X, y, _ = problem
    rule = [fnr() <= 0.1]
    for model, message in (
        (make("xgboost", rule, iterate=iterate, booster="dart"), "booster='dart'"),
        (make("lightgbm", rule, iterate=iterate, boosting_type="dart"), "boosting_type='dart'"),
        (make("lightgbm", rule, iterate=iterate, boosting="dart"), "boosting_type='dart'"),
        (ConstrainedLogisticRegression(constraints=rule, iterate=iterate), "linear model"),
    ):
        with pytest.raises(ValueError, match=rf"iterate='{iterate}'.*{message}"):
            model.fit(X, y)


@BOTH
@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_continued_training(library, iterate, problem):
    """Prefixes are counted from the first round of the earlier model, which is in all of them."""
    X, y, sex, held, given = split(problem)
    earlier = make(library, [], n_estimators=5, learning_rate=0.1).fit(X, y)
    name = "xgb_model" if library == "xgboost" else "init_model"
    begin = {name: earlier.get_booster() if library == "xgboost" else earlier.booster_}
    last = make(library).fit(X, y, **begin, **given, **quiet(library))
    fitted = make(library, iterate=iterate).fit(X, y, **begin, **given, **quiet(library))
    if iterate == "best":
        chosen = [5 + int(fitted.history_["rounds"].iloc[-1])]
        probability = [1.0]
        expected = last.predict_proba(X, **first(library, chosen[0]))
        np.testing.assert_allclose(fitted.predict_proba(X), expected, atol=1e-7)
        booster = fitted.get_booster() if library == "xgboost" else fitted.booster_
        count = booster.num_boosted_rounds if library == "xgboost" else booster.current_iteration
        assert count() == chosen[0]
    else:
        chosen, probability = fitted.prefixes_["rounds"], fitted.prefixes_["probability"]
        fitted.predict(X, random_state=0)
    assert min(chosen) > 5
    for column, rows in (("train", (X, y, sex)), ("held_out", held)):
        rates = sum(
            p * functionals(last.predict(rows[0], **first(library, r)), *rows[1:])
            for r, p in zip(chosen, probability, strict=True)
        )
        np.testing.assert_allclose(fitted.constraint_report_[column], values(rates), atol=1e-9)


@pytest.mark.parametrize(
    ("iterate", "bound", "gain"), [("best", 0.1, 4.0), ("randomized", 0.05, 8.0)]
)
def test_rounds_that_grow_no_tree(iterate, bound, gain, problem):
    """LightGBM keeps no tree where no split pays; prefixes are still those that were measured."""
    X, y, _, held, given = split(problem)
    rule = [fnr() <= bound]
    options = {
        "min_split_gain": gain,
        "n_estimators": 60,
        "solver": AutoSolver(rounds_per_iteration=1),
    }
    del given["sensitive_features"], given["sensitive_features_eval_set"]
    last = make("lightgbm", rule, **options).fit(X, y, **given)
    grown = last.booster_.current_iteration()
    assert 5 < grown < 55, "every round grew a tree, so that nothing is proved"
    fitted = make("lightgbm", rule, iterate=iterate, **options).fit(X, y, **given)
    report = fitted.constraint_report_
    for column, rows in (("train", (X, y)), ("held_out", held)):
        if iterate == "best":
            assert fitted.booster_.current_iteration() < grown, "nothing is cut"
            missed = (fitted.predict(rows[0]) == 0)[rows[1] == 1].mean()
        else:
            assert fitted.prefixes_["rounds"].max() <= grown
            missed = sum(
                p * (last.predict(rows[0], num_iteration=int(r)) == 0)[rows[1] == 1].mean()
                for r, p in fitted.prefixes_.itertuples(index=False)
            )
        assert report[column][0] == pytest.approx(missed, abs=1e-9)
    objective = mean_log_loss(y, fitted.predict_proba(X))
    assert fitted.history_["objective"].iloc[-1] == pytest.approx(objective, rel=1e-5)


@BOTH
def test_three_classes_with_names(library, problem):
    """Draws are labels of y."""
    X, y, sex, *_ = split(problem)
    y = y + (X[:, 3] > 1)
    labels = y if library == "xgboost" else np.array(["low", "mid", "top"])[y]
    rules = [gap(error_rate(), min_group_size=1) <= 0.02, error_rate() <= 0.2]
    for iterate in ("best", "randomized"):
        fitted = make(library, rules, iterate=iterate, n_estimators=15)
        fitted.fit(X, labels, sensitive_features=sex)
        seed = {"random_state": 0} if iterate == "randomized" else {}
        decisions = fitted.predict(X, **seed)
        assert set(decisions) <= set(labels)
        assert (decisions != labels).mean() <= 0.25
