"""The value on held-out rows agrees with that on test rows, whatever is given to ``fit``."""

import numpy as np
import pandas as pd
import pytest
from helpers import CLASSIFIERS, EITHER, quiet

import gbm_constrained as gc
from gbm_constrained.metrics import g_mean

N = 3000
RANDOM = np.random.default_rng(0)
X = pd.DataFrame(RANDOM.normal(size=(N, 3)), columns=list("abc"))
X["k"] = pd.Categorical(RANDOM.choice(list("uvw"), N))
Y = ((X.a + (X.k == "u") + 0.7 * RANDOM.normal(size=N)) > 1.8).to_numpy().astype(int)
START = 2.0 * X.b.to_numpy() + 1.0  # which says nothing of the label
WEIGHT = RANDOM.integers(1, 4, N) * np.where(X.c > 0, 1.0, 0.2)
TRAIN = np.arange(N) % 2 == 0
OPTIONS = {
    "xgboost": {"max_depth": 3, "enable_categorical": True},
    "lightgbm": {"num_leaves": 7, "verbose": -1},
}


def make(library, **options):
    own = {"n_estimators": 15, "measure_on": gc.CrossFit(3), "maximize": g_mean()}
    return CLASSIFIERS[library](n_jobs=1, **{**own, **OPTIONS[library], **options})


def measure(found, y, weight=None):
    recalls = [np.average(found[y == k] == k, weights=None if weight is None else weight[y == k])
               for k in (0, 1)]  # fmt: skip
    return np.sqrt(np.prod(recalls))


def assert_agrees(model, value):
    row = model.metric_report_[model.metric_report_.is_returned].iloc[0]
    error = np.sqrt(2) * (row.high - row.low) / (2 * 1.96)
    assert abs(row.held_out - value) <= 3 * error
    assert 3 * error < 0.15  # or anything would agree


@pytest.mark.parametrize(
    ("library", "options"),
    [
        ("xgboost", {"scale_pos_weight": 20.0}),
        ("lightgbm", {"is_unbalance": True}),
        ("lightgbm", {"class_weight": {0: 1.0, 1: 20.0}}),
    ],
)
def test_factors_of_classes(library, options):
    model = make(library, **options).fit(X[TRAIN], Y[TRAIN])
    assert_agrees(model, measure(model.predict(X[~TRAIN]), Y[~TRAIN]))
    plain = make(library).fit(X[TRAIN], Y[TRAIN])
    rows = [m.metric_report_.set_index("decisions").held_out["prior"] for m in (model, plain)]
    assert abs(rows[0] - rows[1]) < 0.05  # probabilities are those of the rows, not of the weights


@EITHER
def test_weights_of_rows(library):
    model = make(library).fit(X[TRAIN], Y[TRAIN], sample_weight=WEIGHT[TRAIN])
    value = measure(model.predict(X[~TRAIN]), Y[~TRAIN], WEIGHT[~TRAIN])
    assert_agrees(model, value)
    assert model.score(X[~TRAIN], Y[~TRAIN], WEIGHT[~TRAIN]) == pytest.approx(value)


def test_scores_that_xgboost_starts_from_count_in_predictions():
    model = make("xgboost")
    with pytest.warns(UserWarning, match="GC207"):
        model.fit(
            X[TRAIN], Y[TRAIN], base_margin=START[TRAIN], verbose=False,
            eval_set=[(X[~TRAIN], Y[~TRAIN])], base_margin_eval_set=[START[~TRAIN]],
        )  # fmt: skip
    value = measure(model.predict(X[~TRAIN], base_margin=START[~TRAIN]), Y[~TRAIN])
    held = model.metric_report_[model.metric_report_.rows == "out of fold"]
    row = held[held.is_returned].iloc[0]
    assert abs(row.held_out - value) <= 3 * np.sqrt(2) * (row.high - row.low) / (2 * 1.96)
    of_set = model.metric_report_[model.metric_report_.rows == "eval_set[0]"].iloc[0]
    assert of_set.held_out == pytest.approx(value)
    train = measure(model.predict(X[TRAIN], base_margin=START[TRAIN]), Y[TRAIN])
    assert row.train == pytest.approx(train)
    assert abs(train - measure(model.predict(X[TRAIN]), Y[TRAIN])) > 0.05


def test_scores_that_lightgbm_starts_from_are_not_in_predictions():
    start = 0.3 * START  # Trees alone must rank rows.
    model = make("lightgbm").fit(X[TRAIN], Y[TRAIN], init_score=start[TRAIN])
    assert_agrees(model, measure(model.predict(X[~TRAIN]), Y[~TRAIN]))


@pytest.mark.parametrize("library", ["lightgbm"])
def test_groups_of_rows_stay_together(library):
    """Copies of a row in two folds would be recognised: labels of noise, promised as if known."""
    rows = np.repeat(np.arange(300), 5)
    table, y = X.iloc[rows], RANDOM.integers(0, 2, 300)[rows]
    deep = {"n_estimators": 30, "learning_rate": 0.4, "num_leaves": 63, "min_child_samples": 2}
    values = []
    for groups in (rows, None):
        model = make(library, **deep).fit(table, y, groups=groups)
        report = model.metric_report_
        values.append(report[report.is_returned].held_out.iloc[0])
    assert values[0] < 0.65 < 0.9 < values[1]


@EITHER
def test_evaluation_sets_have_a_row_each(library):
    sets = [(X[~TRAIN], Y[~TRAIN]), (X[:400], Y[:400])]
    name = "sample_weight_eval_set" if library == "xgboost" else "eval_sample_weight"
    given = {"eval_set": sets, name: [WEIGHT[~TRAIN], None], **quiet(library)}
    model = make(library, constraints=[gc.fpr() <= 0.3]).fit(X[TRAIN], Y[TRAIN], **given)
    report = model.metric_report_.set_index("rows")
    expected = [
        measure(model.predict(X[~TRAIN]), Y[~TRAIN], WEIGHT[~TRAIN]),
        measure(model.predict(X[:400]), Y[:400]),
    ]
    for i, value in enumerate(expected):
        row = report.loc[f"eval_set[{i}]"]
        assert row.held_out == pytest.approx(value, abs=1e-12)
        assert row.low < row.held_out < row.high
        assert row.is_returned
    fpr = np.mean(model.predict(X[:400])[Y[:400] == 0] == 1)
    assert report.violation["eval_set[1]"] == pytest.approx(max(fpr - 0.3, 0.0))
    wide = report.loc["eval_set[1]"]
    narrow = (
        make(library)
        .fit(X[TRAIN], Y[TRAIN], eval_set=[(X[~TRAIN], Y[~TRAIN])], **quiet(library))
        .metric_report_.iloc[-1]
    )
    assert wide.high - wide.low > narrow.high - narrow.low


@EITHER
def test_an_evaluation_set_without_a_class_has_no_value(library):
    only = X[Y == 0][:50], Y[Y == 0][:50]
    model = make(library).fit(X[TRAIN], Y[TRAIN], eval_set=[only], **quiet(library))
    assert np.isnan(model.metric_report_.held_out.iloc[-1])
    with pytest.raises(ValueError, match=r"eval_set\[0\] holds label 7"):
        make(library).fit(X[TRAIN], Y[TRAIN], eval_set=[(only[0], only[1] + 7)], **quiet(library))


@EITHER
def test_early_stopping_on_constraints_is_refused(library):
    with pytest.raises(ValueError, match=r"early_stopping_on='constraints'.*leave it out"):
        make(library, early_stopping_on="constraints").fit(X, Y)
