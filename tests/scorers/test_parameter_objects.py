"""Numbers of a parameter stand in its object: how these are set, copied, searched and refused."""

from __future__ import annotations

import inspect
import pickle
import re

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS
from regressor_fits import REGRESSORS
from sklearn.base import BaseEstimator, clone
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.model_selection import GridSearchCV, KFold
from sklearn.svm import LinearSVC

import gbm_constrained as gc
from gbm_constrained.fit.options import MOVED
from gbm_constrained.solvers import ABPP, Reduction
from gbm_constrained.solvers.base import SEARCH_OPTIONS

PARENTS = {
    gc.ConstrainedXGBClassifier: xgb.XGBClassifier,
    gc.ConstrainedLGBMClassifier: lgb.LGBMClassifier,
    gc.ConstrainedXGBRegressor: xgb.XGBRegressor,
    gc.ConstrainedLGBMRegressor: lgb.LGBMRegressor,
    gc.ConstrainedLogisticRegression: LogisticRegression,
    gc.ConstrainedRidge: Ridge,
    gc.ConstrainedLinearSVC: LinearSVC,
}
ESTIMATORS = pytest.mark.parametrize("cls", PARENTS, ids=lambda cls: cls.__name__)
BOOSTERS = pytest.mark.parametrize(
    "cls", [*CLASSIFIERS.values(), *REGRESSORS.values()], ids=lambda cls: cls.__name__
)
OBJECTS = [
    gc.CrossFit(3),
    gc.Holdout(0.3),
    gc.Forward(2),
    gc.Expected(0.3),
    gc.HighProbability(0.1, 0.3),
    gc.Margin(2.0),
]
SMALL = {
    "xgboost": {"n_estimators": 4, "max_depth": 2, "n_jobs": 1, "random_state": 0},
    "lightgbm": {
        "n_estimators": 4,
        "num_leaves": 4,
        "n_jobs": 1,
        "random_state": 0,
        "verbose": -1,
    },
}


def make(library, **options):
    return CLASSIFIERS[library](**{**SMALL[library], **options})


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 3))
    return X, (X[:, 0] + rng.normal(size=300) > 0.4).astype(int)


@ESTIMATORS
def test_constructors_add_few_parameters(cls):
    parent = PARENTS[cls]()
    own = inspect.signature(cls).parameters.keys() - parent.get_params().keys() - {"kwargs"}
    own -= inspect.signature(PARENTS[cls]).parameters.keys()
    assert len(own) <= 13, sorted(own)
    assert own.isdisjoint(MOVED)


@pytest.mark.parametrize("value", OBJECTS, ids=repr)
def test_an_object_is_one_of_scikit_learn(value):
    assert isinstance(value, BaseEstimator)
    for copy in (clone(value), pickle.loads(pickle.dumps(value)), eval(repr(value), vars(gc))):
        assert type(copy) is type(value)
        assert copy is not value
        assert copy.get_params() == value.get_params()
    assert repr(type(value)()) == f"{type(value).__name__}()"
    name, number = next(iter(value.get_params().items()))
    assert type(value)().set_params(**{name: number}).get_params()[name] == number
    with pytest.raises(ValueError, match="Invalid parameter 'folds'"):
        value.set_params(folds=3)


@BOOSTERS
def test_options_of_objects_are_nested_parameters(cls):
    options = {"measure_on": gc.CrossFit(3), "guarantee": gc.HighProbability(0.1)}
    model = cls(**options)
    found = model.get_params()
    assert found["measure_on__n_folds"] == 3
    assert (found["guarantee__delta"], found["guarantee__fraction"]) == (0.1, 0.2)
    shallow = model.get_params(deep=False)
    assert shallow["measure_on"] is options["measure_on"]
    assert not [name for name in shallow if "__" in name]
    assert "measure_on=CrossFit(n_folds=3)" in re.sub(r"\s+", " ", model.__repr__(N_CHAR_MAX=9**9))

    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert copy.measure_on is not model.measure_on
        assert repr(copy.get_params()) == repr(found)
        copy.set_params(measure_on__n_folds=5, guarantee__delta=0.2, guarantee__fraction=0.4)
        assert repr(copy.measure_on) == "CrossFit(n_folds=5)"
        assert repr(copy.guarantee) == "HighProbability(delta=0.2, fraction=0.4)"
    assert repr(model.get_params()) == repr(found), "objects of copies are their own"

    model.set_params(measure_on=gc.Holdout(), measure_on__fraction=0.4)
    assert repr(model.measure_on) == "Holdout(fraction=0.4)"
    with pytest.raises(ValueError, match="Invalid parameter 'n_folds' for estimator Holdout"):
        model.set_params(measure_on__n_folds=2)
    model.set_params(measure_on="crossfit", guarantee=None)
    with pytest.raises(
        TypeError,
        match=r"measure_on='crossfit' has no options .* object, measure_on=CrossFit\(n_folds=",
    ):
        model.set_params(measure_on__n_folds=2)
    with pytest.raises(TypeError, match=r"guarantee=None has no options.*HighProbability\(delta="):
        model.set_params(guarantee__delta=0.2)


@pytest.mark.parametrize(
    "cls", [*CLASSIFIERS.values(), gc.ConstrainedLogisticRegression], ids=lambda cls: cls.__name__
)
def test_options_of_a_reduction_are_set(cls):
    name = "constraint_solver" if cls is gc.ConstrainedLogisticRegression else "solver"
    solver = Reduction("gda", max_calls=30)
    model = cls(maximize="g_mean", **{name: solver})
    model.set_params(**{f"{name}__oracle": "refit", f"{name}__deterministic": False})
    assert getattr(model, name) == Reduction(
        "gda", max_calls=30, oracle="refit", deterministic=False
    )
    assert solver == Reduction("gda", max_calls=30), "the user's own stays as it is"
    for copy in (clone(model), pickle.loads(pickle.dumps(model))):
        assert getattr(copy, name) == getattr(model, name)
    model.set_params(**{name: "auto"})
    with pytest.raises(TypeError, match=rf"{name}='auto' .* {name}=Reduction\(oracle=\.\.\.\)"):
        model.set_params(**{f"{name}__oracle": "refit"})


@pytest.mark.parametrize(
    "cls",
    [gc.ConstrainedLogisticRegression, gc.ConstrainedRidge, gc.ConstrainedLinearSVC],
    ids=lambda cls: cls.__name__,
)
@pytest.mark.parametrize("name", ["measure_on__n_folds", "guarantee__delta"])
def test_options_of_a_parameter_that_a_linear_model_lacks_are_refused(cls, name):
    with pytest.raises(ValueError, match=f"Invalid parameter '{name.partition('__')[0]}'"):
        cls().set_params(**{name: 3})


@BOTH
def test_a_search_over_folds_is_that_of_objects(library, rows):
    X, y = rows
    model = make(library, constraints=[gc.fnr() <= 0.3], measure_on=gc.CrossFit())
    grid = {"measure_on__n_folds": [2, 5]}
    search = GridSearchCV(model, grid, cv=KFold(2), scoring="accuracy").fit(X, y)
    assert model.measure_on.n_folds == 4
    assert search.best_estimator_.measure_on.n_folds == search.best_params_["measure_on__n_folds"]
    for train, test in [next(KFold(2).split(X))]:
        for n, score in zip((2, 5), search.cv_results_["split0_test_score"], strict=True):
            own = clone(model).set_params(measure_on=gc.CrossFit(n)).fit(X[train], y[train])
            assert own.score(X[test], y[test]) == score


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("crossfit", gc.CrossFit()),
        ("holdout", gc.Holdout()),
        ("holdout", gc.Holdout(0.25)),
        ("forward", gc.Forward()),
    ],
    ids=repr,
)
def test_a_name_is_an_object_of_default_options(library, name, value, rows):
    X, y = rows
    given = {"time": np.arange(300)} if name == "forward" else {}
    fits = [
        make(library, constraints=[gc.fnr() <= 0.2], measure_on=on).fit(X, y, **given)
        for on in (name, value)
    ]
    np.testing.assert_array_equal(*(fit.predict_proba(X) for fit in fits))
    np.testing.assert_array_equal(*(fit.multipliers_ for fit in fits))


@BOTH
@pytest.mark.parametrize(
    ("name", "value"),
    [("expected", gc.Expected()), ("high_probability", gc.HighProbability())],
    ids=repr,
)
def test_a_name_of_a_guarantee_is_an_object_of_default_options(library, name, value, rows):
    fits = [
        make(library, constraints=[gc.fpr() <= 0.4], guarantee=asked).fit(*rows)
        for asked in (name, value)
    ]
    np.testing.assert_array_equal(*(fit.shift_ for fit in fits))
    p_values = [fit.feasibility_.p_value for fit in fits]
    assert p_values[0] == pytest.approx(p_values[1], nan_ok=True)


@BOOSTERS
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"measure_on": gc.CrossFit(1)}, "n_folds of CrossFit must be an integer >= 2, got 1"),
        ({"measure_on": gc.CrossFit(2.5)}, "n_folds of CrossFit must be an integer"),
        ({"measure_on": gc.Forward("3")}, "n_folds of Forward must be an integer >= 2, got '3'"),
        ({"measure_on": gc.Holdout(1.0)}, "fraction of Holdout must lie strictly between 0 and 1"),
        ({"measure_on": "folds"}, "measure_on must be one of"),
        ({"guarantee": gc.HighProbability(0.0)}, "delta of HighProbability must lie strictly"),
        ({"guarantee": gc.HighProbability(fraction=2)}, "fraction of HighProbability must lie"),
        ({"guarantee": gc.Expected(0)}, "fraction of Expected must lie strictly between"),
        ({"guarantee": "sure"}, "guarantee must be one of"),
    ],
    ids=str,
)
def test_options_out_of_range_are_named_with_their_object(cls, options, message, rows):
    rule = gc.fnr() if cls in CLASSIFIERS.values() else gc.mean_loss()
    with pytest.raises(ValueError, match=message):
        cls(constraints=[rule <= 0.5], **options).fit(*rows)


@BOOSTERS
@pytest.mark.parametrize("value", [3, None, gc.CrossFit, gc.HighProbability()], ids=repr)
def test_what_measures_nothing_is_refused(cls, value, rows):
    rule = gc.fnr() if cls in CLASSIFIERS.values() else gc.mean_loss()
    with pytest.raises(
        TypeError, match=r"measure_on must be a name such as 'crossfit', an object"
    ):
        cls(constraints=[rule <= 0.5], measure_on=value).fit(*rows)


@ESTIMATORS
@pytest.mark.parametrize("name", MOVED)
def test_names_of_version_0_1_are_refused_with_their_place(cls, name):
    own = inspect.signature(cls).parameters
    if name == "deterministic" and issubclass(PARENTS[cls], lgb.LGBMModel):
        model = cls(deterministic=True).set_params(deterministic=False)
        assert model.get_params()["deterministic"] is False, "LightGBM's own"
        return
    place, given = MOVED[name]
    place = "constraint_solver" if "constraint_solver" in own and place == "solver" else place
    if name in SEARCH_OPTIONS and "maximize" not in own and place in own:
        message = f"no parameter '{name}', which is about metrics .*: leave it out"
    elif place in own:
        message = re.escape(
            f"no parameter '{name}', which has another place: give {place}={given}"
        )
    else:
        message = f"no parameter '{name}'|Invalid parameter '{name}'"
    with pytest.raises(TypeError, match=message):
        cls(**{name: 3})
    with pytest.raises((TypeError, ValueError), match=message):
        cls().set_params(**{name: 3})


@BOTH
def test_a_reduction_without_a_metric_is_refused(library, rows):
    with pytest.raises(ValueError, match=r"solver=Reduction\(.*give maximize= or minimize="):
        make(library, constraints=[gc.fnr() <= 0.2], solver=Reduction(oracle="refit")).fit(*rows)
    with pytest.raises(ValueError, match="solver must be one of"):
        make(library, maximize="g_mean", solver=ABPP()).fit(*rows)


@BOTH
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"oracle": "best"}, "oracle of Reduction must be one of"),
        ({"ensemble": "mean"}, "ensemble of Reduction must be one of"),
        ({"deterministic": 3}, "deterministic of Reduction must be one of"),
        ({"name": "newton"}, "name of Reduction must be one of"),
        ({"max_calls": 1}, "max_calls of Reduction must be an integer >= 2"),
        ({"radius": 2.0}, r"radius=2.0 is of Reduction\('ellipsoid'\)"),
    ],
    ids=str,
)
def test_options_of_a_reduction_out_of_range_are_named(library, options, message, rows):
    with pytest.raises(ValueError, match=message):
        make(library, maximize="g_mean", solver=Reduction(**options)).fit(*rows)
