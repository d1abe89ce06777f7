"""Labels, weights and starting scores of every kind and shape."""

import contextlib

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER
from input_data import LINEAR, RNG, RULE, SEVERAL, N, X, Y, make, polars, pyarrow

import gbm_constrained as gc
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression

# --- labels and weights -------------------------------------------------------------------------

LABELS = {
    "str": np.array(["no", "yes"])[Y],
    "object": np.array(["no", "yes"], dtype=object)[Y],
    "bool": Y.astype(bool),
    "float": Y * 2.0 - 1.0,
    "negative": Y * 3 - 5,
    "category": pd.Series(pd.Categorical(np.array(["no", "yes"])[Y])),
    "Int64": pd.Series(Y, dtype="Int64"),
    "column": pd.DataFrame({"y": Y}),
}


@pytest.mark.parametrize("kind", list(LABELS))
def test_labels_of_any_type(kind):
    """The classes are the parent's, and the model that of the codes."""
    labels = LABELS[kind]
    for make_one in (
        lambda: make("lightgbm"),
        lambda: ConstrainedLogisticRegression(constraints=RULE, n_iterations=5),
    ):
        expected = make_one().fit(X, Y)
        # The parents warn of a column.
        warns = pytest.warns(UserWarning, match="column-vector y was passed")
        with warns if kind == "column" else contextlib.nullcontext():
            found, parent = make_one().fit(X, labels), make_one().set_params(constraints=[])
            parent.fit(X, labels)
        np.testing.assert_array_equal(found.classes_, parent.classes_)
        assert found.classes_.dtype == parent.classes_.dtype
        assert found.predict(X).dtype == parent.predict(X).dtype
        np.testing.assert_array_equal(found.predict(X), found.classes_[expected.predict(X)])


@pytest.mark.parametrize("kind", ["bool", "float01", "Int64", "polars", "pyarrow"])
def test_labels_of_xgboost(kind):
    labels = {
        "bool": lambda: Y.astype(bool),
        "float01": lambda: Y.astype(float),
        "Int64": lambda: pd.Series(Y, dtype="Int64"),
        "polars": lambda: polars().Series(Y),
        "pyarrow": lambda: pyarrow().array(Y),
    }[kind]()
    expected = make("xgboost").fit(X, Y).predict_proba(X)
    np.testing.assert_array_equal(make("xgboost").fit(X, labels).predict_proba(X), expected)


@EITHER
def test_continuous_targets_are_refused(library):
    with pytest.raises(ValueError, match="Unknown label type: y is continuous"):
        make(library).fit(X, X[:, 0])


@EITHER
@pytest.mark.parametrize("exponent", [-30, 30])
def test_tiny_and_huge_weights(library, exponent):
    """A power of two changes no digit: the same decisions and rates, without regularisation."""
    weight = RNG.exponential(size=N).astype(np.float32).astype(float)
    options = {"reg_lambda": 0.0, "min_child_weight": 0.0, "max_depth": 3}
    if library == "xgboost" and exponent < 0:
        exponent = -6  # XGBoost splits for no gain below 1e-6, whatever the weights
    one, scaled = (
        make(library, [gc.fnr() <= 0.1], **options).fit(X, Y, sample_weight=w)
        for w in (weight, weight * 2.0**exponent)
    )
    np.testing.assert_array_equal(one.predict(X), scaled.predict(X))
    for name in ("train", "held_out"):
        np.testing.assert_allclose(
            one.constraint_report_[name], scaled.constraint_report_[name], rtol=1e-6
        )


@EITHER
@pytest.mark.parametrize(
    ("weight", "says"),
    [
        (1e-300, r"is 1e-300 at most.*is zero.*multiply"),
        (1e300, r"is 1e\+300 at most.*is too much.*divide"),
        (3e38, r"is 3e\+38 at most.*is too much.*divide"),
    ],
)
def test_weights_beyond_single_precision_are_refused(library, weight, says):
    with pytest.raises(ValueError, match=f"sample_weight {says}"):
        make(library).fit(X, Y, sample_weight=np.full(N, weight))


@EITHER
def test_the_least_weights_of_single_precision_are_taken(library):
    weight = np.where(np.arange(N) % 3, 1e-44, 0.0)
    weight[0] = 1e-300  # next to others, as good as zero
    model = make(library, [gc.fnr() <= 0.1], n_estimators=2).fit(X, Y, sample_weight=weight)
    assert 0.0 <= model.constraint_report_.train[0] <= 1.0


@EITHER
def test_one_row_may_weigh_as_much_as_all_others(library):
    weight = np.ones(N)
    weight[np.flatnonzero(Y == 1)[0]] = 1e9
    fitted = make(library, [gc.fnr() <= 0.1]).fit(X, Y, sample_weight=weight)
    wrong = (fitted.predict(X) == 0) & (Y == 1)
    value = np.average(wrong[Y == 1], weights=weight[Y == 1])
    assert fitted.constraint_report_.train[0] == pytest.approx(value, rel=1e-6, abs=1e-7)


# --- scores to start from -----------------------------------------------------------------------

START_NAME = {"xgboost": "base_margin", "lightgbm": "init_score"}
STARTS = RNG.normal(size=(N, 3))


@EITHER
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_shapes_of_starting_scores(library, measure_on):
    """One dimension or two; of several classes, each library reads one dimension its own way."""
    name = START_NAME[library]
    one = STARTS[:, 0].copy()
    flat = STARTS.ravel("C" if library == "xgboost" else "F")
    for y, shapes in (
        (Y, (one, one[:, None], one.tolist(), pd.Series(one), pd.DataFrame({"start": one}))),
        (SEVERAL, (STARTS, flat, flat.tolist(), pd.DataFrame(STARTS))),
    ):
        found = [
            make(library, [gc.accuracy() >= 0.01], measure_on=measure_on, n_estimators=2)
            .fit(X, y, **{name: start})
            .predict_proba(X)
            for start in shapes
        ]
        parent = make(library, [], n_estimators=2).fit(X, y, **{name: shapes[0]})
        parent = parent.predict_proba(X)
        for p in found:
            np.testing.assert_allclose(p, parent, rtol=0, atol=2e-7)


@EITHER
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_starting_scores_of_another_shape_are_refused(library, measure_on):
    name = START_NAME[library]
    for y, wanted, wrong in (
        (Y, "one score for each of the 600 rows", (STARTS[1:, 0], STARTS[:, :2], STARTS[:, :1].T)),
        (SEVERAL, "3 scores for each of the 600 rows", (STARTS[:, 0], STARTS[:, :2], STARTS.T)),
    ):
        for start in wrong:
            with pytest.raises(ValueError, match=f"{name} must hold {wanted}, got shape"):
                make(library, [gc.accuracy() >= 0.01], measure_on=measure_on).fit(
                    X, y, **{name: start}
                )


def test_starting_scores_of_evaluation_sets():
    """LightGBM adds them to ours: of any shape, and of the right number."""
    held, start = (X[:100], SEVERAL[:100]), STARTS[:100]
    results = []
    for given in (start, start.ravel("F"), pd.DataFrame(start)):
        model = make("lightgbm", [gc.accuracy() >= 0.01])
        model.fit(X, SEVERAL, eval_set=[held], eval_init_score=[given])
        results.append(model.evals_result_)
    assert results[0] == results[1] == results[2]
    with pytest.raises(ValueError, match=r"eval_init_score\[0\] must hold 3 scores for each of"):
        model.fit(X, SEVERAL, eval_set=[held], eval_init_score=[start[1:]])


# --- arguments of other shapes ------------------------------------------------------------------


@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_xgboost_takes_weights_as_a_column(measure_on):
    weight = RNG.random(N) + 0.1
    held = {"eval_set": [(X[:100], Y[:100])], "verbose": False}
    fits = [
        make("xgboost", measure_on=measure_on).fit(
            X, Y, sample_weight=w, sample_weight_eval_set=[w[:100]], **held
        )
        for w in (weight, weight[:, None], pd.DataFrame({"weight": weight}))
    ]
    for model in fits[1:]:
        np.testing.assert_array_equal(model.predict_proba(X), fits[0].predict_proba(X))
        assert model.constraint_report_.held_out[0] == fits[0].constraint_report_.held_out[0]


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("weight", [2, 0.5, np.float32(3.0)])
def test_one_number_is_the_weight_of_every_row(weight):
    """As scikit-learn reads it; XGBoost takes no number."""
    for model in (make("lightgbm"), LINEAR):
        fits = [model.fit(X, Y, w).predict_proba(X) for w in (weight, np.full(N, float(weight)))]
        np.testing.assert_array_equal(*fits)
