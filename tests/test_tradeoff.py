"""The curve over bounds shows what fits do."""

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.datasets import make_classification
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import accuracy_score, roc_auc_score

import gbm_constrained as gc
from gbm_constrained.metrics import BlackBox
from gbm_constrained.solvers import AutoSolver, Reduction
from gbm_constrained.statistics.binomial import clopper_pearson

BOUNDS = [0.02, 0.3, 0.1]
COLUMNS = (
    "constraint", "bound", "value", "value_low", "value_high", "accuracy", "accuracy_low",
    "accuracy_high", "rows", "satisfied", "verdict", "train", "multiplier", "rounds", "shift",
    "all_met", "seconds",
)  # fmt: skip


class NeverTrained(gc.ConstrainedXGBClassifier):
    """A classifier that must not be trained."""

    def fit(self, *args, **kwargs):
        pytest.fail("training started")


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(600, 6, n_informative=4, flip_y=0.1, weights=[0.7], random_state=0)
    return X[:400], y[:400], X[400:], y[400:]


def booster(of=gc.ConstrainedXGBClassifier, **options):
    options = {"measure_on": gc.CrossFit(2), **options}
    return of(n_estimators=12, max_depth=2, n_jobs=1, verbosity=0, **options)


@pytest.fixture(scope="module")
def curve(data):
    return gc.tradeoff_curve(booster(constraints=gc.fnr() <= 0.5), *data[:2], BOUNDS)


def test_a_curve_has_a_row_for_each_bound_from_the_loosest(curve):
    assert tuple(curve.columns) == COLUMNS
    assert curve["bound"].tolist() == [0.3, 0.1, 0.02]
    assert curve["constraint"].tolist() == [f"fnr <= {b}" for b in (0.3, 0.1, 0.02)]
    assert (curve["rows"] == "out of fold").all()
    assert curve["value"].is_monotonic_decreasing
    for name in ("value", "accuracy"):
        assert ((curve[f"{name}_low"] < curve[name]) & (curve[name] < curve[f"{name}_high"])).all()
    held = curve["value"] <= curve["bound"]
    pd.testing.assert_series_equal(curve["satisfied"], held.astype("boolean"), check_names=False)


def test_all_met_is_about_the_rows_of_the_verdicts(data):
    """A fit misses its bound out of fold, and test rows with its own decisions do not."""
    X, y = data[:2]
    alone = booster(constraints=gc.error_rate() <= 0.0).fit(X, y)
    curve = gc.tradeoff_curve(
        booster(), X, y, [0.0], constraint=lambda b: gc.error_rate() <= b,
        X_test=X, y_test=alone.predict(X),
    )  # fmt: skip
    assert alone.feasibility_.status != "met"
    assert curve["verdict"].tolist() == ["met"]
    assert curve["all_met"].tolist() == [True]


def test_numbers_of_a_curve_without_unseen_rows_are_numbers(data):
    model = gc.ConstrainedLogisticRegression(constraints=gc.fnr() <= 0.5, n_iterations=5)
    curve = gc.tradeoff_curve(model, *data[:2], BOUNDS[:1])
    unknown = curve[[name for name in COLUMNS if name.startswith(("value", "accuracy"))]]
    assert (unknown.dtypes == np.float64).all()
    assert unknown.isna().all(axis=None)


def test_the_first_fit_is_that_of_the_estimator_and_the_next_starts_from_it(data, curve):
    X, y = data[:2]
    first = booster(constraints=[gc.fnr() <= 0.3]).fit(X, y, verbose=False)
    second = booster(
        constraints=[gc.fnr() <= 0.1], solver=AutoSolver(initial_multipliers=first.multipliers_)
    ).fit(X, y, verbose=False)
    for model, row in zip((first, second), curve.itertuples(), strict=False):
        report = model.constraint_report_.iloc[0]
        assert (row.value, row.value_low, row.value_high) == tuple(
            report[["held_out", "low", "high"]]
        )
        assert (row.train, row.multiplier) == (report["train"], report["multiplier"])
        assert row.accuracy == model.unseen_accuracy_.value
        assert row.shift == model.shift_[0]
        assert row.rounds == 12


@pytest.mark.parametrize(
    ("constraint", "values"),
    [
        (lambda b: [gc.fpr() <= 0.9, gc.recall() >= b], [0.5, 0.7, 0.9]),
        (lambda b: [gc.recall() >= 0.1, gc.fpr() <= b], [0.9, 0.7, 0.5]),
        (lambda b: gc.fpr() <= 1 - b, [0.5, 0.7, 0.9]),
        (lambda b: gc.recall() >= 1 - b, [0.9, 0.7, 0.5]),
        (lambda b: [gc.recall() >= b, gc.fpr() <= b], [0.5, 0.7, 0.9]),  # the first one tells
        (lambda b: b * gc.fpr() <= 0.1, [0.9, 0.7, 0.5]),  # no bound changes: the sense tells
        (lambda b: b * gc.recall() >= 0.1, [0.5, 0.7, 0.9]),
    ],
)
def test_the_constraint_that_changes_tells_which_bounds_are_loose(data, constraint, values):
    """Whichever of several it is, and whether its bound grows or falls with the value."""
    model = booster(measure_on="train").set_params(n_estimators=2)
    curve = gc.tradeoff_curve(model, *data[:2], [0.9, 0.5, 0.7], constraint=constraint)
    made = [constraint(value) for value in values]
    constraints = [
        constraint for each in made for constraint in (each if isinstance(each, list) else [each])
    ]
    assert curve["constraint"].tolist() == [str(constraint) for constraint in constraints]


def test_the_accuracy_of_a_fit_is_that_on_its_unseen_rows(data):
    X, y, X_held, y_held = data
    model = booster(constraints=[gc.fnr() <= 0.1, gc.fpr() <= 0.5])
    model.fit(X, y, eval_set=[(X_held, y_held)], verbose=False)
    right = (model.predict(X_held) == y_held).sum()
    expected = right / 200, *(float(end) for end in clopper_pearson(right, 200))
    assert model.unseen_accuracy_ == pytest.approx(expected)
    model.set_params(constraints=[]).fit(X, y, verbose=False)
    assert not hasattr(model, "unseen_accuracy_")


@pytest.mark.parametrize("library", [gc.ConstrainedXGBClassifier, gc.ConstrainedLGBMClassifier])
def test_rows_held_out_are_audited(data, library):
    X, y, X_test, y_test = data
    quiet = {"verbosity": 0} if library is gc.ConstrainedXGBClassifier else {"verbose": -1}
    model = library(n_estimators=6, max_depth=2, n_jobs=1, measure_on="train", **quiet)
    curve = gc.tradeoff_curve(
        model, X, y, [0.2], constraint=lambda b: [gc.fnr() <= b, gc.fpr() <= 0.4],
        X_test=X_test, y_test=y_test, level=0.9,
    )  # fmt: skip
    constraints = [gc.fnr() <= 0.2, gc.fpr() <= 0.4]
    model.set_params(constraints=constraints).fit(X, y)
    found = gc.audit(model, X_test, y_test, constraints, level=0.9)
    assert curve["bound"].tolist() == [0.2, 0.4]
    assert (curve["rows"] == "test").all()
    np.testing.assert_array_equal(
        curve[["value", "value_low", "value_high"]], found.frame[["value", "low", "high"]]
    )
    np.testing.assert_array_equal(
        curve[["accuracy", "accuracy_low", "accuracy_high"]], [found.accuracy] * 2
    )


def test_a_curve_of_pair_rates_has_the_auc(data):
    X, y, X_test, y_test = data
    groups, of_test = ({"g": np.arange(len(rows)) % 2} for rows in (X, X_test))
    rule = gc.gap(gc.auc(), by="g", min_group_size=20) <= 0.2
    given = {"sensitive_features": groups}
    found = gc.tradeoff_curve(booster(constraints=rule), X, y, [0.2, 0.05], **given)
    place = COLUMNS.index("rows")
    expected = (*COLUMNS[:place], "auc", "auc_low", "auc_high", *COLUMNS[place:])
    assert tuple(found.columns) == expected
    assert found["constraint"].str.startswith("gap(auc").tolist() == [True, True]
    own = booster(constraints=[rule, gc.auc() >= 0.0])
    report = own.fit(X, y, **given).constraint_report_.iloc[1]
    assert found["auc"][0] == report["held_out"]
    assert (found["auc_low"][0], found["auc_high"][0]) == (report["low"], report["high"])
    on_test = {"X_test": X_test, "y_test": y_test, "sensitive_features_test": of_test}
    found = gc.tradeoff_curve(booster(constraints=rule), X, y, [0.2], **given, **on_test)
    of_model = roc_auc_score(y_test, own.predict_proba(X_test)[:, 1])
    assert found["auc"][0] == pytest.approx(of_model, abs=1e-12)
    assert found["auc_low"][0] < of_model < found["auc_high"][0]


def test_the_auc_of_a_curve_changes_no_fit(data):
    """It is measured as a constraint that always holds."""
    X, y, *_ = data
    rule = gc.gap(gc.auc(), by="g") <= 0.005
    given = {"sensitive_features": {"g": (X[:, 0] > 0).astype(int)}}
    found = gc.tradeoff_curve(booster(constraints=rule), X, y, [0.005], **given)
    alone = booster(constraints=rule).fit(X, y, **given)
    assert alone.multipliers_.any()
    assert found["multiplier"][0] == alone.multipliers_.sum()
    assert found["value"][0] == alone.constraint_report_["held_out"][0]


def test_rows_held_out_count_by_their_weights(data):
    X, y, X_test, y_test = data
    model = booster(constraints=gc.fnr() <= 0.2, measure_on="train")
    weight = np.random.default_rng(0).integers(0, 4, y_test.size)
    test = {"X_test": X_test, "y_test": y_test}
    curve = gc.tradeoff_curve(model, X, y, [0.2], **test, sample_weight_test=weight)
    missed = model.fit(X, y, verbose=False).predict(X_test) == 0
    positive = y_test == 1
    by_hand = weight[missed & positive].sum() / weight[positive].sum()
    assert curve["value"][0] == pytest.approx(by_hand)
    right = np.average(missed != positive, weights=weight)
    assert curve["accuracy"][0] == pytest.approx(right)
    assert gc.tradeoff_curve(model, X, y, [0.2], **test)["value"][0] != pytest.approx(by_hand)


def test_weights_of_rows_held_out_are_checked_before_training(data):
    X, y, X_test, y_test = data
    model = booster(NeverTrained, constraints=gc.fnr() <= 0.2)
    for weight, match in ((np.ones(3), "each of the 200 rows"), (-np.ones(200), "non-negative")):
        with pytest.raises(ValueError, match=rf"sample_weight_test must.*{match}"):
            gc.tradeoff_curve(
                model, X, y, [0.2], X_test=X_test, y_test=y_test, sample_weight_test=weight
            )
    for name in ("sample_weight_test", "sensitive_features_test"):
        with pytest.raises(ValueError, match=f"{name} is of test rows.*give X_test and y_test"):
            gc.tradeoff_curve(model, X, y, [0.2], **{name: np.ones(200)})


def test_levels_and_features_of_test_rows_are_checked_before_training(data):
    X, y, X_test, y_test = data
    model = booster(NeverTrained, constraints=gc.fnr() <= 0.2)
    for of_test in ({"X_test": X_test, "y_test": y_test}, {}):
        with pytest.raises(ValueError, match="level must lie strictly between 0 and 1"):
            gc.tradeoff_curve(model, X, y, [0.2], level=95, **of_test)
    with pytest.raises(ValueError, match="X_test has 5 features and X has 6"):
        gc.tradeoff_curve(model, X, y, [0.2], X_test=X_test[:, 1:], y_test=y_test)


@pytest.mark.parametrize("length", [200, 400])
def test_constraints_that_hold_training_rows_have_no_value_on_test_rows(length):
    """As many test rows would be taken for the training rows that a mask selects."""
    X, y = np.zeros((400, 1)), np.arange(400) % 2
    X_test, y_test = X[:length], y[:length]
    model = booster(NeverTrained)
    for rate in (gc.fnr(on=y == 1), gc.churn(to=y)):
        with pytest.raises(ValueError, match=r"holds a mask or decisions.*leave X_test out"):
            gc.tradeoff_curve(
                model.set_params(constraints=rate <= 0.2),
                X,
                y,
                [0.1],
                X_test=X_test,
                y_test=y_test,
            )


@pytest.mark.parametrize(
    ("constraint", "more", "message"),
    [
        (
            lambda b: gc.gap(gc.fpr(), by="g") <= b,
            {"sensitive_features": "g"},
            "column 'g' is neither",
        ),
        (lambda b: gc.fpr(on=gc.dataset("m")) <= b, {}, "named data set"),
        (lambda b: gc.fpr() <= b, {"y_test": 2}, r"y holds.*2"),
        (lambda b: gc.log_loss() <= b, {"X_test": slice(1, None)}, "399 rows and y 400 values"),
    ],
)
def test_what_test_rows_lack_is_said_before_training(constraint, more, message, data):
    X, y = data[:2]
    X, y = X[:400], y[:400]
    given = {"X_test": X[more.get("X_test", slice(None))], "y_test": y + more.get("y_test", 0)}
    if "sensitive_features" in more:
        given["sensitive_features"] = {"g": np.arange(400) % 2}  # of the training rows alone
    with pytest.raises(ValueError, match=rf"measured on X_test.*{message}"):
        gc.tradeoff_curve(booster(NeverTrained), X, y, [0.5], constraint=constraint, **given)


@pytest.mark.parametrize(
    ("of", "measure_on", "guarantee"),
    [
        (gc.ConstrainedXGBClassifier, "crossfit", "expected"),
        (gc.ConstrainedXGBClassifier, "holdout", "high_probability"),
        (gc.ConstrainedLGBMClassifier, "crossfit", "high_probability"),
    ],
)
def test_a_guarantee_beyond_the_rows_is_refused_before_training(of, measure_on, guarantee, data):
    """The tightest bound is trained last, and refused first: no model is trained in vain."""
    X, y = data[:2]
    rounds = []
    others = {
        "sample_weight": np.ones(len(y)),
        "constraint_callbacks": [lambda state: rounds.append(state.rounds)],
    }
    quiet = {"verbose": -1} if of is gc.ConstrainedLGBMClassifier else {}
    model = of(
        n_estimators=4, guarantee=guarantee, measure_on=measure_on, solver="threshold", **quiet
    )
    at_most, at_least = (lambda b: gc.fnr() <= b), (lambda b: gc.recall() >= b)
    for constraint, bounds in ((at_most, [0.4, 0.001]), (at_least, [0.6, 0.999])):
        with pytest.raises(ValueError, match=f"guarantee='{guarantee}'.*{bounds[1]}"):
            gc.tradeoff_curve(model, X, y, bounds, constraint=constraint, **others)
        assert not rounds
    found = gc.tradeoff_curve(
        model, X, y, [0.4, 0.3], constraint=lambda b: gc.fnr() <= b, **others
    )
    assert found["rounds"].tolist() == [4, 4]
    assert rounds.count(0) == 4  # measuring and training, of two fits


def test_a_curve_under_a_guarantee_is_tried_with_what_its_fits_are_given(data, tmp_path):
    """All but the checkpoint, which is of the fits that end."""
    X, y = data[:2]
    model = booster(guarantee="expected", measure_on="holdout")
    given = {
        "constraint": lambda b: gc.gap(gc.selection_rate(), by="g") <= b,
        "sensitive_features": {"g": np.arange(len(y)) % 2},
        "checkpoint": tmp_path / "fit.checkpoint",
    }
    found = gc.tradeoff_curve(model, X, y, [0.4, 0.3], **given)
    assert found["rounds"].tolist() == [12, 12]


def test_what_a_curve_refuses(data):
    X, y = data[:2]
    with pytest.raises(ValueError, match="has 2 constraints"):
        gc.tradeoff_curve(booster(constraints=[gc.fnr() <= 0.1, gc.fpr() <= 0.1]), X, y, BOUNDS)
    model = booster(constraints=gc.fnr() <= 0.1)
    with pytest.raises(ValueError, match="bounds is empty"):
        gc.tradeoff_curve(model, X, y, [])
    for bounds, shown in ((0.1, "0.1"), (None, "None"), (["low"], r"\['low'\]")):
        with pytest.raises(ValueError, match=f"bounds must be a sequence.*got {shown}: give a"):
            gc.tradeoff_curve(model, X, y, bounds)
    with pytest.raises(ValueError, match="belong together"):
        gc.tradeoff_curve(model, X, y, BOUNDS, X_test=X)
    with pytest.raises(TypeError, match="lambda b"):
        gc.tradeoff_curve(model, X, y, BOUNDS, constraint=gc.fnr())
    with pytest.raises(ValueError, match="different numbers of constraints"):
        gc.tradeoff_curve(
            model, X, y, BOUNDS, constraint=lambda b: [gc.fnr() <= b] * (1 + (b > 0.1))
        )
    with pytest.raises(TypeError, match=r"classifier of this package.*LogisticRegression"):
        gc.tradeoff_curve(LogisticRegression(), X, y, BOUNDS)
    with pytest.raises(ValueError, match="no constraint of a bound"):
        gc.tradeoff_curve(model, X, y, BOUNDS, constraint=lambda b: [])


@pytest.mark.parametrize(
    "model",
    [
        booster(booster="dart", rate_drop=0.2),
        booster(maximize="g_mean", solver=Reduction(deterministic=True)),
        gc.ConstrainedLogisticRegression(
            maximize="g_mean", constraint_solver=Reduction(deterministic=True)
        ),
    ],
    ids=["dart", "metric", "linear metric"],
)
def test_decisions_after_training_have_no_multipliers(data, model):
    X, y, X_test, y_test = data
    bounds = {"bounds": [0.1, 0.4], "constraint": lambda b: gc.fpr() <= b}
    curve = gc.tradeoff_curve(model, X, y, **bounds, X_test=X_test, y_test=y_test)
    assert tuple(curve) == COLUMNS
    assert curve["rounds"].isna().all()
    assert (curve["multiplier"] == 0.0).all()
    for _, row in curve.iterrows():
        direct = clone(model).set_params(constraints=[gc.fpr() <= row.bound]).fit(X, y)
        assert row.value == direct.predict(X_test)[y_test == 0].mean()
        assert row.accuracy == pytest.approx(accuracy_score(y_test, direct.predict(X_test)))


def test_black_boxes_are_refused(data):
    model = NeverTrained(minimize=BlackBox(lambda y, scores: 0.5))
    with pytest.raises(ValueError, match=r"BlackBox\(<lambda>\) measures .* audits of them"):
        gc.tradeoff_curve(model, *data[:2], [0.1], constraint=lambda b: gc.fpr() <= b)
