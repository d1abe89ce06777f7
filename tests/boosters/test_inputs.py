"""What may be given: tables of every library, missing values, labels and weights of every kind."""

import contextlib
import functools

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import sklearn
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, KINDS, quiet
from scipy import sparse
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

from gbm_constrained import accuracy, fnr, fpr, gap
from gbm_constrained._dataframes import names_of
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression

RNG = np.random.default_rng(3)
N = 600
X = RNG.normal(size=(N, 4)).astype(np.float32).astype(float)  # XGBoost keeps no more
Y = (X[:, 0] + RNG.normal(size=N) > 0.5).astype(int)
SEX = np.where(X[:, 1] + RNG.normal(size=N) > 0, "F", "M")
FRAME = pd.DataFrame(X, columns=list("abcd"))
HOLES = FRAME.mask(RNG.random(X.shape) < 0.1)
ALWAYS = {
    "xgboost": {"n_estimators": 6, "n_jobs": 1, "n_folds": 2, "enable_categorical": True},
    "lightgbm": {"n_estimators": 6, "n_jobs": 1, "n_folds": 2, "verbose": -1},
}
RULE = [fpr() <= 0.05]
LINEAR = ConstrainedLogisticRegression(constraints=RULE, n_iterations=3)


def make(library, rules=RULE, **options):
    return CLASSIFIERS[library](constraints=rules, **{**ALWAYS[library], **options})


def polars():
    return pytest.importorskip("polars", reason="polars is in the extra 'ecosystem'")


def pyarrow():
    pytest.importorskip("cffi", reason="LightGBM reads pyarrow through cffi")
    return pytest.importorskip("pyarrow", reason="pyarrow is in the extra 'datasets'")


def skip_where_the_parent_fails(library, table):
    """LightGBM 4.6 with scikit-learn 1.6 fits no table of pyarrow."""
    try:
        make(library, []).fit(table, Y)
    except AttributeError as error:
        pytest.skip(f"the parent does not take this table: {error}")


def nullable(frame):
    """The columns of a frame as pandas' own nullable types."""
    return frame.astype("Float64")


TABLES = {
    "list": lambda: X.tolist(),
    "frame": lambda: FRAME,
    "missing": lambda: HOLES,
    "nullable": lambda: nullable(HOLES),
    "polars": lambda: polars().from_numpy(X, schema=list("abcd")),
    "polars_missing": lambda: polars().from_numpy(HOLES.to_numpy(), schema=list("abcd")),
    "pyarrow": lambda: pyarrow().Table.from_pandas(FRAME),
    "pyarrow_missing": lambda: pyarrow().Table.from_pandas(HOLES),
    "csr": lambda: sparse.csr_matrix(X),
    "csc": lambda: sparse.csc_array(X),
    "coo": lambda: sparse.coo_matrix(X),
}


# --- features -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Converting data to scipy sparse matrix")  # LightGBM's predict
@BOTH
@pytest.mark.parametrize("name", list(TABLES))
@pytest.mark.parametrize("guarantee", [None, "high_probability"])
def test_tables_give_the_same_model(library, name, guarantee):
    """As numpy's, in training, where rows are split, and in prediction; names are kept."""
    values = HOLES.to_numpy() if name in ("missing", "nullable") or "_" in name else X
    table = TABLES[name]()
    skip_where_the_parent_fails(library, table)
    rules, options = [fpr() <= 0.2], {"guarantee": guarantee}
    expected = make(library, rules, **options).fit(values, Y)
    found = make(library, rules, **options).fit(table, Y)
    np.testing.assert_allclose(
        found.predict_proba(table), expected.predict_proba(values), rtol=0, atol=1e-6
    )
    np.testing.assert_array_equal(found.predict(table), expected.predict(values))
    if names_of(table):
        parent = make(library, []).fit(table, Y)
        assert list(found.feature_names_in_) == list(parent.feature_names_in_)
        if library == "xgboost" or "polars" not in name:  # LightGBM 4.6 takes polars as arrays
            assert list(found.feature_names_in_) == list("abcd")


@BOTH
def test_categories(library):
    """Of pandas in both; of polars and pyarrow in XGBoost. LightGBM would end the process."""
    kind = np.array(["low", "mid", "high"])[np.digitize(X[:, 0], [-0.5, 0.5])]
    frame = FRAME.drop(columns="a").assign(kind=pd.Categorical(kind))
    fitted = make(library).fit(frame, Y)
    plain = make(library).fit(frame.drop(columns="kind"), Y)
    errors = [
        np.mean(m.predict(t) != Y) for m, t in ((fitted, frame), (plain, frame[list("bcd")]))
    ]
    assert errors[0] < errors[1], "the column of categories is what tells the classes apart"
    categories = pyarrow().array(kind.tolist()).dictionary_encode()
    given = {
        "pyarrow": pyarrow().table(
            {**{n: X[:, j] for j, n in enumerate("bcd", 1)}, "kind": categories}
        ),
        "polars": polars().from_pandas(frame),
    }
    for name, table in given.items():
        if library == "lightgbm":
            for rules in (RULE, []):
                with pytest.raises(TypeError, match=rf"\['kind'\], a {name}.*to_pandas"):
                    make(library, rules).fit(table, Y)
        else:
            decisions = make(library).fit(table, Y).predict(table)
            np.testing.assert_array_equal(decisions, fitted.predict(frame))


@BOTH
def test_nullable_types(library):
    """Integers and booleans with missing values, as the floats that they stand for."""
    table = pd.DataFrame(
        {
            "count": pd.array(np.round(X[:, 0] * 5), dtype="Int64"),
            "flag": pd.array(X[:, 1] > 0, dtype="boolean"),
            "value": pd.array(X[:, 2], dtype="Float64"),
        }
    )
    table.iloc[::7, 0] = pd.NA
    table.iloc[::5, 1] = pd.NA
    floats = table.astype("Float64").to_numpy(dtype=float, na_value=np.nan)
    found, expected = make(library).fit(table, Y), make(library).fit(floats, Y)
    np.testing.assert_allclose(
        found.predict_proba(table), expected.predict_proba(floats), rtol=0, atol=1e-6
    )


@BOTH
def test_set_output(library):
    """Frames of transformers reach the classifier with their names."""
    steps = ColumnTransformer(
        [("scaled", StandardScaler(), ["a", "b"]), ("coded", OrdinalEncoder(), ["sex"])],
        verbose_feature_names_out=False,
    )
    frame = FRAME.assign(sex=SEX)
    kinds = ["pandas"]
    if [*map(int, sklearn.__version__.split(".")[:2])] >= [1, 7]:  # before, for older polars only
        polars()
        kinds.append("polars")
    for kind in kinds:
        rule = [gap(fpr(), by="sex") <= 0.05]
        pipeline = make_pipeline(steps.set_output(transform=kind), make(library, rule))
        fitted = pipeline.fit(frame, Y)[-1]
        if library == "xgboost" or kind == "pandas":
            assert list(fitted.feature_names_in_) == ["a", "b", "sex"]
        assert fitted.group_report_["rows"].sum() == (Y == 0).sum()


# --- groups -------------------------------------------------------------------------------------

GROUPS = {
    "polars series": lambda: polars().Series("sex", SEX),
    "polars frame": lambda: polars().DataFrame({"sex": SEX}),
    "polars categories": lambda: polars().DataFrame({"sex": SEX}).cast(polars().Categorical),
    "pyarrow table": lambda: pyarrow().table({"sex": SEX}),
    "pyarrow categories": lambda: pyarrow().table(
        {"sex": pyarrow().array(SEX).dictionary_encode()}
    ),
    "pyarrow batch": lambda: pyarrow().table({"sex": SEX}).to_batches()[0],
    "dict of columns": lambda: {"sex": pyarrow().chunked_array([SEX[:100], SEX[100:]])},
}


@BOTH
@pytest.mark.parametrize("kind", list(GROUPS))
def test_groups_of_other_libraries(library, kind):
    rule = [gap(fpr(), by="sex") <= 0.05]
    expected = make(library, rule).fit(X, Y, sensitive_features={"sex": SEX})
    found = make(library, rule).fit(X, Y, sensitive_features=GROUPS[kind]())
    np.testing.assert_array_equal(found.predict(X), expected.predict(X))
    pd.testing.assert_frame_equal(found.group_report_, expected.group_report_)


@BOTH
def test_missing_groups_and_columns_of_x(library):
    """None of any library is a group of its own; columns are found in X of any library."""
    sex = SEX.astype(object)
    sex[::4] = None
    frame = FRAME.assign(coded=np.where(SEX == "F", 1.0, 0.0))
    rule = [gap(fpr(), by="sex") <= 0.1, gap(fpr(), by="coded") <= 0.1]
    expected = make(library, rule).fit(frame, Y, sensitive_features={"sex": sex})
    assert "sex=missing" in set(expected.group_report_["group"])
    tables = {
        "polars": (polars().from_pandas(frame), polars().DataFrame({"sex": sex.tolist()})),
        "pyarrow": (pyarrow().Table.from_pandas(frame), pyarrow().table({"sex": sex.tolist()})),
    }
    for table, groups in tables.values():
        skip_where_the_parent_fails(library, table)
        found = make(library, rule).fit(table, Y, sensitive_features=groups)
        pd.testing.assert_frame_equal(found.group_report_, expected.group_report_)


def test_an_unnamed_series_of_polars():
    rule = [gap(fpr(), by="sensitive_feature_0") <= 0.05]
    clf = make("lightgbm", rule).fit(X, Y, sensitive_features=polars().Series(SEX))
    assert len(clf.group_report_) == 2


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


@BOTH
def test_continuous_targets_are_refused(library):
    with pytest.raises(ValueError, match="Unknown label type: y is continuous"):
        make(library).fit(X, X[:, 0])


@BOTH
@pytest.mark.parametrize("exponent", [-30, 30])
def test_tiny_and_huge_weights(library, exponent):
    """A power of two changes no digit: the same decisions and rates, without regularisation."""
    weight = RNG.exponential(size=N).astype(np.float32).astype(float)
    options = {"reg_lambda": 0.0, "min_child_weight": 0.0, "max_depth": 3}
    if library == "xgboost" and exponent < 0:
        exponent = -6  # XGBoost splits for no gain below 1e-6, whatever the weights
    one, scaled = (
        make(library, [fnr() <= 0.1], **options).fit(X, Y, sample_weight=w)
        for w in (weight, weight * 2.0**exponent)
    )
    np.testing.assert_array_equal(one.predict(X), scaled.predict(X))
    for name in ("train", "held_out"):
        np.testing.assert_allclose(
            one.constraint_report_[name], scaled.constraint_report_[name], rtol=1e-6
        )


@BOTH
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


@BOTH
def test_the_least_weights_of_single_precision_are_taken(library):
    weight = np.where(np.arange(N) % 3, 1e-44, 0.0)
    weight[0] = 1e-300  # next to others, as good as zero
    model = make(library, [fnr() <= 0.1], n_estimators=2).fit(X, Y, sample_weight=weight)
    assert 0.0 <= model.constraint_report_.train[0] <= 1.0


@BOTH
def test_one_row_may_weigh_as_much_as_all_others(library):
    weight = np.ones(N)
    weight[np.flatnonzero(Y == 1)[0]] = 1e9
    fitted = make(library, [fnr() <= 0.1]).fit(X, Y, sample_weight=weight)
    wrong = (fitted.predict(X) == 0) & (Y == 1)
    value = np.average(wrong[Y == 1], weights=weight[Y == 1])
    assert fitted.constraint_report_.train[0] == pytest.approx(value, rel=1e-6, abs=1e-7)


# --- scores to start from -----------------------------------------------------------------------

START_NAME = {"xgboost": "base_margin", "lightgbm": "init_score"}
SEVERAL = np.digitize(X[:, 0] + X[:, 1], [-0.5, 0.5])
STARTS = RNG.normal(size=(N, 3))


@BOTH
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
            make(library, [accuracy() >= 0.01], measure_on=measure_on)
            .fit(X, y, **{name: start})
            .predict_proba(X)
            for start in shapes
        ]
        parent = make(library, []).fit(X, y, **{name: shapes[0]}).predict_proba(X)
        for p in found:
            np.testing.assert_allclose(p, parent, rtol=0, atol=2e-7)


@BOTH
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
def test_starting_scores_of_another_shape_are_refused(library, measure_on):
    name = START_NAME[library]
    for y, wanted, wrong in (
        (Y, "one score for each of the 600 rows", (STARTS[1:, 0], STARTS[:, :2], STARTS[:, :1].T)),
        (SEVERAL, "3 scores for each of the 600 rows", (STARTS[:, 0], STARTS[:, :2], STARTS.T)),
    ):
        for start in wrong:
            with pytest.raises(ValueError, match=f"{name} must hold {wanted}, got shape"):
                make(library, [accuracy() >= 0.01], measure_on=measure_on).fit(
                    X, y, **{name: start}
                )


def test_starting_scores_of_evaluation_sets():
    """LightGBM adds them to ours: of any shape, and of the right number."""
    held, start = (X[:100], SEVERAL[:100]), STARTS[:100]
    results = []
    for given in (start, start.ravel("F"), pd.DataFrame(start)):
        model = make("lightgbm", [accuracy() >= 0.01])
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


@BOTH
def test_sensitive_features_of_evaluation_sets_are_one_entry_for_each(library):
    held = {"eval_set": [(X[:100], Y[:100])], "sensitive_features": {"sex": SEX}}
    own = {"sex": SEX[:100]}
    for wrong in (own, pd.DataFrame(own), [own, own], []):
        with pytest.raises(ValueError, match="a list with one entry for each of the 1 evaluation"):
            make(library, [gap(fpr(), by="sex") <= 0.1]).fit(
                X, Y, sensitive_features_eval_set=wrong, **held
            )


# --- what is refused before any tree is grown ---------------------------------------------------

HELD, HELD_Y = X[:100], Y[:100]
PAIR = (HELD, HELD_Y)
WEIGHTS = ("sample_weight_eval_set", "eval_sample_weight")
STARTING = ("base_margin_eval_set", "eval_init_score")
WRONG_SETS = {
    "unknown label": ([(HELD, HELD_Y + 1)], r"eval_set\[0\] holds label 2, .*\[0, 1\]"),
    "missing label": ([PAIR, (HELD, np.full(100, np.nan))], r"y of eval_set\[1\] has 100 missing"),
    "labels of another type": ([(HELD, HELD_Y.astype(str))], r"eval_set\[0\] holds label '[01]'"),
    "labels missing": ([(HELD, None)], r"y of eval_set\[0\] is None"),
    "other columns": ([(HELD[:, :3], HELD_Y)], r"X of eval_set\[0\] has 3 columns, .* have 4"),
    "fewer labels": ([(HELD, HELD_Y[1:])], r"eval_set\[0\] has 100 rows of X and 99 labels"),
    "one column": ([(HELD[:, 0], HELD_Y)], r"X of eval_set\[0\] must have two dimensions"),
    "a triple": ([(HELD, HELD_Y, HELD_Y)], "list of pairs .*entry 0 is a tuple of 3"),
    "no pairs": (HELD, "list of pairs .*a ndarray whose entry 0 is a ndarray"),
    "a number": (3, "list of pairs .*a int whose entry 0 is a int"),
}
WRONG_OF_SETS = {
    "short weight": (WEIGHTS, [np.ones(3)], "one weight for each of the 100 rows"),
    "negative weight": (WEIGHTS, [-HELD_Y], "must be finite and non-negative, got -1"),
    "short scores": (STARTING, [np.ones(3)], r"\[0\] must hold one score for each of the 100"),
}


def refuses(library, message, given=None, y=Y, rules=RULE, **options):
    """Whether a fit says so before the first iteration, also of boosters that measure."""

    def started(state):
        pytest.fail("trees are grown")

    given = {"constraint_callbacks": [started], **quiet(library), **(given or {})}
    with pytest.raises((TypeError, ValueError), match=message):
        make(library, rules, measure_on="crossfit", **options).fit(X, y, **given)


@BOTH
@pytest.mark.parametrize("case", list(WRONG_SETS))
def test_evaluation_sets_that_do_not_fit_are_refused(library, case):
    eval_set, message = WRONG_SETS[case]
    refuses(library, message, {"eval_set": eval_set})


@BOTH
@pytest.mark.parametrize("case", list(WRONG_OF_SETS))
def test_arguments_of_evaluation_sets_that_do_not_fit_are_refused(library, case):
    names, value, message = WRONG_OF_SETS[case]
    name = names[0] if library == "xgboost" else names[1]
    refuses(library, message, {"eval_set": [PAIR], name: value})


@BOTH
def test_sensitive_features_of_evaluation_sets_that_do_not_fit_are_refused(library):
    given = {"eval_set": [PAIR], "sensitive_features": {"sex": SEX}}
    given["sensitive_features_eval_set"] = [{"sex": SEX[:99]}]
    refuses(library, r"eval_set\[0\].*99.* 100 rows", given, rules=[gap(fpr(), by="sex") <= 0.1])


@BOTH
def test_callbacks_that_are_none_are_refused(library):
    for wrong, message in (([3], "holds 3"), (3, "got 3")):
        message = f"callbacks must be a list of .*{message}"
        if library == "xgboost":
            refuses(library, message, callbacks=wrong)
        else:
            refuses(library, message, {"callbacks": wrong})


@BOTH
def test_early_stopping_without_an_evaluation_set_is_refused(library):
    name = "early_stopping_rounds"
    refuses(library, f"{name[:-1]}.*and there is none: give eval_set=", **{name: 3})
    if library == "lightgbm":
        message = r"lightgbm\.early_stopping.*and there is none: give eval_set="
        refuses(library, message, {"callbacks": [lgb.early_stopping(3)]})
        refuses(library, message, {"eval_set": [PAIR]}, early_stopping_rounds=3, metric="None")


def test_numbers_of_rounds_that_lightgbm_refuses_are_refused():
    for wrong in (np.int64(3), "3"):
        message = "early_stopping_round should be an integer"
        refuses("lightgbm", message, {"eval_set": [PAIR]}, early_stopping_round=wrong)


@pytest.mark.parametrize("rounds", [0, -1])
def test_early_stopping_that_lightgbm_disables_is_none(rounds):
    """A number of rounds that is not positive."""
    held = {"eval_set": [PAIR]}
    by_callback = {**held, "callbacks": [lgb.early_stopping(rounds)]}
    for given, options in ((by_callback, {}), (held, {"early_stopping_round": rounds})):
        model = make("lightgbm", **options).fit(X, Y, **given)
        assert model.n_iter_ == ALWAYS["lightgbm"]["n_estimators"]
        message = "does not say after how many rounds"
        refuses("lightgbm", message, given, early_stopping_on="constraints", **options)


@BOTH
@KINDS
def test_metrics_that_cannot_be_evaluated_are_refused(library, kind):
    y = Y if kind == "binary" else SEVERAL
    rules = [accuracy() >= 0.01]
    wrong = {
        ("xgboost", "binary"): "mlogloss",
        ("xgboost", "several"): "error",
        ("lightgbm", "binary"): "auc_mu",
        ("lightgbm", "several"): "auc",
    }[library, kind]
    for metric in ("nonsense", [wrong], ["nonsense"]):
        given = {"eval_set": [(HELD, y[:100])]}
        options = {"eval_metric": metric} if library == "xgboost" else {}
        given |= {} if library == "xgboost" else {"eval_metric": metric}
        name = metric if isinstance(metric, str) else metric[0]
        message = f"metric '{name}' cannot be evaluated"
        refuses(library, message, given, y, rules, **options)


def test_functions_that_xgboost_cannot_record_are_refused():
    """It records a function by its name, and reads none that is alone in a list."""

    def mean(y_true, p):
        return float(p.mean())

    given = {"eval_set": [PAIR]}
    nameless = functools.partial(mean)
    for metric in (nameless, ["auc", nameless]):
        refuses("xgboost", "has no __name__", given, eval_metric=metric)
    make("xgboost", eval_metric=nameless).fit(X, Y)  # which nothing is recorded of
    refuses("xgboost", "give the function itself", given, eval_metric=[mean])


@BOTH
def test_functions_of_other_arguments_are_refused(library):
    """XGBoost gives weights by name, if there are any; LightGBM counts the parameters."""

    def of_one(y_true):
        return 0.0

    def of_two(y_true, y_pred):
        return ("zero", 0.0, False) if library == "lightgbm" else 0.0

    def of_five(y_true, y_pred, weight, group, more):
        return 0.0

    @functools.wraps(of_one)
    def wrapped(y_true, y_pred):
        return of_one(y_true)

    given = {"eval_set": [PAIR]}
    for wrong in (of_one, of_five):
        if library == "xgboost":
            refuses(library, "'of_.*' cannot be called with", given, eval_metric=wrong)
        else:
            refuses(library, "'of_.*' has . arguments", {**given, "eval_metric": wrong})
    if library == "xgboost":
        for right in (of_two, wrapped):
            make(library, eval_metric=right).fit(X, Y, **given, verbose=False)
        given["sample_weight_eval_set"] = [np.ones(100)]
        refuses(library, r"'of_two' .*sample_weight=\.\.\.\), as", given, eval_metric=of_two)
        make(library, eval_metric=of_one).fit(X, Y)  # which nothing calls
    else:
        make(library).fit(X, Y, **given, eval_metric=of_two)
        make(library).fit(X, Y, eval_metric=of_one)


def test_early_stopping_of_xgboost_by_what_is_not_there_is_refused():
    given, stopping = {"eval_set": [PAIR]}, xgb.callback.EarlyStopping
    refuses("xgboost", "early_stopping_rounds must be a number", given, early_stopping_rounds="3")
    wrong = {
        "rounds of EarlyStopping must be a number, got '3'": stopping(rounds="3"),
        "data_name='held', and .*\\['validation_0'\\]": stopping(rounds=3, data_name="held"),
        "metric_name='auc', .*the metrics are \\['logloss'\\]": stopping(
            rounds=3, metric_name="auc"
        ),
    }
    for message, callback in wrong.items():
        refuses("xgboost", message, given, callbacks=[callback])

    def mean(y_true, p):
        return float(p.mean())

    for metric, names in (
        (["auc", "error@0.3", mean], ["auc", "error@0.3", "mean"]),
        (mean, ["logloss", "mean"]),
        ("aucpr", ["aucpr"]),
    ):
        for name in names:
            callbacks = [stopping(rounds=3, metric_name=name, data_name="validation_0")]
            make("xgboost", eval_metric=metric, callbacks=callbacks).fit(
                X, Y, **given, verbose=False
            )


def test_weights_of_classes_that_lightgbm_cannot_read_are_refused():
    given = {"eval_set": [PAIR]}
    refuses(
        "lightgbm", "must be a list or dict .*a str", {**given, "eval_class_weight": "balanced"}
    )
    for wrong, message in (
        ({5: 1.0}, r"eval_class_weight\[0\] holds label 5, .*\[0, 1\]"),
        ("nonsense", r"eval_class_weight\[0\] must be a dict .*got 'nonsense'"),
    ):
        refuses("lightgbm", message, {**given, "eval_class_weight": [wrong]})
    for right in ({1: 2.0}, "balanced", None):
        make("lightgbm").fit(X, Y, **given, eval_class_weight=[right])


@pytest.mark.filterwarnings("ignore::sklearn.exceptions.ConvergenceWarning")
@pytest.mark.parametrize("library", [*CLASSIFIERS, "linear"])
def test_masked_features_are_refused(library):
    """The libraries train on what is below the mask."""
    masked = np.ma.masked_greater(X, 1.0)
    model = LINEAR if library == "linear" else make(library)
    with pytest.raises(ValueError, match=r"X is a masked array.*give X\.filled\(np\.nan\)"):
        model.fit(masked, Y)
    with pytest.raises(ValueError, match=r"datasets\['more'\] is a masked array"):
        model.fit(X, Y, datasets={"more": masked})
    model.fit(np.ma.array(X), Y)  # of which nothing is masked
    model.fit(pd.DataFrame(X, columns=["_mask", "data", "c", "d"]), Y)
    if library != "linear":
        refuses(library, r"X of eval_set\[0\] is a masked", {"eval_set": [(masked, Y)]})


@BOTH
def test_categories_of_another_type_are_refused(library):
    """All of them would be missing values."""
    codes = np.arange(len(Y)) % 3

    def table(values):
        return pd.DataFrame({"a": X[:, 0], "b": pd.Categorical(values)})

    more = {"enable_categorical": True} if library == "xgboost" else {}
    model = make(library, **more)
    texts, numbers, plain = table(codes.astype(str)), table(codes), table(codes).astype({"b": int})
    for ours, theirs in ((texts, numbers), (numbers, texts), (texts, plain)):
        with pytest.raises(TypeError, match=r"datasets\['more'\] has .* in column 'b'"):
            model.fit(ours, Y, datasets={"more": theirs})
    for theirs, message in (
        (numbers, r"has 0 in column 'b', .* '0'"),
        (plain, "has no categories"),
    ):
        given = {"eval_set": [(theirs, Y)], "constraint_callbacks": [pytest.fail]}
        with pytest.raises(TypeError, match=rf"X of eval_set\[0\] {message}"):
            model.fit(texts, Y, **given)
    for given in (numbers, plain, table(codes + 10), table([None] * len(Y))):
        model.fit(numbers, Y, datasets={"more": given})


def test_missing_labels_among_texts_of_numpy():
    texts = np.array(["no", "yes", None], dtype=np.dtypes.StringDType(na_object=None))
    where = np.where(np.arange(len(Y)) == 3, 2, Y)
    refuses("lightgbm", "y has 1 missing labels .* the first in row 3", y=texts[where])


def test_labels_that_the_parents_refuse_are_refused():
    for labels in (Y * 2 - 1, Y + 1, np.array(["no", "yes"])[Y]):
        refuses("xgboost", r"Invalid classes inferred .*Expected: \[0 1\], got", y=labels)
    refuses("lightgbm", "Unknown label type", y=Y.astype(object))
    mixed = np.where(Y == 1, "yes", Y.astype(object))
    for library in ("xgboost", "lightgbm"):
        refuses(library, r"y holds labels of several types \(int, str\)", y=mixed)


def test_xgboost_refuses_other_names_of_columns():
    for other in (FRAME[list("dcba")], FRAME.rename(columns={"a": "z"}), X):
        with pytest.raises(ValueError, match=r"X of eval_set\[0\] has the columns .*'a', 'b'"):
            make("xgboost").fit(FRAME, Y, eval_set=[(other, Y)], verbose=False)
    with pytest.raises(ValueError, match=r"'a'.* have columns without names"):
        make("xgboost").fit(X, Y, eval_set=[(FRAME, Y)], verbose=False)
    for other in (FRAME.iloc[:100], TABLES["pyarrow"]()):
        make("xgboost").fit(FRAME, Y, eval_set=[(other, Y[: len(other)])], verbose=False)


def test_xgboost_wants_an_entry_for_each_evaluation_set():
    for name in ("sample_weight_eval_set", "base_margin_eval_set"):
        for eval_set in ([PAIR, PAIR], None):
            message = f"{name} must hold one entry for each of the"
            refuses("xgboost", message, {"eval_set": eval_set, name: [np.ones(100)]})
    refuses("xgboost", "eval_metric must be a name", eval_metric=3)


def test_lightgbm_refuses_evaluation_sets_that_it_cannot_read():
    refuses("lightgbm", "either 'eval_set' or", {"eval_set": [PAIR], "eval_X": X, "eval_y": Y})
    refuses("lightgbm", "not just one of them", {"eval_X": X})
    refuses("lightgbm", "tuples of the same length", {"eval_X": (X, X), "eval_y": (Y,)})
    refuses("lightgbm", r"eval_set\[0\] is a list", {"eval_set": [(HELD.tolist(), HELD_Y)]})
    refuses("lightgbm", r"eval_set\[0\] has no rows", {"eval_set": [(X[:0], Y[:0])]})
    given = {"eval_set": [PAIR], "eval_sample_weight": (np.ones(100),)}
    refuses("lightgbm", "eval_sample_weight must be a list or dict .* got a tuple", given)


def test_lightgbm_takes_evaluation_sets_and_their_arguments_of_many_forms():
    """Lists that are too short or long, dicts, and what can be gone through once."""
    weight, sets = RNG.random(100), [(X[100:200], Y[100:200]), PAIR]
    expected = make("lightgbm").fit(X, Y, eval_set=sets).evals_result_
    for eval_set, more in (
        (tuple(sets), {}),
        (iter(sets), {"eval_init_score": [None] * 3}),
        ([list(pair) for pair in sets], {"eval_sample_weight": []}),
    ):
        model = make("lightgbm").fit(X, Y, eval_set=eval_set, **more)
        assert model.evals_result_ == expected
    lists = X.tolist(), Y.tolist()
    assert make("lightgbm").fit(*lists, eval_set=[lists]).evals_result_["training"]
    found = [
        make("lightgbm").fit(X, Y, eval_set=sets, eval_sample_weight=given).evals_result_
        for given in ([weight], {0: weight}, [weight, np.ones(100), weight])
    ]
    assert found[0] == found[1]
    assert found[0]["valid_0"] == found[2]["valid_0"] != expected["valid_0"]
