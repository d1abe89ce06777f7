"""Objectives of regression: against finite differences, scikit-learn, and the libraries' own."""

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from regressions import OBJECTIVES
from sklearn import metrics

from gbm_constrained.problem.losses import KINK_WIDTH, RegressionObjective

STEP = 1e-6
IDS = [objective.name for objective in OBJECTIVES]


def draw(objective, seed=0, n=300):
    """Draw targets, and scores of predictions near them."""
    rng = np.random.default_rng(seed)
    y, f = rng.gamma(3.0, 0.5, (2, n))
    return y, objective.score_of(f)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=IDS)
def test_gradients_are_finite_differences(objective):
    y, score = draw(objective)
    up, down = objective.values(y, score + STEP), objective.values(y, score - STEP)
    r = np.abs(y - objective.predict(score))
    far = (r > 1e-3) & (np.abs(r - 0.8) > 1e-3)  # from kinks
    gradient, _ = objective.derivatives(y, score, 1.0)
    np.testing.assert_allclose(
        gradient[far], ((up - down) / (2 * STEP))[far], rtol=1e-6, atol=1e-6
    )


@pytest.mark.parametrize(
    ("name", "factor"),
    [
        ("squared", 1.0),
        ("pseudo_huber", 1.0),
        ("tweedie", 1.0),
        ("gamma", 1.0),
        ("fair", 1.0),
        ("poisson", 2.0137527),
    ],
)
def test_hessians_are_finite_differences(name, factor):
    """The libraries' Poisson Hessian is taken exp(0.7) further."""
    objective = next(one for one in OBJECTIVES if one.name == name)
    y, score = draw(objective, 1)
    up, down = (objective.derivatives(y, score + s, 1.0)[0] for s in (STEP, -STEP))
    _, hessian = objective.derivatives(y, score, 1.0)
    np.testing.assert_allclose(hessian, factor * (up - down) / (2 * STEP), rtol=1e-6)


@pytest.mark.parametrize("name", ["huber", "absolute", "quantile"])
def test_hessians_of_other_losses_bound_them_from_above(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    y, score = draw(objective, 2)
    _, other = draw(objective, 3)
    far = np.abs(y - score) > KINK_WIDTH
    gradient, hessian = objective.derivatives(y, score, 1.0)
    move = other - score
    above = objective.values(y, score) + gradient * move + hessian * move**2 / 2
    assert (above - objective.values(y, other))[far].min() >= -1e-12


def test_differences_of_values_are_those_of_scikit_learn():
    """Half the squared error and half the deviances, up to a constant of the targets."""
    references = {
        "squared": (metrics.mean_squared_error, 2.0),
        "absolute": (metrics.mean_absolute_error, 1.0),
        "quantile": (lambda y, f: metrics.mean_pinball_loss(y, f, alpha=0.3), 1.0),
        "poisson": (metrics.mean_poisson_deviance, 2.0),
        "gamma": (metrics.mean_gamma_deviance, 2.0),
        "tweedie": (lambda y, f: metrics.mean_tweedie_deviance(y, f, power=1.5), 2.0),
    }
    for objective in OBJECTIVES:
        if objective.name not in references:
            continue
        reference, factor = references[objective.name]
        y, one = draw(objective, 4)
        _, two = draw(objective, 5)
        found = factor * (objective.values(y, one) - objective.values(y, two)).mean()
        expected = reference(y, objective.predict(one)) - reference(y, objective.predict(two))
        assert found == pytest.approx(expected, rel=1e-10)


@pytest.mark.parametrize("objective", OBJECTIVES, ids=IDS)
def test_scores_and_predictions_are_inverse(objective):
    f = np.array([0.1, 1.0, 7.0])
    np.testing.assert_allclose(objective.predict(objective.score_of(f)), f, rtol=1e-12)


def test_poisson_values_at_targets_of_zero():
    objective = RegressionObjective("poisson")
    np.testing.assert_allclose(
        objective.values(np.zeros(2), np.array([0.0, -1.0])), np.exp([0, -1])
    )


def test_negative_targets_of_positive_predictions_are_refused():
    objective = RegressionObjective("poisson")
    with pytest.raises(ValueError, match=r"y holds -2 in row 1, and the poisson objective"):
        objective.check_targets(np.array([1.0, -2.0]))
    with pytest.raises(ValueError, match="y is zero in every row"):
        objective.check_targets(np.zeros(3))
    objective.check_targets(np.array([0.0, 1.0]))
    RegressionObjective("squared").check_targets(np.array([-1.0]))


XGB = {
    "squared": ("reg:squarederror", {}),
    "pseudo_huber": ("reg:pseudohubererror", {"huber_slope": 0.8}),
    "poisson": ("count:poisson", {"max_delta_step": 0.7}),
    "tweedie": ("reg:tweedie", {"tweedie_variance_power": 1.5}),
}
LGB = {
    "squared": ("regression", {}),
    "huber": ("huber", {"alpha": 0.8}),
    "poisson": ("poisson", {"poisson_max_delta_step": 0.7}),
    "tweedie": ("tweedie", {"tweedie_variance_power": 1.5}),
}


def rows(seed=6, n=500):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(n, 4))
    y = np.round(np.exp(0.4 * X[:, 0] + 0.2 * X[:, 1]) * rng.gamma(4.0, 0.25, n), 3)
    return X, y, rng.gamma(2.0, size=n)


def own_objective(objective):
    def derivatives(score, data):
        y, weight = data.get_label().astype(float), data.get_weight()
        gradient, hessian = objective.derivatives(y, np.asarray(score, float), float(y.std()))
        return gradient * weight, hessian * weight

    return derivatives


@pytest.mark.parametrize("name", XGB)
def test_trees_are_those_of_xgboost(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    X, y, weight = rows()
    library, given = XGB[name]
    base = {"max_depth": 3, "base_score": 0.5, "nthread": 1, "tree_method": "hist"}
    if name == "poisson":  # The step of a leaf is bounded as well.
        base |= given
    # The base score of a library's own objective is a prediction, and of others a score.
    score = float(objective.score_of(np.array(0.5)))
    data = xgb.DMatrix(X, y, weight=weight)
    own = xgb.train({**base, "objective": library, **given}, data, 5)
    ours = xgb.train(
        {**base, "base_score": score, "disable_default_eval_metric": True}, data, 5,
        obj=own_objective(objective),
    )  # fmt: skip
    one, two = own.trees_to_dataframe(), ours.trees_to_dataframe()
    np.testing.assert_array_equal(one["Feature"], two["Feature"])
    np.testing.assert_allclose(one["Split"], two["Split"])
    np.testing.assert_allclose(
        own.predict(data, output_margin=True), ours.predict(data, output_margin=True), rtol=1e-4
    )


@pytest.mark.parametrize("name", LGB)
def test_trees_are_those_of_lightgbm(name):
    objective = next(one for one in OBJECTIVES if one.name == name)
    X, y, weight = rows()
    library, given = LGB[name]
    base = {
        "num_leaves": 8, "verbose": -1, "num_threads": 1, "deterministic": True,
        "boost_from_average": False, "learning_rate": 0.3, **given,
    }  # fmt: skip

    def data():
        return lgb.Dataset(X, y, weight=weight)

    own = lgb.train({**base, "objective": library}, data(), 5)
    ours = lgb.train({**base, "objective": own_objective(objective)}, data(), 5)
    one, two = own.trees_to_dataframe(), ours.trees_to_dataframe()
    assert one["split_feature"].equals(two["split_feature"])
    np.testing.assert_allclose(
        own.predict(X, raw_score=True), ours.predict(X, raw_score=True), rtol=1e-5, atol=1e-6
    )
