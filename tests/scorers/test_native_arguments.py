"""Arguments of ``train`` of both libraries, read as the libraries read theirs."""

import warnings

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb

import gbm_constrained.lightgbm
import gbm_constrained.xgboost
from gbm_constrained import class_error, fnr, fpr, gap

RULES = [fpr() <= 0.1]
BY_GROUP = [gap(fpr(), by="g") <= 0.5]
OF_XGBOOST = {"max_depth": 2, "nthread": 1, "verbosity": 0}
OF_LIGHTGBM = {"num_leaves": 4, "num_threads": 1, "verbosity": -1}


@pytest.fixture(scope="module")
def rows():
    """Features, labels of three classes, and groups."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    return X, np.digitize(X[:, 0] + rng.normal(size=600), [-0.5, 0.8]), rng.integers(0, 2, 600)


def make_rows(library, X, y):
    if library == "xgboost":
        return xgb.DMatrix(X, label=y)
    return lgb.Dataset(X, label=y, free_raw_data=False)


def train(library, rows, params=None, n_classes=2, **given):
    X, y, _ = rows
    y = np.minimum(y, n_classes - 1)
    module = getattr(gbm_constrained, library)
    shared = OF_XGBOOST if library == "xgboost" else OF_LIGHTGBM
    if params is None or isinstance(params, dict):
        params = {**shared, **(params or {})}
    given = {"constraints": RULES, "num_boost_round": 3, **given}
    if library == "xgboost":
        given.setdefault("verbose_eval", False)
    return module.train(params, make_rows(library, X, y), **given)


BOTH = pytest.mark.parametrize("library", ["xgboost", "lightgbm"])


@BOTH
@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"params": [("seed", 1)]}, TypeError, "params must be a dict of parameters of .*a list"),
        ({"params": {"constraints": RULES}}, TypeError, "constraints= of train instead"),
        ({"params": {"measure_on": "train"}}, TypeError, "measure_on= of train instead"),
        ({"params": {"guarantee": "expected"}}, TypeError, "guarantee= of train instead"),
        ({"params": {"num_class": 4}, "n_classes": 3}, ValueError, "num_class=4.*of 3 classes"),
        ({"num_boost_round": 0}, ValueError, "num_boost_round must be an integer >= 1, got 0"),
        ({"bins": 3}, TypeError, r"no argument 'bins': parameters of \w+ go in params"),
        ({"mesure_on": "train"}, TypeError, r"Did you mean measure_on=\?"),
    ],
)
def test_both_name_the_argument(rows, library, given, error, message):
    with pytest.raises(error, match=message):
        train(library, rows, **given)


@BOTH
def test_one_constraint_needs_no_list(rows, library):
    reports = [
        train(library, rows, constraints=given).constraint_report_ for given in (RULES, *RULES)
    ]
    assert reports[0].equals(reports[1])


@BOTH
def test_classes_without_rows_are_named(rows, library):
    X, y, _ = rows
    module = getattr(gbm_constrained, library)
    with pytest.raises(ValueError, match=r"without a gap, got \[0 2\]"):
        module.train({}, make_rows(library, X, 2 * (y > 0)), 2, constraints=RULES)


@pytest.mark.parametrize(
    ("library", "name", "sets"),
    [
        ("xgboost", "sensitive_features_evals", "evals"),
        ("lightgbm", "sensitive_features_valid", "valid_sets"),
    ],
)
def test_columns_of_sets_are_counted(rows, library, name, sets):
    X, y, g = rows
    held = make_rows(library, X, np.minimum(y, 1))
    groups = {"sensitive_features": {"g": g}, "constraints": BY_GROUP, name: [{"g": g}, {"g": g}]}
    for given, count in (([], 0), ([(held, "v") if library == "xgboost" else held], 1)):
        with pytest.raises(ValueError, match=f"{name} must be a list .* {count} evaluation sets"):
            train(library, rows, **groups, **{sets: given})


@pytest.mark.parametrize(
    ("given", "error", "message"),
    [
        ({"params": {"n_estimators": 5}}, TypeError, "give num_boost_round= of train"),
        ({"params": {"early_stopping_rounds": 5}}, TypeError, "give early_stopping_rounds="),
        ({"params": {"missing": 0}}, TypeError, "missing=0.*give it to the matrix"),
        ({"maximize": True}, TypeError, r"maximize= has no meaning.*EarlyStopping\(maximize="),
        ({"constraints": [], "maximize": "recall"}, ValueError, "maximize='recall' grows"),
    ],
)  # fmt: skip
def test_xgboost_names_the_argument(rows, given, error, message):
    with pytest.raises(error, match=message):
        train("xgboost", rows, **given)


@pytest.mark.parametrize("name", ["nwe", "validation_0"])
def test_xgboost_lists_the_evaluation_sets_by_their_names(rows, name):
    held = make_rows("xgboost", rows[0], np.minimum(rows[1], 1))
    stopping = xgb.callback.EarlyStopping(rounds=2, data_name=name)
    with pytest.raises(ValueError, match=rf"data_name='{name}'.*are called \['new'\]"):
        train("xgboost", rows, evals=[(held, "new")], callbacks=[stopping])


def test_xgboost_keeps_its_own_arguments_without_constraints(rows):
    def squared(scores, matrix):
        return scores - matrix.get_label(), np.ones_like(scores)

    X, y, _ = rows
    y = np.minimum(y, 1)
    found = train("xgboost", rows, constraints=[], obj=squared)
    expected = xgb.train(OF_XGBOOST, xgb.DMatrix(X, label=y), 3, obj=squared)
    assert found.save_raw() == expected.save_raw()


def test_xgboost_prefers_the_seed(rows):
    matrix = xgb.DMatrix(rows[0])
    scores = [
        train("xgboost", rows, {"subsample": 0.5, **seeds}).predict(matrix)
        for seeds in ({"seed": 3, "random_state": 1}, {"seed": 3}, {"seed": 1})
    ]
    np.testing.assert_array_equal(scores[0], scores[1])
    assert (scores[0] != scores[2]).any()


@pytest.mark.parametrize("bound", [0.2, 0.95])
def test_softmax_of_xgboost_answers_with_classes(rows, bound):
    X, y, _ = rows
    answers = [
        train(
            "xgboost", rows, {"objective": f"multi:{name}"}, n_classes=3, num_boost_round=10,
            constraints=[class_error(0) <= bound],
        ).predict(xgb.DMatrix(X))
        for name in ("softmax", "softprob")
    ]  # fmt: skip
    np.testing.assert_array_equal(answers[0], answers[1].argmax(axis=1))
    assert (np.mean(answers[0][y == 0] != 0)) <= bound


@pytest.mark.parametrize("name", ["num_iterations", "n_estimators", "num_boost_round"])
def test_lightgbm_takes_rounds_from_its_parameters(rows, name):
    given = {"objective": "binary", name: 7}
    with warnings.catch_warnings():  # Some versions of LightGBM say which one they take.
        warnings.simplefilter("ignore", UserWarning)
        boosters = [train("lightgbm", rows, given, constraints=r) for r in ([], [fpr() <= 0.99])]
    assert [booster.num_trees() for booster in boosters] == [7, 7]


@pytest.mark.parametrize("is_reversed", [False, True])
@pytest.mark.parametrize(
    "params",
    [
        {"learning_rate": 0.05, "eta": 0.3},
        {"shrinkage_rate": 0.05, "eta": 0.3},
        {"num_leaves": 4, "max_leaf": 9},
        {"reg_lambda": 0.0, "lambda_l2": 9.0},
        {"min_child_samples": 5, "min_data_in_leaf": 80},
    ],
)
def test_lightgbm_prefers_the_same_name_of_a_parameter(rows, params, is_reversed):
    X = rows[0]
    params = dict([("objective", "binary"), *[*params.items()][:: -1 if is_reversed else 1]])
    scores = [
        train("lightgbm", rows, params, constraints=rules, measure_on="train").predict(X)
        for rules in ([], [fnr() <= 0.99])
    ]
    np.testing.assert_array_equal(*scores)


@pytest.mark.parametrize("names", [None, "new", ["new"]])
def test_lightgbm_takes_one_set_without_a_list(rows, names):
    X, y, _ = rows
    held = make_rows("lightgbm", X[:200], np.minimum(y, 1)[:200])
    given = {"valid_sets": held, "valid_names": names}
    found = train("lightgbm", rows, **given)
    plain = train("lightgbm", rows, {"objective": "binary"}, constraints=[], **given)
    assert [*found.best_score] == [*plain.best_score] == ["new" if names else "valid_0"]


def test_lightgbm_optimises_a_metric_without_constraints(rows):
    found = train("lightgbm", rows, constraints=[], maximize="g_mean")
    assert found.metric_report_["is_returned"].sum() == 1


def test_lightgbm_names_a_dataset_without_labels(rows):
    bare = lgb.Dataset(rows[0], free_raw_data=False)
    with pytest.raises(ValueError, match="train_set has no labels: make it with label="):
        gbm_constrained.lightgbm.train(OF_LIGHTGBM, bare, 2, constraints=RULES)


@pytest.mark.parametrize("value", [True, False])
def test_lightgbm_keeps_no_training_booster(rows, value):
    def keep():
        return train("lightgbm", rows, keep_training_booster=value)

    if value:
        with pytest.raises(TypeError, match=r"keep_training_booster= has no meaning.*init_model"):
            keep()
    else:
        assert keep().num_trees()


@pytest.mark.filterwarnings("error:X does not have valid feature names")
@pytest.mark.parametrize("bound", [0.1, 0.99])
def test_lightgbm_trains_arrays_without_a_warning_of_names(rows, bound):
    found = train("lightgbm", rows, {"boosting": "dart"}, constraints=[fpr() <= bound])
    assert found.num_trees() == 3
