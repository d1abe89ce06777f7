"""Logistic regression whose objective is a metric of the confusion matrix."""

from __future__ import annotations

import pickle
import warnings

import numpy as np
import pytest
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.linear_model import ConstrainedLogisticRegression
from gbm_constrained.metrics import g_mean, h_mean, min_recall
from gbm_constrained.solvers import Reduction


@pytest.fixture(scope="module")
def data():
    """Three classes of unequal size, and a group that shifts a feature."""
    rng = np.random.default_rng(0)
    y = rng.choice(["common", "middle", "rare"], 1200, p=[0.7, 0.2, 0.1])
    group = rng.choice(["a", "b"], 1200)
    centre = {"common": 0.0, "middle": 1.0, "rare": 2.0}
    X = rng.normal(size=(1200, 3)) + np.array([centre[c] for c in y])[:, None]
    X[:, 0] += group == "b"
    return X, y, group


@pytest.fixture(scope="module")
def mixed(data):
    """A fitted mixture of rules under a constraint."""
    X, y, group = data
    return ConstrainedLogisticRegression(
        maximize=min_recall(),
        constraint_solver=Reduction(deterministic=False),
        constraints=[gc.gap(gc.recall("rare"), by="group") <= 0.05],
    ).fit(X, y, sensitive_features={"group": group})


def _recalls(y, decisions):
    return np.array([np.mean(decisions[y == c] == c) for c in np.unique(y)])


def _harmonic(y, decisions):
    return len(np.unique(y)) / (1 / np.maximum(_recalls(y, decisions), 1e-12)).sum()


def test_h_mean_is_that_of_the_best_class_weights(data):
    # Brute force: argmax of weighted probabilities over a grid of weights.
    X, y, _ = data
    model = ConstrainedLogisticRegression(
        maximize=h_mean(), constraint_solver=Reduction(deterministic=True)
    ).fit(X, y)
    P = LogisticRegression().fit(X, y).predict_proba(X)
    classes, grid = np.unique(y), np.exp(np.linspace(-1, 4, 41))
    best = max(_harmonic(y, classes[(P * [1.0, a, b]).argmax(axis=1)]) for a in grid for b in grid)
    returned = model.metric_report_.query("is_returned")
    assert model.score(X, y) == pytest.approx(_harmonic(y, model.predict(X)), abs=1e-12)
    # The rule is taken from the optimum in probabilities where the one by counts is no better
    # on new rows, by less than its standard error.
    error = (returned["high"] - returned["low"]).iloc[0] / (2 * 1.96)
    assert best - error <= model.score(X, y) <= best + 0.002
    assert returned["train"].iloc[0] == pytest.approx(model.score(X, y), abs=1e-12)


def test_weights_of_classes_go_into_the_intercept(data):
    X, y, _ = data
    model = ConstrainedLogisticRegression(
        maximize=h_mean(), constraint_solver=Reduction(deterministic=True)
    ).fit(X, y)
    parent = LogisticRegression().fit(X, y)
    np.testing.assert_array_equal(model.coef_, parent.coef_)
    np.testing.assert_allclose(model.intercept_, parent.intercept_ + model.shift_, atol=1e-12)
    assert np.abs(model.shift_).max() > 0.1
    plain = LogisticRegression()
    plain.coef_, plain.intercept_, plain.classes_ = model.coef_, model.intercept_, model.classes_
    np.testing.assert_array_equal(plain.predict(X), model.predict(X))
    weights = model.mixture_.filter(like="weight[").to_numpy()[0]
    P = parent.predict_proba(X)
    np.testing.assert_array_equal(model.classes_[(P * weights).argmax(axis=1)], model.predict(X))


def test_groups_are_not_needed_to_predict(data):
    X, y, group = data
    y = y != "common"
    model = ConstrainedLogisticRegression(
        maximize=g_mean(), constraints=[gc.gap(gc.tpr(), by="group") <= 0.02]
    ).fit(X, y, sensitive_features={"group": group})
    shares = model.decision_probabilities(X)
    np.testing.assert_allclose(shares.sum(axis=1), 1.0)
    rates = [shares[(y) & (group == g), 1].mean() for g in "ab"]
    value = model.constraint_report_["train"].iloc[0]
    assert abs(rates[0] - rates[1]) == pytest.approx(value, abs=1e-12)
    # Decisions that violate the gap by more than a point of the metric is worth are not returned.
    report = model.metric_report_
    merits = 1.0 - report["held_out"] + report["violation"]
    returned = report["is_returned"].to_numpy()
    assert merits[returned].iloc[0] == pytest.approx(merits.min(), abs=1e-12)
    held_out = model.constraint_report_["held_out"].iloc[0]
    assert held_out - 0.02 == pytest.approx(report["violation"][returned].iloc[0], abs=1e-12)
    assert model.constraint_report_["verdict"].iloc[0] == "missed within sampling error"
    unconstrained = ConstrainedLogisticRegression(maximize=g_mean()).fit(X, y)
    own = unconstrained.predict(X)
    assert abs(own[y & (group == "a")].mean() - own[y & (group == "b")].mean()) > 0.05


def test_mixture_survives_pickle_and_draws_by_seed(data, mixed):
    X, model = data[0], mixed
    again = pickle.loads(pickle.dumps(model))
    for seed in range(3):
        np.testing.assert_array_equal(
            model.predict(X, random_state=seed), again.predict(X, random_state=seed)
        )
    np.testing.assert_array_equal(model.decision_probabilities(X), again.decision_probabilities(X))
    drawn = np.mean([model.predict(X, random_state=s) == "rare" for s in range(200)], axis=0)
    expected = model.decision_probabilities(X)[:, 2]
    assert np.abs(drawn - expected).max() <= 5 * 0.5 / np.sqrt(200)
    assert hasattr(clone(model), "maximize")
    assert not hasattr(clone(model), "mixture_")


def test_sparse_rows_and_weights_of_rows(data):
    X, y, _ = data
    repeated = np.random.default_rng(1).integers(1, 3, len(y))
    options = {
        "maximize": h_mean(),
        "tol": 1e-8,
        "max_iter": 1000,
        "constraint_solver": Reduction(deterministic=True),
    }
    by_weight = ConstrainedLogisticRegression(**options).fit(X, y, repeated)
    at = np.repeat(np.arange(len(y)), repeated)
    by_rows = ConstrainedLogisticRegression(**options).fit(X[at], y[at])
    np.testing.assert_allclose(by_weight.coef_, by_rows.coef_, atol=1e-4)
    trained = by_weight.metric_report_.query("is_returned")["train"].iloc[0]
    assert trained == pytest.approx(_harmonic(y[at], by_weight.predict(X[at])), abs=1e-12)
    of_sparse = ConstrainedLogisticRegression(**options).fit(sparse.csr_array(X), y, repeated)
    np.testing.assert_array_equal(of_sparse.predict(sparse.csr_array(X)), by_weight.predict(X))


def test_decisions_are_chosen_on_rows_that_the_model_has_not_seen(data):
    X, y, _ = data
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        model = ConstrainedLogisticRegression(maximize="h_mean").fit(X, y)
    assert set(model.metric_report_["rows"]) == {"out of fold"}


def test_a_fit_without_metric_forgets_the_rules(data, mixed):
    X, y, _ = data
    model = pickle.loads(pickle.dumps(mixed))
    model.set_params(maximize=None, constraints=None, constraint_solver="auto").fit(X, y)
    expected = LogisticRegression().fit(X, y).predict(X)
    for seed in (None, 0, 1):
        np.testing.assert_array_equal(model.predict(X, random_state=seed), expected)
    with pytest.raises(ValueError, match="'first' cannot be used to seed"):
        model.predict(X, random_state="first")


@pytest.mark.parametrize(
    ("options", "given", "match"),
    [
        ({"solver": "liblinear"}, {}, "solver='liblinear' .* use solver='lbfgs'"),
        ({}, {"time_limit": 0.0}, "time_limit is 0.0: give a positive number"),
        ({"minimize": "h_mean"}, {}, "cannot both be given"),
        ({"constraint_solver": "abpp"}, {}, "constraint_solver must be one of"),
        (
            {"constraint_solver": Reduction(oracle="best")},
            {},
            "oracle of Reduction must be one of",
        ),
        ({"iterate": "ergodic"}, {}, "iterate='ergodic' has no meaning"),
    ],
)
def test_bad_input(data, options, given, match):
    X, y, _ = data
    model = ConstrainedLogisticRegression(maximize=h_mean(), **options)
    with pytest.raises(ValueError, match=match):
        model.fit(X, y, **given)
    assert not hasattr(model, "coef_")


def test_a_class_of_one_row_is_refused_with_remedies_that_work(data):
    """No parameter of this classifier is about folds."""
    X, y, _ = data
    y = y.copy()
    y[:1] = "single"
    words = r"maximize=h_mean holds out the only row of class 'single' .*leave maximize out\.$"
    with pytest.raises(ValueError, match=words):
        ConstrainedLogisticRegression(maximize=h_mean()).fit(X, y)
    bounds = [gc.recall("rare") >= 0.3]
    assert ConstrainedLogisticRegression(constraints=bounds).fit(X, y).classes_.size == 4
    y[:2] = "single"
    assert ConstrainedLogisticRegression(maximize=h_mean()).fit(X, y).classes_.size == 4
