"""Rules and guarantees of regressors are met on rows that no tree has seen."""

from __future__ import annotations

import re
from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER
from regressor_fits import HAVE_LOG_LINK, REGRESSORS, fit, make_problem, score_of

import gbm_constrained as gc
from gbm_constrained.exceptions import InfeasibleConstraintsWarning

ERRORS = 3.5  # Standard errors that a value on fresh rows may be beyond its bound.


@pytest.fixture(scope="module")
def problems():
    """Rows to train on, and fresh rows of the same population."""
    return {
        is_positive: (
            make_problem(2000, is_positive=is_positive),
            make_problem(20_000, seed=1, is_positive=is_positive),
        )
        for is_positive in (False, True)
    }


def mean_of_groups(values, group):
    """Means of the groups, and their standard errors."""
    parts = [values[group == g] for g in (0, 1)]
    return [p.mean() for p in parts], [p.std() / np.sqrt(p.size) for p in parts]


def squared(y, f):
    return (y - f) ** 2


def absolute(y, f):
    return abs(y - f)


def huber(y, f):
    return np.where(abs(y - f) <= 1, (y - f) ** 2 / 2, abs(y - f) - 0.5)


def prediction(y, f):
    return f


def residual(y, f):
    return y - f


def above_two(y, f):
    return (f > 2).astype(float)


def covered(y, f):
    return (y <= f).astype(float)


# Objective, rule, function of the rows, and what becomes of the means of the groups.
RULES = {
    "each_squared": ("squared", gc.each(gc.mean_loss(), by="g") <= 1.2, squared, "each"),
    "gap_squared": ("squared", gc.gap(gc.mean_loss(), by="g") <= 0.5, squared, "gap"),
    "ratio": ("squared", gc.ratio(gc.mean_loss("absolute"), by="g") >= 0.7, absolute, "ratio"),
    "gap_prediction": ("squared", gc.gap(gc.mean_prediction(), by="g") <= 0.9, prediction, "gap"),
    "prediction": ("squared", gc.mean_prediction() >= 1.0, prediction, "whole"),
    "residual": ("squared", gc.mean_residual() <= -0.2, residual, "whole"),
    "share": ("squared", gc.share_above(2) <= 0.15, above_two, "whole"),
    "huber": ("huber", gc.each(gc.mean_loss("huber"), by="g") <= 0.5, huber, "each"),
    "absolute": ("absolute", gc.gap(gc.mean_loss("absolute"), by="g") <= 0.2, absolute, "gap"),
    "coverage": ("quantile", gc.coverage() >= 0.85, covered, "whole"),
    "gap_coverage": ("quantile", gc.gap(gc.coverage(), by="g") <= 0.08, covered, "gap"),
    "poisson": ("poisson", gc.gap(gc.mean_prediction(), by="g") <= 0.6, prediction, "gap"),
    "tweedie": ("tweedie", gc.gap(gc.mean_prediction(), by="g") <= 0.6, prediction, "gap"),
}


def compare(kind, values, group):
    """Value of a rule of a kind, and its standard error."""
    if kind == "whole":
        return values.mean(), values.std() / np.sqrt(values.size)
    means, errors = mean_of_groups(values, group)
    error = np.hypot(*errors)
    if kind == "gap":
        return abs(means[1] - means[0]), error
    if kind == "each":
        return max(means), max(errors)
    return min(means) / max(means), error / max(means)


# Rules of the squared loss with one of the libraries, in turn.
@pytest.mark.parametrize(
    ("library", "name"),
    [
        (library, name)
        for i, name in enumerate(RULES)
        for j, library in enumerate(REGRESSORS)
        if RULES[name][0] != "squared" or i % 2 == j
    ],
)
def test_rules_are_met_on_fresh_rows(library, name, problems):
    """Training rows have a sampling error of their own, which is that of fewer rows."""
    objective, rule, function, kind = RULES[name]
    train, fresh = problems[objective in HAVE_LOG_LINK]
    model = fit(library, [rule], train, objective, measure_on=gc.CrossFit(2))
    value, error = compare(kind, function(fresh.y, model.predict(fresh.X)), fresh.group)
    error *= np.sqrt(1 + fresh.y.size / train.y.size)
    excess = value - rule.bound if "<=" in str(rule) else rule.bound - value
    assert excess <= ERRORS * error
    plain = fit(library, [], train, objective).predict(fresh.X)
    before = compare(kind, function(fresh.y, plain), fresh.group)[0]
    assert (before > rule.bound) == ("<=" in str(rule)), "the plain model meets the rule"
    report = model.constraint_report_.iloc[0]
    assert report["verdict"] in ("met", "missed within sampling error")
    assert report["rows"] == "out of fold"
    assert report["low"] <= report["held_out"] <= report["high"]


@EITHER
def test_several_rules_of_unlike_functions_are_met_together(library, problems):
    train, fresh = problems[False]
    rules = [
        gc.gap(gc.mean_prediction(), by="g") <= 1.2,
        gc.mean_residual() <= 0.02,
        gc.mean_residual() >= -0.02,
        gc.share_above(2) <= 0.2,
    ]
    model = fit(library, rules, train)
    f = model.predict(fresh.X)
    means, errors = mean_of_groups(f, fresh.group)
    scale = ERRORS * np.sqrt(1 + fresh.y.size / train.y.size)
    assert abs(means[1] - means[0]) <= 1.2 + scale * np.hypot(*errors)
    res = fresh.y - f
    assert abs(res.mean()) <= 0.02 + scale * res.std() / np.sqrt(res.size)
    above = (f > 2).astype(float)
    assert above.mean() <= 0.2 + scale * above.std() / np.sqrt(above.size)
    assert set(model.constraint_report_["verdict"]) <= {"met", "missed within sampling error"}


@EITHER
def test_a_rule_that_no_model_can_meet_is_reported_as_missed(library, problems):
    train, _ = problems[False]
    with pytest.warns(gc.MissedConstraintsWarning, match=r"mean_loss\(squared\) <= 0.1"):
        model = fit(library, [gc.mean_loss() <= 0.1], train, measure_on=gc.CrossFit(2))
    assert model.constraint_report_["verdict"].tolist() == ["missed"]
    assert model.constraint_report_["train"][0] < model.constraint_report_["held_out"][0]


@EITHER
def test_a_rule_on_a_column_is_met_on_its_rows(library, problems):
    train, fresh = problems[False]
    rule = gc.mean_prediction(on={"g": 1}) <= 1.5
    model = fit(library, [rule], train)
    part = model.predict(fresh.X)[fresh.group == 1]
    error = part.std() / np.sqrt((train.group == 1).sum())
    assert part.mean() <= 1.5 + ERRORS * error


@EITHER
def test_amounts_weigh_the_rows_of_a_mean(library, problems):
    """The rule is met in the mean by amounts, and reported as such."""
    train, _ = problems[False]
    amount = np.exp(train.X[:, 3])
    rule = gc.mean_prediction(weight="w") <= 0.1
    given = {"sensitive_features": {"w": amount}}
    model = fit(library, [rule], train, given=given, measure_on="train")
    f = model.predict(train.X).astype(float)
    found = model.constraint_report_["train"][0]
    assert found == pytest.approx(np.average(f, weights=amount), abs=1e-5)
    assert found <= 0.1 + 0.03


@EITHER
def test_fits_on_training_rows_meet_rules_there(library, problems):
    train, _ = problems[False]
    model = fit(library, [gc.gap(gc.mean_prediction(), by="g") <= 0.9], train, measure_on="train")
    means, _ = mean_of_groups(model.predict(train.X), train.group)
    assert abs(means[1] - means[0]) <= 0.93
    assert model.adjustment_.tolist() == [1.0, 0.0]
    assert model.constraint_report_["rows"].tolist() == ["training rows"]


@pytest.mark.parametrize("objective", ["squared", "poisson"])
def test_a_doubled_weight_is_a_repeated_row(objective):
    """LightGBM counts rows, not weights, in its leaves, and its own models differ as well."""
    problem = make_problem(400, is_positive=objective in HAVE_LOG_LINK)
    problem.X = problem.X.round(1)
    problem.y = problem.y.round(1)
    weight = np.where(np.arange(400) % 3 == 0, 2.0, 1.0)
    options = {"n_estimators": 10, "measure_on": "train"}
    rule = [gc.gap(gc.mean_prediction(), by="g") <= 0.4]
    given = {"sample_weight": weight}
    weighted = fit("xgboost", rule, problem, objective, given=given, **options)
    parts = (problem.X, problem.y, problem.group)
    X, y, group = (np.repeat(part, weight.astype(int), axis=0) for part in parts)
    repeated = fit("xgboost", rule, SimpleNamespace(X=X, y=y, group=group), objective, **options)
    np.testing.assert_allclose(
        score_of(weighted, problem.X), score_of(repeated, problem.X), rtol=0, atol=2e-3
    )
    np.testing.assert_allclose(
        weighted.constraint_report_["train"], repeated.constraint_report_["train"], atol=1e-3
    )


@EITHER
def test_reports_take_means_by_weight(library, problems):
    train, _ = problems[False]
    weight = np.exp(train.X[:, 2])
    rules = [gc.mean_loss("squared") <= 5.0, gc.gap(gc.mean_prediction(), by="g") <= 0.9]
    model = fit(library, rules, train, given={"sample_weight": weight}, measure_on=gc.CrossFit(2))
    f = model.predict(train.X).astype(float)
    loss = np.average((train.y - f) ** 2, weights=weight)
    means = [np.average(f[train.group == g], weights=weight[train.group == g]) for g in (0, 1)]
    expected = [loss, abs(means[1] - means[0])]
    np.testing.assert_allclose(model.constraint_report_["train"], expected, atol=1e-5)


PROBLEM = make_problem(900)
LOSS = gc.mean_loss("absolute", range=(0, 20))
ABOVE = [gc.share_above(0.8) <= 0.3]
KILL = {"constraint_callbacks": [lambda state: pytest.fail("training has begun")]}
OPTIONS = {"guarantee": gc.HighProbability(delta=0.1), "n_estimators": 20}


def certified(library, rules, problem=PROBLEM, **options):
    return fit(library, rules, problem, **{**OPTIONS, "measure_on": "holdout", **options})


@EITHER
def test_the_certificate_is_that_of_rows_set_aside(library):
    model = certified(library, ABOVE)
    report = model.constraint_report_.iloc[0]
    assert report["rows"] == "certification"
    assert report["verdict"] == "met"
    found = model.feasibility_
    assert found.p_value <= found.level == 0.1
    assert found.n_rows == 180
    # Other rows are measured alike; the shares differ by chance alone.
    new = make_problem(5000, seed=1)
    assert np.mean(model.predict(new.X) > 0.8) == pytest.approx(report["held_out"], abs=0.12)
    assert np.mean(model.predict(new.X) > 0.8) <= 0.3


@EITHER
def test_rows_set_aside_are_in_no_booster(library):
    """The latest rows are set aside, and other targets and features there leave all trees."""
    time = np.arange(900)
    late = time >= 720
    changed = make_problem(900)
    changed.X, changed.y = changed.X.copy(), changed.y.copy()
    changed.X[late] = 0.0
    changed.y[late] = 7.0
    never = [gc.share_above(1e6) <= 0.5]
    first, second = (
        certified(library, never, problem, given={"time": time}, measure_on=gc.Forward(2))
        for problem in (PROBLEM, changed)
    )
    np.testing.assert_array_equal(first.predict(PROBLEM.X), second.predict(PROBLEM.X))


@EITHER
def test_weights_data_sets_and_evaluation_sets(library, tmp_path):
    """Each constraint is certified on its own rows; a saved model keeps its report."""
    new = make_problem(400, seed=2)
    rules = [
        gc.each(LOSS, by="g") <= 12.0,
        gc.mean_prediction(range=(-20, 20), on=gc.dataset("new")) <= 12.0,
    ]
    given = {
        "sample_weight": np.where(np.arange(900) % 2, 1.0, 2.0),
        "datasets": {"new": new.X},
        "eval_set": [(new.X, new.y)],
        "sensitive_features_eval_set": [pd.DataFrame({"g": new.group})],
    }
    rules_of_rows = rules[:1]
    model = certified(library, rules, given={k: given[k] for k in ("sample_weight", "datasets")})
    assert model.feasibility_.p_value <= 0.1
    assert model.constraint_report_["rows"].tolist() == ["certification"] * 2
    del given["datasets"]
    model = certified(library, rules_of_rows, given=given)
    assert model.constraint_report_["rows"].tolist() == ["certification"]
    model.save_model(tmp_path / "model.json")
    loaded = REGRESSORS[library]()
    loaded.load_model(tmp_path / "model.json")
    assert loaded.get_params()["guarantee__delta"] == 0.1
    assert loaded.constraints == rules_of_rows
    assert loaded.feasibility_.p_value == model.feasibility_.p_value


@EITHER
def test_a_guarantee_that_is_not_given_is_named(library):
    rule = gc.mean_loss("absolute", range=(0, 6)) <= 0.8
    with pytest.warns(InfeasibleConstraintsWarning, match="Not certified: mean_loss") as caught:
        model = certified(library, [rule], guarantee=gc.HighProbability(0.3))
    text = str(caught[0].message)
    assert "Of the maps of the scores none passes on 180 unseen rows (certification)" in text
    assert "error" not in text.partition("The model returned")[2]
    found = model.feasibility_
    assert found.p_value > found.level
    assert found.conflict == (rule,)
    assert str(model.constraint_report_["verdict"][0]) == "cannot be told"


@EITHER
@pytest.mark.parametrize(
    ("rules", "options", "message"),
    [
        (
            [gc.mean_loss() <= 3.0], {},
            "cannot be given for mean_loss(squared) <= 3: values of a row may be as large as they "
            "like. Give the smallest and the largest of them, as in mean_loss('squared', "
            "range=(0, 25))",
        ),
        (
            [gc.gap(gc.mean_prediction(), by="g") <= 1.0], {}, "values of a row may be as large",
        ),
        (ABOVE, {"guarantee": "expected"}, "Use guarantee='high_probability'"),
        (ABOVE, {"guarantee": "certain"}, "guarantee must be one of"),
        (ABOVE, {"measure_on": "train"}, "needs rows that the trees have not seen"),
        (
            [gc.share_above(0.8) <= 0.001], {},
            "even the best predictions of the 180 rows that fraction=0.2 sets aside "
            "leave a p-value of 0.84, above delta=0.1.",
        ),
        (
            [gc.mean_residual(range=(-9, 9)) <= 0.0, gc.mean_residual(range=(-9, 9)) >= 0.0], {},
            "even the best predictions",
        ),
        (
            [gc.mean_loss(range=(0, 9), weight="g") <= 3.0], {}, "give a cap that no row exceeds",
        ),
    ],
)  # fmt: skip
def test_what_no_row_can_certify_is_refused_before_training(library, rules, options, message):
    with pytest.raises(ValueError, match=re.escape(message)):
        certified(library, rules, given=KILL, **options)


@EITHER
def test_an_observed_value_outside_of_its_range_is_an_error(library):
    """The model is not fitted: the range is not what the user says it is."""
    rule = gc.mean_loss("absolute", range=(0, 2)) <= 1.9
    model = None
    message = r"states that the value of each row is from 0 to 2, and \d+ of \d+ unseen rows"
    with pytest.raises(ValueError, match=message):
        model = certified(library, [rule])
    assert model is None


@EITHER
def test_training_rows_as_evaluation_set_are_refused(library):
    with pytest.raises(ValueError, match="eval_set holds the training rows"):
        certified(library, ABOVE, given={"eval_set": [(PROBLEM.X, PROBLEM.y)]})


@EITHER
def test_groups_of_rows_are_refused(library):
    with pytest.raises(ValueError, match="counts rows as independent"):
        certified(library, ABOVE, given={"groups": np.arange(900) // 2})
