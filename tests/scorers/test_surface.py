"""Every argument of fit, method and attribute of the parents is accounted for.

The names are those of the installed libraries. A new version of a library that adds one fails a
test.
"""

import copy
import inspect

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import PARENTS
from parent_pairs import (
    ALWAYS,
    HELD,
    LABELS,
    NEVER_BINDS,
    OWN,
    START,
    WEIGHT,
    X,
    Y,
    assert_alike,
    assert_same_results,
    evaluated,
    fitted_pair,
    results_of,
)
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression


def test_objectives_of_another_number_of_classes():
    several = np.digitize(X[:, 0], [-0.5, 0.5])
    for cls, more in ((lgb.LGBMClassifier, {}), (OWN["lightgbm"], {"constraints": NEVER_BINDS})):
        for objective, y in (("binary", several), ("multiclass", Y), ("Softmax", Y)):
            with pytest.raises(lgb.basic.LightGBMError):
                cls(objective=objective, **more).fit(X, y)
    for name in ("num_class", "num_classes"):
        wrong = gc.ConstrainedLGBMClassifier(
            constraints=NEVER_BINDS, objective="multiclass", **{name: 2}
        )
        with pytest.raises(ValueError, match="num_class=2 cannot be trained under constraints"):
            wrong.fit(X, Y)
    for objective in ("multi:softprob", "multi:softmax"):
        wrong = gc.ConstrainedXGBClassifier(
            constraints=NEVER_BINDS, objective=objective, num_class=2
        )
        with pytest.raises(ValueError, match="num_class=2 cannot be trained under constraints"):
            wrong.fit(X, Y)


# --- arguments of fit ---------------------------------------------------------------------------

EVALUATED = {"eval_set": [(X, Y), (HELD, LABELS)]}
FIT = {
    "xgboost": {
        "sample_weight": {"sample_weight": WEIGHT},
        "base_margin": {"base_margin": START},
        "eval_set": EVALUATED,
        "verbose": {**EVALUATED, "verbose": 2},
        "xgb_model": {"xgb_model": xgb.XGBClassifier(n_estimators=2, n_jobs=1).fit(X, Y)},
        "sample_weight_eval_set": {**EVALUATED, "sample_weight_eval_set": [WEIGHT, WEIGHT[:100]]},
        "base_margin_eval_set": {
            **EVALUATED, "base_margin": START, "base_margin_eval_set": [START, START[:100]],
        },
        "feature_weights": {"feature_weights": np.array([1.0, 1.0, 0.1, 0.1, 3.0])},
    },
    "lightgbm": {
        "sample_weight": {"sample_weight": WEIGHT},
        "init_score": {"init_score": START},
        "eval_set": EVALUATED,
        "eval_names": {**EVALUATED, "eval_names": ["mine", "theirs"]},
        "eval_sample_weight": {**EVALUATED, "eval_sample_weight": [WEIGHT, WEIGHT[:100]]},
        "eval_class_weight": {**EVALUATED, "eval_class_weight": [None, {0: 1.0, 1: 5.0}]},
        "eval_init_score": {"eval_set": [(HELD, LABELS)], "eval_init_score": [START[:100]]},
        "eval_metric": {**EVALUATED, "eval_metric": ["auc", "error"]},
        "feature_name": {"feature_name": ["a", "b", "c", "d", "e"]},
        "categorical_feature": {"categorical_feature": [4]},
        "callbacks": {**EVALUATED, "callbacks": [
            lgb.reset_parameter(learning_rate=[0.5, 0.4, 0.3, 0.2]),
            lgb.early_stopping(2, verbose=False),
        ]},
        "init_model": {"init_model": lgb.LGBMClassifier(n_estimators=2, verbose=-1).fit(X, Y)},
        "eval_X": {"eval_X": (HELD,), "eval_y": (LABELS,)},
        "eval_y": {"eval_X": (HELD,), "eval_y": (LABELS,)},
    },
}  # fmt: skip
OUR_ARGUMENTS = {
    "sensitive_features", "datasets", "sensitive_features_eval_set", "groups",
    "constraint_callbacks", "checkpoint", "time_limit", "max_cost", "validation", "evaluation",
    "time",
}  # fmt: skip


def arguments_of(method):
    return {
        name for name in inspect.signature(method).parameters if name not in ("self", "X", "y")
    }


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_argument_of_fit_is_known(library):
    parents = arguments_of(PARENTS[library].fit)
    assert parents <= set(FIT[library]), "classify what the new version adds"
    assert arguments_of(OWN[library].fit) == set(FIT[library]) | OUR_ARGUMENTS
    linear = arguments_of(ConstrainedLogisticRegression.fit)
    assert linear - arguments_of(LogisticRegression.fit) <= OUR_ARGUMENTS


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, table in FIT.items() for name in table]
)
def test_arguments_of_fit_work_as_in_the_parent(library, name, capfd):
    if name not in arguments_of(PARENTS[library].fit):
        pytest.skip(f"this version of {library} has no {name}")
    given = FIT[library][name]
    options = {"colsample_bynode": 0.4} if name == "feature_weights" else {}
    parent, own = fitted_pair(library, options, **given)
    assert_alike(library, own, parent)
    if "eval_set" in given or "eval_X" in given:
        assert_same_results(own, parent)
    if name == "verbose":
        printed = capfd.readouterr().out.splitlines()
        half = len(printed) // 2
        assert half > 1
        assert printed[:half] == printed[half:], "the rounds and metrics that the parent prints"
    if library == "lightgbm":
        assert own.booster_.feature_name() == parent.booster_.feature_name()


@pytest.mark.skipif("eval_X" not in arguments_of(lgb.LGBMClassifier.fit), reason="new in 4.7")
@pytest.mark.parametrize("first", [True, False])
def test_training_rows_among_the_tables_of_eval_x(first):
    """LightGBM reads them once more, where it knows those of ``eval_set``."""
    sets = [(X, Y), (HELD, LABELS)] if first else [(HELD, LABELS), (X, Y)]
    eval_X, eval_y = zip(*sets, strict=True)
    parent, own = fitted_pair("lightgbm", {}, eval_X=eval_X, eval_y=eval_y)
    assert_alike("lightgbm", own, parent)
    assert_same_results(own, parent)
    decided = np.mean(own.predict(HELD) != LABELS)
    assert own.constraint_report_.held_out[0] == pytest.approx(decided)


# --- methods and attributes ---------------------------------------------------------------------

METHODS = {
    "xgboost": {
        "apply": lambda m: m.apply(X),
        "evals_result": lambda m: results_of(m)["validation_0"]["logloss"],
        "get_booster": lambda m: m.get_booster().num_boosted_rounds(),
        "get_num_boosting_rounds": lambda m: m.get_num_boosting_rounds(),
        "get_xgb_params": lambda m: sorted(m.get_xgb_params()),
        "predict": lambda m: m.predict(X, output_margin=True, iteration_range=(0, 2)),
        "predict_proba": lambda m: m.predict_proba(X, base_margin=START),
        "score": lambda m: m.score(X, Y, sample_weight=WEIGHT),
    },
    "lightgbm": {
        "decision_function": lambda m: m.decision_function(X),
        "predict": lambda m: m.predict(X, pred_leaf=True, start_iteration=1, num_iteration=2),
        "predict_proba": lambda m: m.predict_proba(X, pred_contrib=True),
        "score": lambda m: m.score(X, Y, sample_weight=WEIGHT),
    },
}
# Files XGBoost has, and LightGBM has not.
OUR_METHODS = {"save_model", "load_model", "decision_probabilities", "decision_scores"}
# Shown elsewhere: files in test_native.py and test_saving.py, parameters in test_estimators.py,
# and routing in test_drop_in.py.
ELSEWHERE = {"fit", "get_params", "set_params", "save_model", "load_model", "get_metadata_routing"}
ATTRIBUTES = {
    "xgboost": {
        "best_iteration", "best_score", "classes_", "coef_", "feature_importances_",
        "feature_names_in_", "intercept_", "n_classes_", "n_features_in_",
    },
    "lightgbm": {
        "best_iteration_", "best_score_", "booster_", "classes_", "evals_result_",
        "feature_importances_", "feature_name_", "feature_names_in_", "fitted_", "n_classes_",
        "n_estimators_", "n_features_", "n_features_in_", "n_iter_", "objective_",
    },
}  # fmt: skip
OUR_ATTRIBUTES = {
    "constraint_report_", "cost_report_", "feasibility_", "group_report_", "history_",
    "multipliers_", "shift_", "small_groups_", "stopping_message_", "unseen_accuracy_",
}  # fmt: skip


def public_methods(cls):
    return {
        name for name, value in inspect.getmembers(cls, callable)
        if not name.startswith("_") and not name.endswith("_request")
    }  # fmt: skip


@pytest.fixture(scope="module")
def stopped():
    """Both libraries, stopped early on frames: every attribute then has something to say."""
    pairs = {}
    frame, held = (pd.DataFrame(rows, columns=list("abcde")) for rows in (X, HELD))
    for library in PARENTS:
        stopping = {"early_stopping_rounds" if library == "xgboost" else "early_stopping_round": 2}
        options = {**stopping, "n_estimators": 40, "learning_rate": 0.5}
        given = {**evaluated(library), "eval_set": [(held, LABELS)]}
        pairs[library] = fitted_pair(library, options, X=frame, **given)
    return pairs


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_method_is_known(library):
    parents = public_methods(PARENTS[library])
    assert parents <= set(METHODS[library]) | ELSEWHERE, "classify what the new version adds"
    assert public_methods(OWN[library]) == parents | OUR_METHODS


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, table in METHODS.items() for name in table]
)
def test_methods_answer_as_in_the_parent(library, name):
    if not hasattr(PARENTS[library], name):
        pytest.skip(f"this version of {library} has no {name}")
    parent, own = fitted_pair(library, {}, **evaluated(library))
    found, expected = METHODS[library][name](own), METHODS[library][name](parent)
    if name == "get_xgb_params":
        assert found == expected
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("library", list(PARENTS))
def test_every_attribute_is_known(library, stopped):
    parent, own = stopped[library]
    properties = {
        name for name, value in inspect.getmembers(PARENTS[library])
        if isinstance(value, property) and not name.startswith("_")
    }  # fmt: skip
    fitted = {n for n in vars(parent) if n.endswith("_") and not n.startswith("_")}
    fitted -= {"evals_result_"}  # of XGBoost: what evals_result() returns
    assert properties | fitted <= ATTRIBUTES[library], "classify what the new version adds"
    ours = {n for n in vars(own) if n.endswith("_") and not n.startswith("_")} - set(vars(parent))
    assert ours == OUR_ATTRIBUTES


@pytest.mark.parametrize(
    ("library", "name"), [(k, name) for k, names in ATTRIBUTES.items() for name in sorted(names)]
)
def test_attributes_are_the_parents(library, name, stopped):
    parent, own = stopped[library]
    if (library, name) == ("xgboost", "feature_importances_"):  # the parent's are of all rounds
        parent = copy.copy(parent)
        parent._Booster = parent.get_booster()[: parent.best_iteration + 1]
    try:
        expected = getattr(parent, name)
    except AttributeError as refused:  # the parent's own word on it
        with pytest.raises(AttributeError, match=str(refused).replace("`", ".")[:40]):
            getattr(own, name)
        return
    found = getattr(own, name)
    if name == "booster_":
        found, expected = found.num_trees(), expected.num_trees()
    elif name in ("best_score_", "evals_result_"):
        found, expected = found["valid_0"], expected["valid_0"]
        assert list(found) == list(expected)
        found, expected = next(iter(found.values())), next(iter(expected.values()))
    if np.asarray(expected).dtype.kind in "OUS":
        np.testing.assert_array_equal(found, expected)
    else:
        np.testing.assert_allclose(found, expected, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("constraints", [[], NEVER_BINDS])
def test_arguments_by_position_are_taken_as_in_the_parent(constraints):
    """XGBoost warns of them, LightGBM does not."""
    parent = xgb.XGBClassifier(**ALWAYS["xgboost"])
    own = gc.ConstrainedXGBClassifier(
        constraints=constraints, measure_on=gc.CrossFit(2), **ALWAYS["xgboost"]
    )
    for model in (parent, own):
        with pytest.warns(FutureWarning, match="Pass `sample_weight, base_margin` as keyword"):
            assert model.fit(X, Y, WEIGHT, START) is model
    assert_alike("xgboost", own, parent)
    found = []
    for model in (parent, own):
        with pytest.warns(FutureWarning, match="Pass `output_margin` as keyword"):
            found.append(model.predict(X, True))
    np.testing.assert_allclose(*found, atol=1e-6)
    parent = lgb.LGBMClassifier(**ALWAYS["lightgbm"]).fit(X, Y, WEIGHT, START)
    own = gc.ConstrainedLGBMClassifier(
        constraints=constraints, measure_on=gc.CrossFit(2), **ALWAYS["lightgbm"]
    )
    assert_alike("lightgbm", own.fit(X, Y, WEIGHT, START), parent)
    np.testing.assert_allclose(own.predict(X, True), parent.predict(X, True), atol=1e-12)


def test_scores_to_start_from_are_refused_where_they_have_no_meaning():
    """Rows of further data sets have none."""
    more = {"other": HELD}
    for cls, name in ((gc.ConstrainedXGBClassifier, "base_margin"),
                      (gc.ConstrainedLGBMClassifier, "init_score")):  # fmt: skip
        with pytest.raises(ValueError, match=f"{name} cannot be given together with datasets"):
            cls(constraints=[gc.fpr() <= 0.1]).fit(X, Y, datasets=more, **{name: START})
