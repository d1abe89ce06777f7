"""scikit-learn's own checks of estimators: under constraints all pass that the parent passes.

What the parent fails is found by running it, on the data that the checks make for as many
classes as the constraints allow; each failure has its reason here, so that a new one is noticed.
"""

import functools
import traceback
import warnings

import numpy as np
import pytest
from conforming import (
    BINARY_PARENTS,
    OPTIONS,
    OWN,
    PARENTS,
    PARENTS_OF_REGRESSORS,
    REGRESSORS,
    depends_on_setting,
    estimators,
    library_of,
)
from sklearn.base import is_regressor
from sklearn.utils import shuffle
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from gbm_constrained.constraints.rates import class_error, fpr, mean_prediction

LABELS = "XGBoost takes the labels 0, 1, ... and no others"
OBJECTIVE = "XGBoost writes the objective of several classes into its parameter"
SINGLE_PRECISION = "XGBoost adds in single precision: weights are repetitions to six digits"
WEIGHTS = (
    "check_sample_weight_equivalence_on_dense_data",
    "check_sample_weight_equivalence_on_sparse_data",
)
REASONS = {
    "xgboost": {
        **dict.fromkeys(WEIGHTS, SINGLE_PRECISION),
        "check_estimators_overwrite_params": OBJECTIVE,
        "check_dont_overwrite_parameters": OBJECTIVE,
        "check_all_zero_sample_weights_error": "XGBoost says that it finds no intercept",
        "check_classifiers_multilabel_output_format_predict": "XGBoost answers in floats",
    },
    "lightgbm": {
        "check_no_attributes_set_in_init": "LightGBM keeps **kwargs as attributes",
        "check_all_zero_sample_weights_error": "LightGBM trains on no weight at all",
        **dict.fromkeys(WEIGHTS, "LightGBM counts rows, not weights, in its leaves"),
    },
    "logistic": dict.fromkeys(WEIGHTS, "liblinear and lbfgs stop within a tolerance"),
    "svm": dict.fromkeys(WEIGHTS, "liblinear stops within a tolerance"),
}
REASONS_OF_REGRESSORS = {
    "xgboost": {
        "check_all_zero_sample_weights_error": "XGBoost says that it finds no intercept",
        "check_regressor_multioutput": "XGBoost predicts in single precision",
    },
    "lightgbm": {
        "check_no_attributes_set_in_init": "LightGBM keeps **kwargs as attributes",
        "check_all_zero_sample_weights_error": "LightGBM trains on no weight at all",
        "check_regressors_train": "five trees of LightGBM do not reach the score",
    },
}
COUNTS = (
    "LightGBM counts rows, not weights, in its leaves: its own models differ as well. Sampling "
    "errors, and how far a group acts, follow the number of rows"
)
# Checks whose data are others where a regressor has a parameter `cv`, or makes groups.
ON_OTHER_DATA = {
    **dict.fromkeys(WEIGHTS, (("lightgbm", "gap"), COUNTS)),
    "check_fit2d_1sample": (("gap",), "one row makes no two groups, and the error says so"),
}


@functools.cache
def failures_of_parent(library, binary):
    """Checks that the parent fails, and what they say."""
    parent = (BINARY_PARENTS if binary else PARENTS)[library](**OPTIONS[library])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(parent, on_fail=None, on_skip=None)
    failures = {
        r["check_name"]: "".join(traceback.format_exception(r["exception"]))
        for r in results
        if r["status"] == "failed"
    }
    # The parent turns several classes down in no words at all: it takes them.
    failures.pop("check_classifier_not_supporting_multiclass", None)
    if library != "svm" and draws_of_unequal_weights(parent):
        failures = dict.fromkeys(WEIGHTS, SINGLE_PRECISION) | failures
    return failures


def draws_of_unequal_weights(estimator, tolerance=1e-7, draws=10):
    """Draws of the data of the checks of weights for which repeated rows give another model.

    The check itself looks at one draw.
    """
    unequal = []
    for seed in range(draws):
        rng = np.random.RandomState(seed)
        X, y = rng.rand(15, 30), rng.randint(0, 2, size=15)
        repeats = rng.randint(0, 5, size=15)
        weighted, labels, weight = shuffle(X, y, repeats, random_state=0)
        estimator.fit(X.repeat(repeats, axis=0), y.repeat(repeats))
        expected = estimator.predict_proba(X)
        found = estimator.fit(weighted, labels, sample_weight=weight).predict_proba(X)
        if np.abs(found / expected - 1).max() > tolerance:
            unequal.append(seed)
    return unequal


def all_checks():
    """Pairs of estimator and check, as a list: scikit-learn 1.6 hands pytest a generator."""
    mark = parametrize_with_checks(estimators())
    names, pairs = mark.args
    kept = [pair for pair in pairs if depends_on_setting(*pair)]
    return pytest.mark.parametrize(names, kept, **mark.kwargs)


@functools.cache
def failures_of_regressor(library):
    """Checks that the parent of a regressor fails."""
    parent = PARENTS_OF_REGRESSORS[library](**OPTIONS[library])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(parent, on_fail=None, on_skip=None)
    return {r["check_name"] for r in results if r["status"] == "failed"}


def check_regressor(estimator, check, library, name):
    """Check a regressor, which may fail what its parent fails, or for another known reason."""
    where, reason = ON_OTHER_DATA.get(name, ((), ""))
    if name in failures_of_regressor(library):
        reason = REASONS_OF_REGRESSORS[library][name]
    elif library not in where and not ("gap" in where and "gap" in str(estimator.constraints)):
        reason = ""
    try:
        check(estimator)
    except AssertionError:
        if not reason:
            raise
        pytest.xfail(reason)


@pytest.mark.filterwarnings("ignore")  # the checks' data are odd on purpose, and parents say so
@all_checks()
def test_checks_that_the_parent_passes(estimator, check):
    library, name = library_of(estimator), check.func.__name__
    if is_regressor(estimator):
        check_regressor(estimator, check, library, name)
        return
    binary = not estimator.__sklearn_tags__().classifier_tags.multi_class
    failure = failures_of_parent(library, binary).get(name)
    if failure is None:
        check(estimator)
        return
    reason = LABELS if "Invalid classes" in failure else REASONS[library].get(name)
    assert reason is not None, f"the parent fails {name} for a reason not known: {failure}"
    try:
        check(estimator)
    except Exception as error:
        # Other numbers, of weights; or the error that the parent has, and no other.
        known = failure + "AssertionError" * (name in WEIGHTS)
        if type(error).__name__ not in known:
            raise
        pytest.xfail(reason)


def test_weights_are_repetitions_as_well_as_the_parent_has_it():
    """The two failures of XGBoost that its own check of weights, of a single draw, does not show.

    Folds are a second reason for them: a row of weight two is in one fold, where two rows may be
    in two. On training rows the check is passed as exactly as single precision allows.
    """
    options = OPTIONS["xgboost"]
    assert draws_of_unequal_weights(PARENTS["xgboost"](**options))
    own = OWN["xgboost"](constraints=[fpr() <= 0.1], measure_on="train", **options)
    parents = draws_of_unequal_weights(PARENTS["xgboost"](**options), tolerance=1e-5)
    assert set(draws_of_unequal_weights(own, tolerance=1e-5)) <= set(parents)


@pytest.mark.parametrize("library", list(OWN))
def test_tags_say_what_the_constraints_allow(library):
    """Several classes where no constraint is of the positive class, and never several outputs."""
    parent = PARENTS[library]().__sklearn_tags__()
    none = OWN[library](constraints=[]).__sklearn_tags__()
    assert none.classifier_tags == parent.classifier_tags
    binary = OWN[library](constraints=[fpr() <= 0.1]).__sklearn_tags__()
    several = OWN[library](constraints=[class_error(0) <= 0.1]).__sklearn_tags__()
    assert not binary.classifier_tags.multi_class
    assert several.classifier_tags.multi_class
    for tags in (binary, several):
        assert not tags.classifier_tags.multi_label
        assert not tags.target_tags.multi_output
    wrong = OWN[library](constraints=["fpr < 0.1"]).__sklearn_tags__()
    assert wrong.classifier_tags == parent.classifier_tags, "fit will say what is wrong"


@pytest.mark.parametrize("library", list(REGRESSORS))
def test_tags_say_that_constraints_of_regressors_are_on_one_target(library):
    own, parent = REGRESSORS[library], PARENTS_OF_REGRESSORS[library]().__sklearn_tags__()
    assert own(constraints=[]).__sklearn_tags__().target_tags == parent.target_tags
    tags = own(constraints=[mean_prediction() <= 1.0]).__sklearn_tags__()
    assert not tags.target_tags.multi_output
    assert tags.estimator_type == "regressor"
    assert own(constraints=["wrong"]).__sklearn_tags__().target_tags == parent.target_tags
