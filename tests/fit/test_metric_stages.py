"""Boosters that are grown in stages, with weights that follow the costs of a metric."""

from __future__ import annotations

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, PARENTS, fit_linear, margins_of, quiet
from sklearn.base import clone

from gbm_constrained import CrossFit
from gbm_constrained.metrics import cost, h_mean
from gbm_constrained.solvers import Reduction

OPTIONS = {
    "xgboost": {"max_depth": 2, "n_estimators": 12, "n_jobs": 1},
    "lightgbm": {"num_leaves": 4, "n_estimators": 12, "n_jobs": 1, "verbose": -1},
}
CONTINUED = {"xgboost": "xgb_model", "lightgbm": "init_model"}
STAGES = (4, 4, 4)  # of twelve rounds
# Costs whose optimum has costs of its own: these.
COSTS = np.array([[0.0, 1, 1], [3, 0, 3], [9, 9, 0]])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1200, p=[0.75, 0.18, 0.07])
    X = rng.normal(size=(1200, 3)) + 0.9 * y[:, None]
    return X, y, rng.choice(["a", "b"], 1200)


def _make(library, **options):
    options = {"solver": Reduction(oracle="in_training"), **options}
    return CLASSIFIERS[library](**{**OPTIONS[library], **options})


def _grow_natively(library, X, y, path, of_rows):
    """Grow the parent in stages by hand, with the weights of each."""
    model = None
    for weights, rounds in zip(path, STAGES, strict=True):
        stage = PARENTS[library](**{**OPTIONS[library], "n_estimators": rounds})
        stage.fit(X, y, sample_weight=weights[of_rows], **{CONTINUED[library]: model})
        model = stage
    return model


def _path_to(relative, y):
    """Weights that go three quarters of the way to fixed ones in each stage, in logarithms."""
    share = np.bincount(y) / len(y)
    path = np.asarray(relative) ** (1 - 0.25 ** np.arange(len(STAGES)))[:, None]
    return path / (path @ share)[:, None]


def _assert_equal_but_for_a_shift(found, expected):
    shift = found - expected
    np.testing.assert_allclose(shift, np.broadcast_to(shift[:1], shift.shape), atol=2e-6)


# -- the path of the weights ---------------------------------------------------------------------


@BOTH
def test_weights_go_to_fixed_costs(data, library):
    X, y, _ = data
    model = _make(library, minimize=cost(COSTS)).fit(X, y)
    expected = _grow_natively(library, X, y, _path_to([1.0, 3.0, 9.0], y), y)
    _assert_equal_but_for_a_shift(margins_of(model, X), margins_of(expected, X))
    report = model.metric_report_
    assert set(report["oracle"]) == {"in_training"}
    assert -model.score(X, y) == pytest.approx(report["train"].max(), abs=1e-9)


@BOTH
def test_stages_of_equal_weights_are_one_fit(data, library):
    X, y, _ = data
    given = {"eval_set": [(X[:300], y[:300])], **quiet(library)}
    model = _make(library, minimize=cost(1 - np.eye(3))).fit(X, y, **given)
    plain = PARENTS[library](**OPTIONS[library]).fit(X, y, **given)
    _assert_equal_but_for_a_shift(margins_of(model, X), margins_of(plain, X))
    # The values of all stages are recorded.
    for name, values in plain.evals_result_.items():
        assert set(model.evals_result_[name]) == set(values)
        for metric, of_rounds in values.items():
            np.testing.assert_allclose(model.evals_result_[name][metric], of_rounds, atol=1e-6)


@BOTH
def test_same_seed_same_model(data, library):
    X, y, _ = data
    drawn = {"subsample": 0.7, "random_state": 3}
    if library == "lightgbm":
        drawn["subsample_freq"] = 1
    model = _make(library, maximize=h_mean(), **drawn)
    first = clone(model).fit(X[:500], y[:500])
    # Random numbers that another training has left behind are not taken up.
    PARENTS[library](**OPTIONS[library], **drawn).fit(X[:77], y[:77])
    second = clone(model).fit(X[:500], y[:500])
    np.testing.assert_array_equal(margins_of(first, X), margins_of(second, X))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


@BOTH
def test_merged_boosters_of_the_folds_are_grown_along_the_path(data, library):
    X, y, _ = data
    groups = np.arange(len(y)) % 3
    options = {
        "measure_on": CrossFit(3),
        "probabilities": "calibrated",
        "solver": Reduction(oracle="in_training", ensemble="folds"),
    }
    model = _make(library, minimize=cost(COSTS), **options).fit(X, y, groups=groups)
    path = _path_to([1.0, 3.0, 9.0], y)
    alone = []
    for k in range(3):
        rest = groups != k
        grown = _grow_natively(library, X[rest], y[rest], path, y[rest])
        alone.append(margins_of(grown, X).astype(float))
    np.testing.assert_allclose(margins_of(model, X), np.mean(alone, axis=0), rtol=0, atol=2e-6)


def test_rounds_are_divided_by_whichever_name_they_have(data):
    X, y, _ = data
    model = _make("lightgbm", maximize=h_mean(), num_iterations=7).fit(X, y)
    assert model.booster_.num_trees() == 7 * 3


# -- what cannot be grown in stages --------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "options", "arguments", "named"),
    [
        ("lightgbm", {"boosting_type": "dart"}, {}, "boosting_type='dart'"),
        ("lightgbm", {"early_stopping_round": 3}, {}, "early stopping"),
        ("lightgbm", {}, {"callbacks": [lgb.early_stopping(3)]}, "early stopping"),
        ("lightgbm", {}, {"callbacks": [lgb.log_evaluation(0)]}, "callbacks"),
        ("lightgbm", {}, {"init_score": np.zeros((1200, 3))}, "init_score"),
        ("xgboost", {"booster": "gblinear"}, {}, "booster='gblinear'"),
        ("xgboost", {"early_stopping_rounds": 3}, {}, "early stopping"),
        (
            "xgboost",
            {"callbacks": [xgb.callback.LearningRateScheduler(lambda _: 0.1)]},
            {},
            "callbacks",
        ),
    ],
)
def test_what_stages_do_not_allow_is_named(data, library, options, arguments, named):
    X, y, _ = data
    model = _make(library, maximize=h_mean(), **options)
    with pytest.raises(ValueError, match=f"in stages, .*{named} does not allow .*'refit'"):
        model.fit(X, y, **arguments)


def test_a_linear_model_has_no_stages(data):
    X, y, _ = data
    with pytest.raises(ValueError, match="a linear model, which has no rounds, does not allow"):
        fit_linear(X, y, maximize=h_mean(), constraint_solver=Reduction(oracle="in_training"))
    assert (
        fit_linear(X, y, maximize=h_mean(), constraint_solver=Reduction(oracle="auto")).score(X, y)
        > 0.5
    )
