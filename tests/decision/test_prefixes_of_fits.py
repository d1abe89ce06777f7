"""Prefixes that a fit returns by its training rows."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
from helpers import BOTH, quiet
from prefix_problem import LENGTHS, RULES, first, functionals, make, plain, split, values
from sklearn.metrics import log_loss as mean_log_loss

import gbm_constrained as gc
from gbm_constrained.solvers import AutoSolver

TIGHT = [
    gc.fnr() <= 0.01,
    gc.fpr() <= 0.03,
    gc.gap(gc.selection_rate(), min_group_size=1, small_groups="hold") <= 0.01,
]


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
    assert stepped_back >= 2, "every last iterate was kept, so that nothing is proved"


@BOTH
def test_best_may_be_the_last(library, problem):
    """Nothing is cut where no prefix is better; a vacuous rule asks for the least error."""
    X, y, _ = problem
    best = make(library, [gc.fnr() <= 1.0], iterate="best").fit(X, y)
    last = make(library, [gc.fnr() <= 1.0]).fit(X, y)
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


@pytest.mark.parametrize("iterate", ["best", "randomized"])
def test_prefixes_of_the_linear_model_are_refused(iterate, problem):
    X, y, _ = problem
    model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.1], iterate=iterate)
    with pytest.raises(ValueError, match=rf"iterate='{iterate}'.*linear model"):
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
