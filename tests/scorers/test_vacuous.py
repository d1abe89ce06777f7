"""A constraint that never binds leaves the library's own model: same trees, same predictions.

The flagship test: it runs the whole machinery (callable objective, cells, multipliers, native
post-processing) and finds most mistakes of integration.
"""

import inspect

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import alternate
from scipy import sparse
from vacuous_pairs import ROUNDS, compare, lgb_pair, weights, xgb_pair

import gbm_constrained as gc


def variants(X, y):
    """Kinds of input, as (name, X, fit arguments)."""
    frame = pd.DataFrame(X, columns=[f"f{i}" for i in range(X.shape[1])])
    with_categories = frame.assign(
        kind=pd.Categorical(np.array(["a", "b", "c"])[(np.abs(X[:, 3]) * 3).astype(int) % 3])
    )
    holes = X.copy()
    holes[np.random.default_rng(4).random(X.shape) < 0.2] = np.nan
    dense = np.where(np.abs(X) < 0.7, 0.0, X)
    return {
        "numpy": (X, {}),
        "frame": (frame, {}),
        "categories": (with_categories, {}),
        "missing": (holes, {}),
        "sparse": (sparse.csr_matrix(dense), {}),
        "weights": (X, {"sample_weight": weights(y.size)}),
    }


XGB_OPTIONS = {
    "gbtree": {},
    "subsample": {"subsample": 0.6, "random_state": 1},
    "gradient_based": {"subsample": 0.9, "colsample_bytree": 0.5, "colsample_bynode": 0.7},
    "monotone": {"monotone_constraints": (1, 0, -1, 0, 0, 0)},
    "lossguide": {"grow_policy": "lossguide", "max_leaves": 12, "max_depth": 0},
    "regularised": {"reg_lambda": 3.0, "reg_alpha": 0.2, "min_child_weight": 5.0, "gamma": 0.1},
    "exact": {"tree_method": "exact", "enable_categorical": False},
    # Trees of a round share gradients: splits of no gain would be ties that rounding decides.
    "forest_rounds": {"num_parallel_tree": 3, "subsample": 0.7, "random_state": 2, "gamma": 1e-3},
}
LGB_OPTIONS = {
    "gbdt": {},
    "goss": {"data_sample_strategy": "goss", "random_state": 1},
    "bagging": {"subsample": 0.6, "subsample_freq": 1, "random_state": 1},
    "columns": {"colsample_bytree": 0.5, "feature_fraction_bynode": 0.7, "random_state": 1},
    "extra_trees": {"extra_trees": True, "random_state": 1},
    "monotone": {"monotone_constraints": [1, 0, -1, 0, 0, 0]},
    "linear_tree": {"linear_tree": True},
    "no_average": {"boost_from_average": False},
    "quantized": {"use_quantized_grad": True},
}
UNSEEN = pytest.mark.parametrize(
    ("kind", "measure_on"), [("binary", "crossfit"), ("several", "holdout")]
)


def xgb_structure(model):
    trees = model.get_booster().trees_to_dataframe()
    return trees[["Tree", "Node", "Feature", "Yes", "No", "Missing"]]


@pytest.mark.parametrize("name", XGB_OPTIONS)
def test_xgboost_options(name, several):
    """Of two classes, test_parameters.py has each."""
    X, y = several
    plain, constrained = xgb_pair(**XGB_OPTIONS[name])
    compare(plain, constrained, X, y, {}, 2e-7)
    pd.testing.assert_frame_equal(xgb_structure(constrained), xgb_structure(plain))


@pytest.mark.parametrize("name", LGB_OPTIONS)
def test_lightgbm_options(name, several):
    X, y = several
    plain, constrained = lgb_pair(**LGB_OPTIONS[name])
    compare(plain, constrained, X, y, {}, 1e-12)


@pytest.mark.parametrize("name", ["numpy", "frame", "categories", "missing", "sparse", "weights"])
@alternate("kind", ["binary", "several"])
def test_inputs(library, name, kind, request):
    X, y = request.getfixturevalue(kind)
    X, fit_arguments = variants(X, y)[name]
    plain, constrained = xgb_pair() if library == "xgboost" else lgb_pair()
    compare(plain, constrained, X, y, fit_arguments, 2e-7 if library == "xgboost" else 1e-12)


@UNSEEN
@pytest.mark.parametrize("name", ["numpy", "categories", "missing", "sparse", "weights"])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_inputs_where_rates_are_measured_on_unseen_rows(library, name, kind, measure_on, request):
    """Boosters that look at other rows leave no trace, and nothing is calibrated."""
    X, y = request.getfixturevalue(kind)
    X, fit_arguments = variants(X, y)[name]
    pair = xgb_pair if library == "xgboost" else lgb_pair
    options = {"n_estimators": 8, "measure_on": measure_on}
    plain, constrained = pair(**options)
    compare(plain, constrained, X, y, fit_arguments, 2e-7 if library == "xgboost" else 1e-12)
    assert not constrained.shift_.any()


@UNSEEN
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *(("xgboost", name) for name in ("subsample", "gradient_based", "exact", "lossguide")),
        *(("lightgbm", name) for name in ("goss", "bagging", "columns", "linear_tree")),
    ],
)
def test_options_where_rates_are_measured_on_unseen_rows(library, name, kind, measure_on, request):
    """Random subsamples are those of the plain fit: no fold booster draws from its stream."""
    X, y = request.getfixturevalue(kind)
    options = {"n_estimators": 8, "measure_on": measure_on}
    if library == "xgboost":
        compare(*xgb_pair(**options, **XGB_OPTIONS[name]), X, y, {}, 2e-7)
    else:
        compare(*lgb_pair(**options, **LGB_OPTIONS[name]), X, y, {}, 1e-12)


@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
@pytest.mark.parametrize("rate", [gc.fpr, gc.selection_rate])
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_rate_of_one_does_not_exceed_one_by_rounding(library, rate, measure_on, binary):
    """Where the constant model says yes to all rows, their weights may sum to more than all."""
    X, y = binary[0], 1 - binary[1]
    pair, tolerance = (xgb_pair, 2e-7) if library == "xgboost" else (lgb_pair, 0.0)
    options = {"measure_on": measure_on, "n_estimators": 8}
    # Not all weights do; in double precision, those of is_unbalance are among them.
    options |= {} if library == "xgboost" else {"is_unbalance": True}
    plain, constrained = pair(**options)
    constrained.set_params(constraints=[rate() <= 1.0])
    random = np.random.default_rng(1).random(y.size) + 0.1
    more = {"sample_weight": random} if library == "xgboost" else {}
    compare(plain, constrained, X, y, more, tolerance)
    assert not constrained.shift_.any()
    assert not constrained.history_.filter(like="multiplier").to_numpy().any()


@pytest.mark.parametrize(
    ("source", "measure_on"),
    [
        (np.random.RandomState, "train"),
        (np.random.RandomState, "crossfit"),
        (np.random.default_rng, "holdout"),
    ],
)
@pytest.mark.parametrize("library", ["xgboost", "lightgbm"])
def test_a_source_of_randomness_is_left_to_the_library(library, source, measure_on, binary):
    """Splits and boosters besides draw nothing from it."""
    X, y = binary
    options = {"n_estimators": 8, "subsample": 0.6}
    pair, tolerance = (xgb_pair, 2e-7) if library == "xgboost" else (lgb_pair, 1e-12)
    if library == "lightgbm":
        options["subsample_freq"] = 1
    plain, constrained = pair(measure_on=measure_on, **options)
    plain.set_params(random_state=source(3))
    constrained.set_params(random_state=source(3))
    compare(plain, constrained, X, y, {}, tolerance)
    assert plain.random_state.random() == constrained.random_state.random()


def test_lightgbm_trees_are_identical_in_the_saved_text(binary):
    """Not only predictions: leaves, internal values, counts and the objective line."""
    X, y = binary
    plain, constrained = lgb_pair()
    text, native = (m.fit(X, y).booster_.model_to_string() for m in (constrained, plain))
    differences = [
        pair
        for pair in zip(text.splitlines(), native.splitlines(), strict=True)
        if pair[0] != pair[1] and not pair[1].startswith(("internal_value", "[metric"))
    ]
    assert differences == []


def test_no_constraints_is_the_parents_own_fit(binary):
    X, y = binary
    for empty in ([], None, ()):
        plain = xgb.XGBClassifier(n_estimators=ROUNDS).fit(X, y)
        own = gc.ConstrainedXGBClassifier(constraints=empty, n_estimators=ROUNDS).fit(X, y)
        assert own.get_booster().get_dump() == plain.get_booster().get_dump()
        plain = lgb.LGBMClassifier(n_estimators=ROUNDS, verbose=-1).fit(X, y)
        own = gc.ConstrainedLGBMClassifier(constraints=empty, n_estimators=ROUNDS, verbose=-1).fit(
            X, y
        )
        assert own.booster_.model_to_string() == plain.booster_.model_to_string()
        assert not hasattr(own, "constraint_report_")


@pytest.mark.parametrize(
    ("own", "parent"),
    [
        (gc.ConstrainedXGBClassifier, xgb.XGBClassifier),
        (gc.ConstrainedLGBMClassifier, lgb.LGBMClassifier),
    ],
)
def test_signatures_hold_everything_of_the_parent(own, parent):
    """A new library version cannot add a parameter unnoticed."""
    for method in ("fit", "__init__"):
        mine = inspect.signature(getattr(own, method)).parameters
        theirs = inspect.signature(getattr(parent, method)).parameters
        assert [name for name in theirs if name not in mine] == []
        for name, parameter in theirs.items():
            assert mine[name].default == parameter.default, name
    assert set(parent().get_params()) <= set(own().get_params())
