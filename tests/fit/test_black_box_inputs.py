"""Bad input of a fit for a black-box metric is refused before any tree is grown."""

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from black_box_fits import LIBRARIES, draw, g_mean_loss, make, mean_g_mean_loss
from helpers import CLASSIFIERS

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.metrics import BlackBox, g_mean, surrogate
from gbm_constrained.solvers import ABPP, AdaptiveSurrogates, Reduction

TRAINING, VALIDATION = draw(0, 400), draw(1, 450)
X, Y, GROUP = TRAINING
V, LABELS, HELD_GROUP = VALIDATION
PARENTS = {"xgboost": xgb.XGBClassifier, "lightgbm": lgb.LGBMClassifier}


@pytest.fixture(autouse=True)
def no_training(monkeypatch):
    """Fail if a library trains."""

    def train(*args, **kwargs):
        pytest.fail("training has started")

    for parent in PARENTS.values():
        monkeypatch.setattr(parent, "fit", train)


def nan_loss(y, s):
    return float("nan")


def array_loss(y, s):
    return s


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"function": array_loss}, r"function=array_loss must return one number.*return a float"),
        ({"function": nan_loss}, r"function=nan_loss returned nan in the first call.*worst one"),
        ({"max_calls": 100}, r"max_calls leaves \d+ calls.*raise max_calls, or lower n_pert"),
        ({"max_calls": 20}, "max_calls leaves 0 calls of the metric"),
        ({"by": "age"}, r"column 'age' is neither in sensitive_features nor in X"),
        (
            {"surrogates": [surrogate(on=gc.label(0)), surrogate(on={"group": 7})]},
            r"surrogate\('log_loss', on=group=7\)|7",
        ),
        ({"solver": "columns"}, r"solver must be 'auto', or AdaptiveSurrogates.*got 'columns'"),
        ({"solver": ABPP()}, r"solver must be 'auto', or AdaptiveSurrogates.*got ABPP"),
        (
            {"solver": AdaptiveSurrogates(n_perturbations=3)},
            "n_perturbations=3 is fewer than the 4 surrogates.*at least 4",
        ),
    ],
)
def test_metrics_and_solvers(library, options, message):
    options = {"function": mean_g_mean_loss, **options}
    with pytest.raises((TypeError, ValueError), match=message):
        make(library, **options).fit(X, Y, sensitive_features=GROUP, validation=VALIDATION)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("space", ["trees", "leaves"])
@pytest.mark.parametrize("has_names", [True, False])
def test_other_values_of_trees_would_not_be_monotone(library, space, has_names):
    table = X if has_names else X.to_numpy()
    model = make(library, solver=AdaptiveSurrogates(space=space))
    model.set_params(monotone_constraints=(0, -1))
    with pytest.raises(ValueError, match=f"space='{space}' .* monotone in '(b|f1)', as monotone_"):
        model.fit(table, Y, sensitive_features=GROUP)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"validation": V}, r"validation must be \(X, y\).*got a DataFrame"),
        ({"validation": (V,)}, r"validation must be .*got a tuple of 1"),
        ({"validation": (V.rename(columns={"a": "z"}), LABELS, HELD_GROUP)},
         r"X of validation has the columns \['z', 'b'\].*same order"),
        ({"validation": (V[["a"]], LABELS, HELD_GROUP)}, "validation has 1 columns, .* have 2"),
        ({"validation": (V, LABELS[:9], HELD_GROUP)}, "450 rows of X and 9 values of y"),
        ({"validation": (V, LABELS + 1, HELD_GROUP)}, "validation holds label 2"),
        ({"validation": (V, LABELS)},
         r"'group' is neither.*give it in validation=\(X, y, sensitive_features\)"),
        ({"evaluation": (V, LABELS)}, r"give them in evaluation=\(X, y, sensitive_features\)"),
        ({"validation": (V[:0], LABELS[:0], HELD_GROUP[:0])}, "There are no validation rows"),
        ({"evaluation": (V[:0], LABELS[:0], HELD_GROUP[:0])}, "There are no evaluation rows"),
        ({"validation": (V[:1], LABELS[:1], HELD_GROUP[:1])}, "There are no evaluation rows"),
        ({"evaluation": (V[["a"]], LABELS, HELD_GROUP)}, "X of evaluation has 1 columns"),
        ({"validation": (V, LABELS, pd.Series(np.zeros(450, dtype=int), name="group"))},
         r"taken over no validation row: leave it out of surrogates="),
        ({"datasets": {"more": (V, LABELS)}}, "datasets= has no meaning for BlackBox"),
        ({"time_limit": 3.0}, "time_limit= has no meaning for BlackBox.*max_calls"),
        ({"checkpoint": "file"}, "checkpoint= has no meaning for BlackBox"),
        ({"constraint_callbacks": [print]}, "constraint_callbacks= has no meaning"),
    ],
)  # fmt: skip
def test_rows_and_arguments(library, given, message):
    given = {"validation": VALIDATION, **given}
    with pytest.raises((TypeError, ValueError), match=message):
        make(library).fit(X, Y, sensitive_features=GROUP, **given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize(
    ("parameters", "message"),
    [
        ({"constraints": [gc.auc() >= 0.9]}, "is measured on decisions about validation rows"),
        ({"constraints": [gc.log_loss() <= 0.9]}, "bound a rate of decisions in groups"),
        (
            {"constraints": [gc.fpr() <= 0.1], "solver": AdaptiveSurrogates(refits=1)},
            "refits=1 grows a model without multipliers",
        ),
        ({"guarantee": "expected"}, "guarantee='expected' has no meaning for BlackBox"),
        ({"probabilities": "calibrated"}, "probabilities='calibrated' has no meaning"),
        ({"solver": Reduction(oracle="refit")}, "solver must be 'auto', or AdaptiveSurrogates"),
        ({"measure_on": gc.CrossFit(3)}, r"measure_on=CrossFit\(n_folds=3\) has no meaning"),
        ({"iterate": "best"}, "iterate='best' has no meaning"),
        ({"positive": 0}, "positive=0, and scores of BlackBox.* are those of 1"),
        ({"measure_on": gc.Holdout(1.5)}, "fraction of Holdout"),
        ({"maximize": g_mean()}, "cannot both be given"),
        (
            {"minimize": None, "maximize": BlackBox(g_mean_loss)},
            r"maximize=BlackBox\(g_mean_loss\): smaller values .* minimize=, or BlackBox",
        ),
        (
            {"minimize": BlackBox(g_mean_loss, maximize=True)},
            r"minimize=BlackBox\(g_mean_loss\): larger values of it are better, so use maximize=",
        ),
    ],
)
def test_parameters_without_a_meaning(library, parameters, message):
    model = make(library).set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, sensitive_features=GROUP, validation=VALIDATION)


@pytest.mark.parametrize(
    ("library", "parameters", "given", "message"),
    [
        ("lightgbm", {"boosting_type": "rf"}, {}, "boosting_type='rf'"),
        (
            "lightgbm",
            {"boosting_type": "dart", "constraints": [gc.fpr() <= 0.1]},
            {},
            "boosting_type='dart' takes no gradients but its own, and constraints=",
        ),
        ("lightgbm", {"objective": lambda y, p: (y, p)}, {}, "objective=<function"),
        ("lightgbm", {}, {"init_score": np.zeros(400)}, "init_score= starts training"),
        ("xgboost", {"booster": "gblinear"}, {}, "booster='gblinear'"),
        ("xgboost", {"booster": "dart"}, {}, "booster='dart'"),
        ("xgboost", {"objective": lambda y, p: (y, p)}, {}, "objective=<function"),
        ("xgboost", {}, {"base_margin": np.zeros(400)}, "base_margin= starts training"),
    ],
)
def test_models_that_are_no_sum_of_trees(library, parameters, given, message):
    model = make(library).set_params(**parameters)
    with pytest.raises(ValueError, match=message):
        model.fit(X, Y, sensitive_features=GROUP, validation=VALIDATION, **given)


@pytest.mark.parametrize("library", LIBRARIES)
@pytest.mark.parametrize("name", ["validation", "evaluation"])
def test_rows_that_choose_are_for_black_boxes(library, name):
    for model in (CLASSIFIERS[library](), CLASSIFIERS[library](constraints=[gc.fpr() <= 0.1])):
        with pytest.raises(ValueError, match=f"{name}= is for objectives that are only"):
            model.fit(X, Y, **{name: VALIDATION})
    with pytest.raises(ValueError, match=f"{name}= is for objectives that are only"):
        ConstrainedLogisticRegression().fit(X, Y, **{name: VALIDATION})


def test_several_classes():
    with pytest.raises(ValueError, match="takes y with two classes"):
        make("lightgbm", g_mean_loss, by=None).fit(X, np.arange(400) % 3)


def test_spaces():
    with pytest.raises(ValueError, match="space='scores' has a parameter for each given row"):
        AdaptiveSurrogates(space="scores")
    with pytest.raises(ValueError, match="space must be one of"):
        AdaptiveSurrogates(space="forest")
    with pytest.raises(TypeError, match="offsets must be True or False"):
        AdaptiveSurrogates(offsets=1)


def test_sensitive_features_of_a_function_are_asked_for_where_they_are_given():
    model = make("lightgbm", by=None)
    with pytest.raises(ValueError, match=r"give them in validation=\(X, y, sensitive_features\)"):
        model.fit(X, Y, sensitive_features=GROUP, validation=(V, LABELS))
    with pytest.raises(ValueError, match=r"give them as sensitive_features=\.\.\."):
        model.set_params(measure_on=gc.Holdout(0.6)).fit(X, Y)
