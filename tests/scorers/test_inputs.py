"""Tables and groups of every library give the same model."""

import numpy as np
import pandas as pd
import pytest
import sklearn
from helpers import BOTH
from input_data import FRAME, HOLES, RULE, SEX, TABLES, X, Y, make, polars, pyarrow
from sklearn.compose import ColumnTransformer
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OrdinalEncoder, StandardScaler

import gbm_constrained as gc
from gbm_constrained._dataframes import names_of


def skip_where_the_parent_fails(library, table):
    """LightGBM 4.6 with scikit-learn 1.6 fits no table of pyarrow."""
    try:
        make(library, []).fit(table, Y)
    except AttributeError as error:
        pytest.skip(f"the parent does not take this table: {error}")


# --- features -----------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore:Converting data to scipy sparse matrix")  # LightGBM's predict
@BOTH
@pytest.mark.parametrize("name", list(TABLES))
def test_tables_give_the_same_model(library, name):
    """As numpy's, in training, where rows are split, and in prediction; names are kept."""
    values = HOLES.to_numpy() if name in ("missing", "nullable") or "_" in name else X
    table = TABLES[name]()
    skip_where_the_parent_fails(library, table)
    rules, options = [gc.fpr() <= 0.2], {"guarantee": "high_probability"}
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
    assert errors[0] < errors[1], "the column of categories separates the classes"
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
        rule = [gc.gap(gc.fpr(), by="sex") <= 0.05]
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
    rule = [gc.gap(gc.fpr(), by="sex") <= 0.05]
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
    rule = [gc.gap(gc.fpr(), by="sex") <= 0.1, gc.gap(gc.fpr(), by="coded") <= 0.1]
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
    rule = [gc.gap(gc.fpr(), by="sensitive_feature_0") <= 0.05]
    clf = make("lightgbm", rule).fit(X, Y, sensitive_features=polars().Series(SEX))
    assert len(clf.group_report_) == 2
