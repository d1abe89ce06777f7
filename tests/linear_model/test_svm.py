"""Constrained support vector machines: the parent's fit, ramps, bad input and warnings."""

from __future__ import annotations

import copy
import pickle
import warnings

import numpy as np
import pandas as pd
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.exceptions import TimeLimitWarning
from gbm_constrained.solvers.dataset_rates import ramp


@pytest.fixture
def rows(grouped_rows):
    return grouped_rows


RATIO = gc.ratio(gc.selection_rate(), by="g") >= 0.8
NEYMAN_PEARSON = gc.fpr() <= 0.05


def fit(rows, *rules, **options):
    X, y, group, weight = rows
    model = gc.ConstrainedLinearSVC(constraints=list(rules), **options)
    return model.fit(X, y, weight, sensitive_features={"g": group})


@pytest.mark.parametrize("none", [None, [], ()])
@pytest.mark.parametrize("options", [{}, {"loss": "hinge", "C": 0.1}, {"dual": False}])
def test_no_constraint_is_the_parents_fit(rows, none, options):
    X, y, _, weight = rows
    options = {"random_state": 0, "max_iter": 20_000, **options}
    own = gc.ConstrainedLinearSVC(constraints=none, **options).fit(X, y, weight)
    parent = LinearSVC(**options).fit(X, y, weight)
    for name in ("coef_", "intercept_", "classes_", "n_iter_"):
        np.testing.assert_array_equal(getattr(own, name), getattr(parent, name))
    np.testing.assert_array_equal(own.predict(X), parent.predict(X))
    assert not hasattr(own, "certificate_")
    assert own.get_params().items() >= parent.get_params().items()


def test_hinges_without_rules_are_the_parents_problem(rows):
    """No coefficients of the parent cost less, whose intercept is nearly free here."""
    X, y, _, weight = rows
    own = fit(
        rows, gc.fpr() <= 1.0, objective_loss="hinge", constraint_loss="hinge", C=0.1, tol=1e-9
    )
    parent = LinearSVC(loss="hinge", C=0.1, intercept_scaling=30, max_iter=10**6, tol=1e-5)
    parent.fit(X, y, weight)

    def cost(coef, intercept):
        margins = np.where(y == 1, 1, -1) * (X @ coef + intercept)
        return coef @ coef / 2 + 0.1 * weight @ np.maximum(1 - margins, 0)

    expected = cost(parent.coef_[0], parent.intercept_)
    found = cost(2 * own.coef_[0], 2 * own.intercept_)
    assert found <= expected + 1e-6 * weight.sum() * 0.1
    np.testing.assert_allclose(2 * own.coef_, parent.coef_, atol=0.02)


@pytest.mark.parametrize(
    ("rules", "chooser"),
    [
        ([RATIO], "maximum"),
        ([NEYMAN_PEARSON], "centroid"),
        ([RATIO, NEYMAN_PEARSON], "maximum"),
        ([RATIO, NEYMAN_PEARSON], "centroid"),
    ],
)
def test_every_step_meets_the_constraints(rows, rules, chooser):
    X, y, group, weight = rows
    model = fit(rows, *rules, chooser=chooser)
    steps = model.certificate_
    assert (steps["violation"] <= 1e-9).all()
    assert (np.diff(steps["objective"]) <= 1e-9).all()
    assert (steps["lower"][1:] <= steps["upper"][1:]).all()
    assert len(steps) == model.n_iter_ + 1 == len(model.history_)
    assert model.constraint_report_["train_satisfied"].all()
    p = ramp(model.decision_function(X))
    in_a, negative = group == "a", y == 0
    by_group = [np.average(p[rows], weights=weight[rows]) for rows in (in_a, ~in_a)]
    counted = {
        RATIO: min(by_group) / max(by_group),
        NEYMAN_PEARSON: np.average(p[negative], weights=weight[negative]),
    }
    expected = [next(counted[rule] for rule in counted if str(rule) == str(r)) for r in rules]
    np.testing.assert_allclose(model.ramp_values_, expected, atol=1e-12)
    plain = LinearSVC().fit(X, y, weight)
    assert weight @ (model.predict(X) != y) <= weight @ (plain.predict(X) != y) + 0.1 * 1000


def test_randomized_predictions_have_the_ramp_rates(rows):
    X = rows[0]
    model = fit(rows, NEYMAN_PEARSON, prediction="randomized")
    p = ramp(model.decision_function(X))
    drawn = np.array([model.predict(X, random_state=seed) for seed in range(125)])
    error = 4 * np.sqrt((p * (1 - p)).sum() / 125)
    assert abs(drawn.sum() / 125 - p.sum()) <= error  # 1e5 decisions.
    np.testing.assert_array_equal(model.predict(X, random_state=3), drawn[3])
    assert drawn[0].sum() != drawn[1].sum()
    by_sign = fit(rows, NEYMAN_PEARSON)
    np.testing.assert_array_equal(by_sign.predict(X, random_state=0), by_sign.predict(X))


def test_churn_of_unlabelled_rows_to_a_deployed_model(rows):
    """The trusted model's decisions are a column of both tables."""
    X, y, _, _ = rows
    deployed = LinearSVC().fit(X[:60], y[:60])
    names = ["x0", "x1", "x2"]
    table = pd.DataFrame(X, columns=names)
    old = pd.Series(deployed.predict(X))
    recent = table[400:].reset_index(drop=True)
    rule = gc.churn(to="old", on=gc.dataset("recent")) <= 0.03
    trained = pd.DataFrame(X[:400], columns=names).assign(old=old[:400])
    start = LinearSVC()
    start.coef_, start.intercept_ = np.append(deployed.coef_, [[0.0]], axis=1), deployed.intercept_
    start.classes_ = deployed.classes_
    model = gc.ConstrainedLinearSVC(constraints=[rule], initial_model=start)
    held = recent.assign(old=old[400:].to_numpy())
    model.fit(trained, y[:400], datasets={"recent": held})
    assert model.certificate_["factor"][0] > 0
    assert model.ramp_values_.iloc[0] <= 0.03 + 1e-9
    assert (model.predict(held) != held["old"]).mean() <= 0.03


@pytest.mark.parametrize("class_weight", [None, "balanced", {0: 3.0}])
def test_weights_are_repetitions(rows, class_weight):
    X, y, _, _ = rows
    times = np.random.default_rng(1).integers(0, 3, y.size)
    options = {"n_iterations": 2, "class_weight": class_weight, "objective_loss": "hinge"}
    make = gc.ConstrainedLinearSVC(constraints=[gc.fpr() <= 0.2], tol=1e-9, C=0.01, **options)
    weighted = clone(make).fit(X, y, times)
    repeated = clone(make).fit(X.repeat(times, axis=0), y.repeat(times))
    np.testing.assert_allclose(weighted.coef_, repeated.coef_, atol=2e-2)
    last = [m.certificate_["objective"].iloc[-1] for m in (weighted, repeated)]
    assert last[0] == pytest.approx(last[1], abs=5e-4)


def test_sparse_features_pickles_and_html(rows):
    X, y, _, _ = rows
    dense = gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON]).fit(X, y)
    found = gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON]).fit(sparse.csr_array(X), y)
    np.testing.assert_allclose(dense.coef_, found.coef_, atol=1e-6)
    again = pickle.loads(pickle.dumps(dense))
    np.testing.assert_array_equal(again.predict(X), dense.predict(X))
    pd.testing.assert_frame_equal(again.certificate_, dense.certificate_)
    assert "fpr" in dense._repr_html_()
    dense.set_params(constraints=[]).fit(X, y)
    assert not hasattr(dense, "certificate_")


def test_callbacks_end_the_steps(rows):
    X, y, _, _ = rows
    states = []

    def stop(state):
        states.append(state)
        return len(states) == 2

    model = gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON], tol=0.0)
    model.fit(X, y, constraint_callbacks=[stop])
    assert model.n_iter_ == 2
    assert "callback" in model.stopping_message_
    assert [state.iteration for state in states] == [0, 1]
    assert states[1].multipliers.to_numpy() == pytest.approx(model.multipliers_.to_numpy())


def test_rules_in_conflict(rows):
    with pytest.raises(gc.InfeasibleConstraintsError, match="no linear scores were found"):
        fit(rows, gc.fpr() <= 0.01, gc.fnr() <= 0.01)


def test_equal_rates_of_groups_with_dependent_columns(rows):
    """A rule with no slack, on indicator columns of which each pair adds up to one."""
    X, y, group, _ = rows
    indicators = np.column_stack([X > 0.0, X <= 0.0, X > 1.0, X <= 1.0]).astype(float)
    model = fit((indicators, y, group, None), gc.gap(gc.selection_rate(), by="g") <= 0.0)
    assert model.certificate_["violation"].iloc[-1] <= 1e-9


NEW = gc.dataset("new")


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"C": 0.0}, "C must be a positive number, got 0.0"),
        ({"objective_loss": "log"}, "objective_loss"),
        ({"constraint_loss": None}, "constraint_loss"),
        ({"prediction": "both"}, "prediction"),
        ({"chooser": "corner"}, "chooser"),
        ({"n_iterations": 0}, "n_iterations"),
        ({"tol": -1e-4}, "tol must be a number of at least zero, got -0.0001"),
        ({"tol": np.nan}, "tol must be a number of at least zero, got nan"),
        ({"tol": "low"}, "tol must be a number of at least zero, got 'low'"),
        ({"C": np.inf}, "C must be a positive number, got inf"),
        ({"penalty": "l1", "dual": False}, "penalty='l1' is not supported under constraints"),
        ({"fit_intercept": False}, "fit_intercept=False is not supported under constraints"),
        ({"constraints": [gc.log_loss() <= 0.5]}, "bounds a mean loss, which no ramp"),
        ({"constraints": [gc.auc() >= 0.5]}, "bounds pairs of scores, which no ramp"),
    ],
)
def test_bad_parameters(grouped_rows, options, message):
    X, y, _, _ = grouped_rows
    model = gc.ConstrainedLinearSVC(**{"constraints": [NEYMAN_PEARSON], **options})
    with pytest.raises(ValueError, match=message):
        model.fit(X, y)
    assert not hasattr(model, "coef_")


def test_initial_models_of_sparse_coefficients(grouped_rows):
    X, y, _, _ = grouped_rows
    start = LinearSVC().fit(X, y)
    dense, sparse = (
        gc.ConstrainedLinearSVC(constraints=[gc.fpr() <= 0.6], initial_model=given).fit(X, y)
        for given in (start, copy.deepcopy(start).sparsify())
    )
    assert sparse.certificate_["factor"][0] == dense.certificate_["factor"][0] > 0
    np.testing.assert_array_equal(sparse.coef_, dense.coef_)


def test_an_initial_model_without_a_feasible_multiple_is_named(grouped_rows):
    X, y, _, _ = grouped_rows
    wrong = LinearSVC().fit(X, 1 - y)
    wrong.coef_, wrong.classes_ = wrong.coef_ * 1.0, np.array([0, 1])
    model = gc.ConstrainedLinearSVC(constraints=[gc.fpr() <= 0.01], initial_model=wrong)
    with pytest.warns(UserWarning, match=r"initial_model is not .* multiple .*leave .*GC309"):
        model.fit(X, y)
    assert np.isnan(model.certificate_["factor"][0])


def test_bad_initial_models(grouped_rows):
    X, y, _, _ = grouped_rows
    narrow, other = LinearSVC().fit(X[:, :2], y), LinearSVC().fit(X, y + 1)
    three = LinearSVC().fit(X, np.arange(y.size) % 3)
    for given, message in (
        (three, "initial_model has 9 coefficients, and X has 3 features: give a model of two"),
        (narrow, "initial_model has 2 coefficients, and X has 3 features"),
        (other, r"initial_model has the classes \[1, 2\], and y has \[0, 1\]"),
    ):
        model = gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON], initial_model=given)
        with pytest.raises(ValueError, match=message):
            model.fit(X, y)
    for given in (LinearSVC(), DecisionTreeClassifier().fit(X, y), "deployed"):
        model = gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON], initial_model=given)
        with pytest.raises(TypeError, match=r"initial_model=.* has no coef_: give a fitted"):
            model.fit(X, y)


def test_more_classes_and_not_finite_features(grouped_rows):
    X, y, _, _ = grouped_rows
    model = gc.ConstrainedLinearSVC(constraints=[gc.error_rate() <= 0.5])
    with pytest.raises(ValueError, match="y has 3 classes: fit one class against all others"):
        model.fit(X, np.arange(800) % 3)
    bad = X.copy()
    bad[3, 1] = np.nan
    with pytest.raises(ValueError, match="NaN"):
        model.fit(bad, y)


@pytest.mark.parametrize(
    ("rule", "new", "message"),
    [
        (gc.selection_rate(on=NEW) <= 0.3, lambda X, y: X[:0], r"datasets\['new'\] has no rows"),
        (
            gc.fpr(on=NEW) <= 0.3,
            lambda X, y: (X[y == 1], y[y == 1]),
            "fpr.* is taken over no rows at all: drop the constraint, or give it rows",
        ),
        (
            gc.selection_rate(on=NEW) <= 0.3,
            lambda X, y: X[:, :2],
            r"datasets\['new'\] must have the 3 columns of X, got 2",
        ),
        (gc.selection_rate(on=NEW) <= 0.3, lambda X, y: X * np.nan, "Input X contains NaN"),
        (gc.fpr(on=NEW) <= 0.3, lambda X, y: X, "new"),
    ],
)
def test_bad_data_sets(grouped_rows, rule, new, message):
    X, y, _, _ = grouped_rows
    with pytest.raises(ValueError, match=message):
        gc.ConstrainedLinearSVC(constraints=[rule]).fit(X, y, datasets={"new": new(X, y)})


def test_rows_of_one_class(grouped_rows):
    X, y, _, _ = grouped_rows
    with pytest.raises(ValueError, match=r"y holds one class only \(\[1\]\)"):
        gc.ConstrainedLinearSVC(constraints=[NEYMAN_PEARSON]).fit(X, np.ones_like(y))


def test_churn_to_a_model_of_other_classes(grouped_rows):
    X, y, _, _ = grouped_rows
    other = LinearSVC().fit(X, y + 1)
    with pytest.raises(ValueError, match=r"The other model decides 2, which is not among the cla"):
        gc.ConstrainedLinearSVC(constraints=[gc.churn(to=other) <= 0.1]).fit(X, y)


@pytest.mark.parametrize("bound", [-0.1, 1.5, np.nan])
def test_bounds_out_of_range(bound):
    with pytest.raises(ValueError, match=rf"bound of fpr must be a rate in .*; got {bound}"):
        gc.ConstrainedLinearSVC(constraints=[gc.fpr() <= bound])


def test_a_rule_that_all_scores_meet_costs_nothing(grouped_rows):
    X, y, _, _ = grouped_rows
    rules = [gc.fpr() <= 1.0, gc.selection_rate() >= 0.0]
    model = gc.ConstrainedLinearSVC(constraints=rules).fit(X, y)
    assert model.multipliers_.tolist() == [0.0, 0.0]
    assert model.feasibility_.status == "met on training rows"


def fit_with_warnings(rows, *rules, time_limit=None, **options):
    X, y, group, _ = rows
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = gc.ConstrainedLinearSVC(constraints=list(rules), **options)
        model.fit(X, y, sensitive_features={"g": group}, time_limit=time_limit)
    return model, {warning.category: str(warning.message) for warning in caught}


def test_steps_that_end_far_from_the_last_are_warned_of(grouped_rows):
    _, caught = fit_with_warnings(grouped_rows, NEYMAN_PEARSON, n_iterations=1)
    message = caught[ConvergenceWarning]
    assert message.startswith("The last of n_iterations=1 steps still lowered the objective by")
    assert "raise n_iterations. [GC304]" in message
    model, caught = fit_with_warnings(grouped_rows, NEYMAN_PEARSON, n_iterations=50)
    assert ConvergenceWarning not in caught
    objective = model.certificate_["objective"].to_numpy()
    assert model.n_iter_ < 50
    assert objective[-2] - objective[-1] <= 0.01 * objective[-1]


def test_a_time_limit_ends_the_cuts(grouped_rows):
    """No answer of the oracle fits in; what is returned is the start, which meets the rules."""
    model, caught = fit_with_warnings(grouped_rows, NEYMAN_PEARSON, time_limit=1e-9)
    assert model.certificate_["n_cuts"].tolist() == [0, 0]
    assert model.ramp_values_.iloc[0] <= 0.05 + 1e-9
    message = caught[ConvergenceWarning]
    assert "ended after 0 cuts" in message
    assert "raise tol or time_limit, or relax constraints that can hardly be met" in message
    assert "time_limit=1e-09 ended training after 1 of 8" in caught[TimeLimitWarning]
    assert "time_limit=1e-09" in model.stopping_message_


def test_a_penalty_that_leaves_no_scores_is_named(grouped_rows):
    """Two rules that no constant meets need scores that differ, which tiny features make dear."""
    X, y, _, _ = grouped_rows
    model = gc.ConstrainedLinearSVC(constraints=[gc.fpr() <= 0.2, gc.fnr() <= 0.3])
    with pytest.raises(gc.InfeasibleConstraintsError, match=r"weaken the penalty .* features up"):
        model.fit(1e-6 * X, y)


def test_a_time_limit_ends_the_search_for_a_start(grouped_rows):
    rules = [gc.fpr() <= 0.2, gc.fnr() <= 0.3]
    model, _ = fit_with_warnings(grouped_rows, *rules)
    assert (model.ramp_values_.to_numpy() <= [0.2 + 1e-9, 0.3 + 1e-9]).all()
    with pytest.raises(gc.InfeasibleConstraintsError, match=r"found in time .* Give more time"):
        fit_with_warnings(grouped_rows, *rules, time_limit=1e-9)
