"""Bounds on error rates become bounds on the mean cross-entropy of the same rows."""

import numpy as np
import pytest

import gbm_constrained as gc


@pytest.mark.parametrize(
    ("given", "n_classes", "expected"),
    [
        (gc.error_rate() <= 0.1, 2, gc.log_loss() <= 0.1 * np.log(2)),
        (gc.class_error(2) <= 0.1, 3, gc.log_loss(on=gc.label(2)) <= 0.1 * np.log(3)),
        (
            gc.fnr(1, on={"sex": "F"}) <= 0.2,
            2,
            gc.log_loss(on=(gc.label(1), {"sex": "F"})) <= 0.2 * np.log(2),
        ),
        (2.0 * gc.fnr(1) <= 0.4, 2, 2.0 * gc.log_loss(on=gc.label(1)) <= 0.4 * np.log(2)),
        (2.0 * gc.error_rate() + 0.25 <= 0.75, 2, 2.0 * gc.log_loss() <= 0.5 * np.log(2)),
        (gc.gap(gc.log_loss(), by="g") <= 0.05, 2, gc.gap(gc.log_loss(), by="g") <= 0.05),
        (gc.log_loss(on={"g": 0}) >= 0.1, 4, gc.log_loss(on={"g": 0}) >= 0.1),
        (
            gc.log_loss(on={"g": 0}) / gc.log_loss(on={"g": 1}) <= 1.1,
            2,
            gc.log_loss(on={"g": 0}) / gc.log_loss(on={"g": 1}) <= 1.1,
        ),
    ],
    ids=str,
)
def test_the_constraint_in_its_loss_form(given, n_classes, expected):
    assert gc.as_log_loss(given, n_classes) == [expected]
    assert gc.as_log_loss([given, given], n_classes) == [expected, expected]


def test_bounds_of_the_second_half_are_shares_of_the_losses_of_the_first():
    """As in section 6 of the paper, by two fits of which the second goes on."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(300, 2))
    y = np.digitize(X[:, 0] + 0.5 * rng.normal(size=300), [-0.5, 0.5])
    errors = [gc.class_error(0) <= 0.4, 2.0 * gc.class_error(2) + 0.1 <= 0.7]
    own = {"measure_on": "train", "n_estimators": 4, "max_depth": 2, "verbose": -1, "n_jobs": 1}
    half = gc.ConstrainedLGBMClassifier(constraints=gc.as_log_loss(errors, 3), **own).fit(X, y)
    P = half.predict_proba(X)
    loss = [-np.log(P[y == k, k]).mean() for k in (0, 2)]
    found = gc.as_log_loss(errors, 3, half.constraint_report_["train"])
    assert found[0].bound == pytest.approx(0.4 * loss[0], rel=1e-6)
    assert found[1].bound == pytest.approx(0.6 * loss[1], rel=1e-6)
    whole = gc.ConstrainedLGBMClassifier(constraints=found, **own).fit(X, y, init_model=half)
    assert whole.booster_.num_trees() == 2 * half.booster_.num_trees()
    with pytest.raises(ValueError, match="losses has 1 values for 2 constraints: give one for"):
        gc.as_log_loss(errors, 3, [0.1])


@pytest.mark.parametrize(
    "given",
    [
        gc.fnr() >= 0.1,
        -1.0 * gc.fnr() <= -0.1,
        gc.recall() >= 0.9,
        gc.fnr() + gc.fpr() <= 0.3,
        gc.gap(gc.fnr(), by="g") <= 0.1,
        gc.selection_rate() <= 0.1,
        gc.fnr() + gc.log_loss() <= 1.0,
    ],
    ids=str,
)
def test_what_bounds_no_error_rate_is_refused(given):
    with pytest.raises(ValueError, match=r"is for upper bounds of error rates, and .* is not one"):
        gc.as_log_loss(given, 2)


def test_a_false_positive_rate_is_an_error_rate_of_two_classes():
    (turned,) = gc.as_log_loss(gc.fpr(1) <= 0.1, 2)
    assert str(turned.expression) == "log_loss[y!=1]"
    with pytest.raises(ValueError, match="is for upper bounds"):
        gc.as_log_loss(gc.fpr(1) <= 0.1, 3)


@pytest.mark.parametrize("n_classes", [1, 0, True])
def test_the_number_of_classes_is_checked(n_classes):
    with pytest.raises(ValueError, match="n_classes must be an integer >= 2"):
        gc.as_log_loss(gc.fnr() <= 0.1, n_classes)
