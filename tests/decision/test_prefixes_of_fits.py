"""Prefixes that a fit returns by its training rows, and randomised mixtures of them."""

from __future__ import annotations

import pickle
import warnings

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
from helpers import EITHER, quiet
from prefix_problem import LENGTHS, ROUNDS, RULES, first, functionals, make, plain, split, values
from references import solve_mixture
from sklearn.metrics import log_loss as mean_log_loss

import gbm_constrained as gc
from gbm_constrained.decision.rules import find_mixture
from gbm_constrained.solvers import AutoSolver

TIGHT = [
    gc.fnr() <= 0.01,
    gc.fpr() <= 0.03,
    gc.gap(gc.selection_rate(), min_group_size=1, small_groups="hold") <= 0.01,
]


@EITHER
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


@EITHER
@pytest.mark.parametrize("rules", [RULES, TIGHT], ids=["some", "none"])
def test_last_steps_back_to_where_rules_were_met(library, rules, problem):
    """Whatever the last round is: kept if feasible, and else the least violating late one is."""
    X, y, sex = problem
    bounds = [rule.bound for rule in rules]
    stepped_back = 0
    for n in range(20, 62, 4):
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
        if stepped_back == 2:
            break
    assert stepped_back == 2, "every last iterate was kept, so that nothing is proved"


@EITHER
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


@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_prefixes_of_the_linear_model_are_refused(iterate, problem):
    X, y, _ = problem
    model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.1], iterate=iterate)
    with pytest.raises(ValueError, match=rf"iterate='{iterate}'.*linear model"):
        model.fit(X, y)


@EITHER
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
    rule = [gc.fnr() <= bound]
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


@EITHER
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
    optimum = solve_mixture(errors, rows)
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


@EITHER
def test_randomized_where_no_prefix_is_feasible(library, problem):
    """The mean of two prefixes may meet rules that neither does; error is then no objective."""
    X, y, *_ = split(problem)
    fitted = make(
        library, [gc.fnr() <= 0.03, gc.fpr() <= 0.03], iterate="randomized", n_estimators=9
    )
    with pytest.warns(gc.InfeasibleConstraintsWarning, match="No mixture") as caught:
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
    assert excess == pytest.approx(max(0.0, solve_mixture(None, violations, slack=True)), abs=1e-6)
    assert f"by {excess:.3g}." in str(caught[0].message)


@pytest.mark.parametrize("small_groups", ["hold", "keep"])
@pytest.mark.parametrize(
    ("seed", "bound", "is_met"), [(2, 0.26, True), (3, 0.1, True), (2, 0.1, False)]
)
def test_gaps_that_no_mixture_closes_further_are_held_at_their_bounds(
    seed, bound, is_met, small_groups
):
    """Multipliers aim inside of them; what is said to be violated is the bound that was asked."""
    rng = np.random.default_rng(seed)
    X, sex = rng.normal(size=(400, 4)), rng.integers(0, 2, 400)
    y = (X[:, 0] + 0.9 * sex + rng.normal(size=400) > 0.3).astype(int)
    options = {"num_leaves": 7, "learning_rate": 0.5, "n_estimators": 6, "iterate": "randomized"}
    rule = gc.gap(gc.fpr(), by="sex", small_groups=small_groups) <= bound
    model = make("lightgbm", [rule], measure_on="crossfit", max_bin=255, **options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model.fit(np.column_stack([X, sex]), y, sensitive_features={"sex": sex})
    value = model.constraint_report_.held_out[0]
    rates, n = model.group_report_.held_out.to_numpy(), np.bincount(sex[y == 0])
    own = n / (n + 20.0) if small_groups == "keep" else np.ones(2)  # What is held is credible.
    acting = own * rates + (1.0 - own) * (n @ rates) / n.sum()
    assert value == pytest.approx(np.ptp(rates))
    assert (np.ptp(acting) <= bound + 1e-9) == is_met
    gaps = model.history_[f"held_out[{rule}]"].to_numpy()[1:]
    assert is_met or value == pytest.approx(gaps.min(), abs=1e-9)
    found = [str(w.message) for w in caught if w.category is gc.InfeasibleConstraintsWarning]
    assert len(found) == (not is_met)
    assert is_met or f"by {value - bound:.3g}." in found[0]


@EITHER
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
    rules = [gc.fnr() <= bounds[0], gc.fpr() <= bounds[1]]
    fitted = make(library, rules, iterate="randomized", random_state=0, **options)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", gc.InfeasibleConstraintsWarning)
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


@EITHER
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
    rules = [gc.fnr() <= 0.03, gc.fpr() <= 0.03]
    fitted = make("lightgbm", rules, iterate="randomized", n_estimators=9).fit(frame, y)
    assert len(fitted.prefixes_) > 1
    with pytest.warns(UserWarning, match="X does not have valid feature names") as caught:
        fitted.predict(X)
    assert len(caught) == 1


@EITHER
def test_rows_are_drawn_independently_by_the_probabilities(library, problem):
    """Reproducible for a seed; over seeds the mean decision is that of the prefixes."""
    X, y, *_ = split(problem)
    rules = [gc.fnr() <= 0.03, gc.fpr() <= 0.03]  # early prefixes differ in many rows
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


@EITHER
def test_random_state_changes_nothing_where_nothing_is_drawn(library, problem):
    X, y, sex, *_ = split(problem)
    given = {"sensitive_features": sex}

    def check(model, **options):
        for seed in (0, 1):
            np.testing.assert_array_equal(
                model.predict(X, random_state=seed, **options), model.predict(X, **options)
            )
        with pytest.raises(ValueError, match="'first' cannot be used to seed"):
            model.predict(X, random_state="first", **options)

    fitted = make(library, [gc.fnr() <= 0.1], iterate="randomized").fit(X, y)
    assert hasattr(fitted, "prefixes_")
    check(fitted, **first(library, 4))
    check(fitted, **({"output_margin": True} if library == "xgboost" else {"raw_score": True}))
    for iterate in ("last", "best"):
        fitted.set_params(iterate=iterate, constraints=RULES).fit(X, y, **given)
        assert not hasattr(fitted, "prefixes_"), "of an earlier fit"
        check(fitted)
    options = {"measure_on": "crossfit", "probabilities": "calibrated"}
    beside = make(library, [gc.fnr() <= 0.02], **options).fit(X, y)
    assert beside.shift_.any(), "a threshold stands beside the model"
    check(beside)
    fitted.set_params(iterate="randomized").fit(X, y, **given)
    assert hasattr(fitted, "prefixes_")
    fitted.set_params(constraints=None).fit(X, y)
    assert not hasattr(fitted, "prefixes_")
    check(fitted)


@EITHER
def test_three_classes_with_names(library, problem):
    """Draws are labels of y."""
    X, y, sex, *_ = split(problem)
    y = y + (X[:, 3] > 1)
    labels = y if library == "xgboost" else np.array(["low", "mid", "top"])[y]
    rules = [gc.gap(gc.error_rate(), min_group_size=1) <= 0.02, gc.error_rate() <= 0.2]
    for iterate in ("best", "randomized"):
        fitted = make(library, rules, iterate=iterate, n_estimators=15)
        fitted.fit(X, labels, sensitive_features=sex)
        seed = {"random_state": 0} if iterate == "randomized" else {}
        decisions = fitted.predict(X, **seed)
        assert set(decisions) <= set(labels)
        assert (decisions != labels).mean() <= 0.25
