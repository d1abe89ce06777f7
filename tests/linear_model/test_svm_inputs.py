"""Bad input of constrained support vector machines, and what their warnings say."""

from __future__ import annotations

import copy
import warnings

import numpy as np
import pytest
from sklearn.exceptions import ConvergenceWarning
from sklearn.svm import LinearSVC
from sklearn.tree import DecisionTreeClassifier

import gbm_constrained as gc
from gbm_constrained.exceptions import TimeLimitWarning

NEYMAN_PEARSON = gc.fpr() <= 0.05
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
