"""Fits that are bounded in plain fits, by the rows of their trees."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
from helpers import CLASSIFIERS, EITHER, margins_of
from sklearn.datasets import make_classification

import gbm_constrained as gc
from gbm_constrained import lightgbm as native
from gbm_constrained.metrics import g_mean

X, Y = make_classification(1500, 8, n_informative=4, flip_y=0.1, random_state=0)
QUIET = {"xgboost": {"verbosity": 0}, "lightgbm": {"verbose": -1}}
SEX = (X[:, 5] > 0).astype(int)
GAP = [gc.gap(gc.selection_rate(), by="sex") <= 0.01]  # is not done without multipliers


def fit(library, cost, time_limit=None, eval_set=None, **options):
    options = {"n_estimators": 20, "n_jobs": 1, "max_depth": 3, **QUIET[library], **options}
    options = {"constraints": GAP, **options}
    model = CLASSIFIERS[library](**options)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        given = {} if eval_set is None else {"eval_set": eval_set}
        given |= {"sensitive_features_eval_set": [{"sex": SEX[:500]}]} if given else {}
        model.fit(
            X, Y, sensitive_features={"sex": SEX}, max_cost=cost, time_limit=time_limit, **given
        )
    return model, [w for w in caught if issubclass(w.category, gc.TimeLimitWarning)]


@EITHER
def test_sets_of_boosters_that_cost_too_much_are_left_out(library, grown):
    """The model and a set of two folds are 2.4 plain fits, and another set is 1.2 more."""
    model, caught = fit(library, 3.5)
    assert grown == [False]
    assert not model.multipliers_.any()
    assert model.stopping_message_.startswith("max_cost=3.5 left no time to try multipliers")
    assert "Give a larger max_cost" in str(caught[0].message)
    again, _ = fit(library, 3.5)
    np.testing.assert_array_equal(margins_of(again, X), margins_of(model, X))
    grown.clear()
    whole, caught = fit(library, 3.6)
    assert grown == [False, True]
    assert whole.multipliers_.any()
    assert whole.stopping_message_ is None
    assert not caught
    np.testing.assert_array_equal(margins_of(fit(library, None)[0], X), margins_of(whole, X))


@EITHER
@pytest.mark.parametrize(
    ("cost", "options", "message"),
    [
        (2.3, {}, r"max_cost=2.3 plain fits are fewer than the 2.4 that measuring out of fold"),
        (4.0, {"measure_on": "crossfit"}, r"fewer than the 4.8 that .* use measure_on='train'"),
        (1.7, {"measure_on": gc.Holdout(0.5)}, r"fewer than the 1.8 that measuring holdout"),
        (1.0, {"measure_on": "train"}, r"the 1.2 that a fit under multipliers takes"),
        (3.0, {"guarantee": "margin", "solver": "abpp"}, r"fewer than the 3.6 that guarantee="),
        (2.0, {"maximize": g_mean(), "constraints": []}, r"the 2.4 that measuring the metric"),
    ],
)
def test_too_few_plain_fits_are_refused(library, cost, options, message):
    with pytest.raises(ValueError, match=message):
        fit(library, cost, **options)


def test_the_least_that_is_allowed_is_enough():
    for cost, options in ((1.2, {"measure_on": "train"}), (1.8, {"measure_on": gc.Holdout(0.5)})):
        fit("lightgbm", cost, **options)
    model, _ = fit("lightgbm", 2.4, maximize=g_mean(), constraints=[gc.fpr() <= 0.2])
    assert model.metric_report_["is_returned"].any()


@pytest.mark.parametrize(
    ("value", "error"), [(0, ValueError), (float("inf"), ValueError), ("3", TypeError)]
)
def test_no_number_of_plain_fits(value, error):
    with pytest.raises(error, match=rf"max_cost is {value!r}.*give a positive number of plain"):
        fit("xgboost", value)


@EITHER
def test_a_bound_needs_constraints(library):
    with pytest.raises(ValueError, match=r"max_cost=3 bounds fits under constraints"):
        fit(library, 3, constraints=[])


def test_regressors_and_boosters_are_bounded_as_well():
    constraint = gc.gap(gc.mean_prediction(), by="sex") <= 0.01
    options = {"n_estimators": 20, "verbose": -1}
    model = gc.ConstrainedLGBMRegressor(constraints=[constraint], **options)
    with pytest.warns(gc.TimeLimitWarning, match="max_cost=2.5 left no time"):
        model.fit(X, 3.0 * SEX + X[:, 0], sensitive_features={"sex": SEX}, max_cost=2.5)
    rows = lgb.Dataset(X, Y, free_raw_data=False)
    with pytest.warns(gc.TimeLimitWarning, match="max_cost=2.5 left no time"):
        native.train(
            {"verbose": -1, "max_depth": 3}, rows, 20, constraints=GAP,
            sensitive_features={"sex": SEX}, max_cost=2.5,
        )  # fmt: skip


@EITHER
def test_of_two_bounds_the_one_that_left_boosters_out_is_named(library):
    model, caught = fit(library, 3.5, time_limit=1000)
    assert model.stopping_message_.startswith("max_cost=3.5 left no time to try multipliers")
    assert "Give a larger max_cost" in str(caught[0].message)
    with pytest.raises(ValueError, match=r"the 1.2 that a fit under multipliers takes"):
        fit(library, 1.1, measure_on="holdout", eval_set=[(X[:500], Y[:500])])
