"""scikit-learn's own checks of regressors: under rules all pass that the parent passes."""

import functools
import warnings

import pytest
from conforming import OPTIONS
from conforming_regressors import OWN, PARENTS, estimators, library_of_regressor
from sklearn.utils.estimator_checks import check_estimator, parametrize_with_checks

from gbm_constrained.constraints.rates import mean_prediction

COUNTS = (
    "LightGBM counts rows, not weights, in its leaves: its own models differ as well. Sampling "
    "errors, and how far a group acts, follow the number of rows"
)
REASONS = {
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
# Checks whose data are others where an estimator has a parameter `cv`, or makes groups.
ON_OTHER_DATA = {
    "check_sample_weight_equivalence_on_dense_data": (("lightgbm", "gap"), COUNTS),
    "check_sample_weight_equivalence_on_sparse_data": (("lightgbm", "gap"), COUNTS),
    "check_fit2d_1sample": (("gap",), "one row makes no two groups, and the error says so"),
}


@functools.cache
def failures_of_parent(library):
    """Checks that the parent fails."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        results = check_estimator(PARENTS[library](**OPTIONS[library]), on_fail=None, on_skip=None)
    return {r["check_name"] for r in results if r["status"] == "failed"}


def reason_to_fail(estimator, name):
    """Find why an estimator may fail a check; None if it must pass."""
    library = library_of_regressor(estimator)
    if name in failures_of_parent(library):
        return REASONS[library][name]
    where, reason = ON_OTHER_DATA.get(name, ((), ""))
    kinds = [library, *("gap" for rule in estimator.constraints if "gap" in str(rule))]
    return reason if set(where) & set(kinds) else None


def all_checks():
    """Pairs of estimator and check, as a list: scikit-learn 1.6 hands pytest a generator."""
    mark = parametrize_with_checks(estimators())
    names, pairs = mark.args
    return pytest.mark.parametrize(names, list(pairs), **mark.kwargs)


@pytest.mark.filterwarnings("ignore")  # the checks' data are odd on purpose, and parents say so
@all_checks()
def test_checks_that_the_parent_passes(estimator, check):
    reason = reason_to_fail(estimator, check.func.__name__)
    if reason is None:
        check(estimator)
        return
    try:
        check(estimator)
    except AssertionError:
        pytest.xfail(reason)


def test_tags_say_that_rules_are_on_one_target():
    for library, own in OWN.items():
        parent = PARENTS[library]().__sklearn_tags__()
        assert own(constraints=[]).__sklearn_tags__().target_tags == parent.target_tags
        tags = own(constraints=[mean_prediction() <= 1.0]).__sklearn_tags__()
        assert not tags.target_tags.multi_output
        assert tags.estimator_type == "regressor"
        assert own(constraints=["wrong"]).__sklearn_tags__().target_tags == parent.target_tags
