"""Logistic regression whose objective is only a function to call."""

import pickle

import numpy as np
import pytest
from black_box_fits import draw, g_mean_loss, mean_g_mean_loss
from scipy import sparse
from sklearn.base import clone
from sklearn.linear_model import LogisticRegression

from gbm_constrained import audit, fpr, gap
from gbm_constrained.linear_model.logistic_regression import (
    ConstrainedLogisticRegression,
    LinearParameters,
)
from gbm_constrained.metrics import BlackBox
from gbm_constrained.solvers import AdaptiveSurrogates


def features(X):
    """Features in very different units, as a table of numbers."""
    return np.column_stack([X.a, X.b, 100.0 * X.b**2])


def draw_table(seed, n, flipped=0.0):
    X, y, group = draw(seed, n, flipped)
    return features(X), y, group


TRAINING, VALIDATION, TEST = draw_table(0, 1200, 0.8), draw_table(1, 450), draw_table(2, 3000)


def fit(function=mean_g_mean_loss, by="group", to=lambda X: X, **options):
    (X, y, g), V, T = TRAINING, VALIDATION, TEST
    options = {"C": 10.0, "max_iter": 1000, **options}
    model = ConstrainedLogisticRegression(minimize=BlackBox(function, by=by, max_calls=900))
    return model.set_params(**options).fit(
        to(X), y, sensitive_features=g, validation=(to(V[0]), *V[1:]),
        evaluation=(to(T[0]), *T[1:]),
    )  # fmt: skip


@pytest.fixture(scope="module")
def unconstrained():
    return fit()


def test_the_report_is_of_coefficients_that_a_plain_model_would_have(unconstrained):
    model = unconstrained
    X, y, g = TEST
    scores = X @ model.coef_[0] + model.intercept_[0]
    np.testing.assert_allclose(model.decision_function(X), scores)
    report = model.blackbox_report_.set_index("model")
    assert report.evaluation["this model"] == pytest.approx(
        mean_g_mean_loss(y, model.decision_function(X), g.to_numpy())
    )
    assert model.score(X, y, sensitive_features=g) == -report.evaluation["this model"]
    plain = LogisticRegression(C=10.0, max_iter=1000).fit(*TRAINING[:2])
    expected = mean_g_mean_loss(y, plain.decision_function(X), g.to_numpy())
    assert report.evaluation["plain"] == pytest.approx(expected, abs=1e-9)
    # Thresholds of groups are compared, and no coefficient stands for one.
    validation = report.validation.drop("threshold per group")
    assert validation["this model"] == validation.min()
    assert report.evaluation["this model"] < report.evaluation["plain"] - 0.1
    assert model.blackbox_parameters_.index.tolist() == [*(f"coef[{j}]" for j in range(3)),
                                                         "intercept"]  # fmt: skip
    np.testing.assert_array_equal(model.predict(X), (scores > 0).astype(int))


def test_weights_are_repetitions_and_the_order_of_rows_does_not_matter():
    exact = {"solver": "newton-cholesky", "tol": 1e-13}
    rng = np.random.default_rng(4)
    n = len(TRAINING[1])
    weight = rng.integers(1, 4, n)

    def parameters(index, sample_weight=None):
        X, y, g = TRAINING
        metric = BlackBox(mean_g_mean_loss, by="group", max_calls=900)
        model = ConstrainedLogisticRegression(minimize=metric, **exact)
        model.set_params(constraint_solver=AdaptiveSurrogates(n_iterations=4))
        rows = {"sensitive_features": g.iloc[index].reset_index(drop=True)}
        model.fit(X[index], y[index], sample_weight, **rows, validation=VALIDATION)
        return model.blackbox_parameters_.after

    everyone = np.arange(n)
    np.testing.assert_allclose(
        parameters(rng.permutation(n)), parameters(everyone), rtol=0, atol=1e-9
    )
    np.testing.assert_allclose(
        parameters(np.repeat(everyone, weight)), parameters(everyone, weight), rtol=0, atol=1e-9
    )


def test_sparse_tables_are_those_of_numbers(unconstrained):
    found = fit(to=sparse.csr_matrix)
    np.testing.assert_allclose(found.coef_, unconstrained.coef_, rtol=1e-6)


def test_parameters_are_in_units_of_the_features():
    X, y, _ = TRAINING
    plain = LogisticRegression(max_iter=1000).fit(X, y)
    before = plain.decision_function(X)
    parameters = LinearParameters(plain, X)
    np.testing.assert_allclose(parameters.start, plain.coef_[0] * X.std(axis=0))
    columns = parameters.score_columns(X, np.ones((len(X), 1)))
    scores = columns @ [*parameters.start, 0.5] + parameters.base
    np.testing.assert_allclose(scores, before + 0.5)
    parameters.set_parameters(2.0 * parameters.start, 0.5)
    expected = 2.0 * (before - parameters.base) + parameters.base + 0.5
    np.testing.assert_allclose(plain.decision_function(X), expected)


def test_a_share_of_the_rows_is_held_out():
    X, y, _ = draw_table(0, 1200)
    model = ConstrainedLogisticRegression(minimize=BlackBox(g_mean_loss, max_calls=400))
    model.fit(X, y, sample_weight=np.ones(1200))
    report = model.blackbox_report_
    assert (report.n_validation + report.n_evaluation == 300).all()
    same = clone(model).fit(X, y, sample_weight=np.ones(1200))
    np.testing.assert_array_equal(same.coef_, model.coef_)
    np.testing.assert_array_equal(pickle.loads(pickle.dumps(model)).coef_, model.coef_)


def test_constraints_are_kept_on_the_rows_that_choose(unconstrained):
    rule = gap(fpr(), by="group") <= 0.05
    model = fit(constraints=[rule])
    V, v, g = VALIDATION
    kept = audit(model, V, v, rule, sensitive_features=g).frame["value"].iloc[0]
    report = model.blackbox_report_.set_index("model")
    assert report.violation.notna().all()
    assert kept <= 0.05 + 1e-9
    free = unconstrained.blackbox_report_.set_index("model")
    assert free.violation.isna().all()
    assert report.validation["this model"] >= free.validation["this model"] - 0.02


def test_spaces_of_trees_are_refused():
    with pytest.raises(ValueError, match="space='leaves' is about the trees of a booster"):
        fit(constraint_solver=AdaptiveSurrogates(space="leaves"))
