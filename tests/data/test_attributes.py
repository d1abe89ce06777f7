"""Attributes of rows, and sensitive features of all kinds."""

from __future__ import annotations

import contextlib
import datetime
import re

import numpy as np
import pandas as pd
import pytest
from group_values import AGE, PREDICTED, RNG, SEX, N, Y, expected_of, groups_of
from grouped_fits import fitted, problem

import gbm_constrained as gc
from gbm_constrained.constraints.selectors import MISSING
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import as_groups, check_labels, check_weight, columns_of
from gbm_constrained.problem.compiler import compile_constraints

DAY = datetime.date(2020, 1, 1)
NOON = datetime.datetime(2020, 1, 1, 12)
HOUR = datetime.timedelta(hours=1)


@pytest.mark.parametrize(
    ("column", "names"),
    [
        (AGE == 0, [False, True]),
        (7 * (AGE == 0), [0, 7]),
        (AGE * 1.5, [0.0, 1.5, 3.0]),
        (AGE.astype(np.uint8), [0, 1, 2]),
        (np.where(AGE == 0, None, SEX), ["F", "M", MISSING]),
        (np.where(AGE == 0, np.nan, AGE), [1.0, 2.0, MISSING]),
        (pd.array(np.where(AGE == 0, None, AGE), dtype="Int64"), [1, 2, MISSING]),
        (pd.array(AGE == 0, dtype="boolean"), [False, True]),
        (pd.Series(np.where(AGE == 0, None, SEX)), ["F", "M", MISSING]),
        (pd.Categorical(SEX, categories=["X", "M", "F"]), ["F", "M"]),
        (pd.Categorical(SEX).remove_categories("F"), ["M", MISSING]),
        (pd.Categorical(AGE, ordered=True), [0, 1, 2]),
        (pd.Categorical(np.where(AGE == 0, None, SEX)), ["F", "M", MISSING]),
        (np.ma.array(AGE, mask=AGE == 0), [1, 2, MISSING]),
        (np.ma.array(SEX, mask=AGE == 0), ["F", "M", MISSING]),
        (np.ma.array(SEX), ["F", "M"]),
        (np.array([None] * N), [MISSING]),
        (np.array([DAY] * 30 + [None] * 30), [DAY, MISSING]),
        *(
            (values.astype(f"{kind}64[{unit}]"), [*levels, MISSING])
            for kind, values, levels in (
                ("datetime", np.array([NOON] * 30 + [None] * 30), [NOON]),
                ("timedelta", np.array([HOUR] * 30 + [None] * 30), [HOUR]),
            )
            for unit in ("s", "us", "ns")
        ),
    ],
    ids=lambda x: str(getattr(x, "dtype", x)),
)
def test_values_of_every_type(column, names):
    """Sorted, as Python's own values, and rows without one last."""
    for given in ({"c": column}, pd.DataFrame({"c": column})):
        found = groups_of(columns_of(given, N))
        assert [name for (name,) in found] == names
        assert not any(isinstance(name, np.generic) for (name,) in found)
        assert {k: v for (k,), v in found.items()} == pytest.approx(expected_of(column))


@pytest.mark.parametrize("unit", ["s", "us", "ns"])
def test_a_time_is_a_value_however_it_is_written(unit):
    columns = {"c": np.array([NOON, NOON + HOUR] * 30, dtype=f"datetime64[{unit}]")}
    rows = Rows(Y, np.array([0, 1]), None, columns)
    for time in (NOON, np.datetime64(NOON), np.datetime64(NOON, "ns"), pd.Timestamp(NOON)):
        compiled = compile_constraints([gc.selection_rate(on={"c": time}) <= 0.5], rows)[1]
        assert compiled.rows == ("selection_rate[c=2020-01-01 12:00:00] <= 0.5",)


def test_values_of_several_types_in_one_column():
    column = np.array([0, "a", None, 2.5, np.nan, True] * 10, dtype=object)
    found = groups_of({"c": column})
    assert {name for (name,) in found} == {0, "a", 2.5, True, MISSING}
    assert list(found)[-1] == (MISSING,)
    assert found[(MISSING,)] == pytest.approx(
        PREDICTED[(np.arange(N) % 6 == 2) | (np.arange(N) % 6 == 4)].mean()
    )


@contextlib.contextmanager
def warns_of(values, times=1):
    """One warning of a column, about values that look alike."""
    with pytest.warns(UserWarning, match="has values that look alike") as caught:
        yield
    found = [str(w.message) for w in caught if "look alike" in str(w.message)]
    assert len(found) == times
    assert all(f"groups of their own: {values}. Spell them alike" in text for text in found)


COMPOSED, DECOMPOSED = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"


ALIKE = {
    "space": (["M", "M "], "'M' and 'M '", ["M", "M "]),
    "no-break space": (["M", "M\xa0"], "'M' and 'M\\xa0'", ["M", "M\xa0"]),
    "two spaces": (["a b", "a  b"], "'a  b' and 'a b'", ["a  b", "a b"]),
    "zero width": (["M", "\ufeffM"], "'M' and '\\ufeffM'", ["M", "\ufeffM"]),
    "number and text": ([1, "1"], "1 and '1'", [1, "1"]),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_groups_that_look_alike_are_warned_of_and_quoted(kind):
    values, found, ordered = ALIKE[kind]
    column = np.array([*values, "x"] * 20, dtype=object)
    rows = Rows(Y, np.array([0, 1]), None, {"c": column})
    rules = [
        gc.each(rate, by="c", min_group_size=1) <= 0.9 for rate in (gc.fpr(), gc.error_rate())
    ]
    with warns_of(found):
        _, compiled = compile_constraints(rules, rows)
    names = [f"c={v!r}" if isinstance(v, str) else f"c={v}" for v in ordered]
    assert sorted(map(str, compiled.groups[0])) == sorted([*names, "c=x"])


def test_two_forms_of_a_letter_are_shown_in_ascii():
    """In quotes they would look alike as well."""
    column = np.array([COMPOSED, DECOMPOSED, "bar"] * 20, dtype=object)
    rule = gc.each(gc.selection_rate(), by="c", min_group_size=1) <= 0.9
    with warns_of(r"'cafe\u0301' and 'caf\xe9'"):
        _, compiled = compile_constraints([rule], Rows(Y, np.array([0, 1]), None, {"c": column}))
    assert [str(group) for group in compiled.groups[0]] == [
        "c=bar", r"c='cafe\u0301'", r"c='caf\xe9'",
    ]  # fmt: skip


def test_groups_that_differ_in_case_are_warned_of():
    """They differ where they are shown."""
    column = np.array(["M", "m", "F"] * 20)
    rule = gc.each(gc.selection_rate(), by="c", min_group_size=1) <= 0.9
    with warns_of("'M' and 'm'"):
        _, compiled = compile_constraints([rule], Rows(Y, np.array([0, 1]), None, {"c": column}))
    assert [str(group) for group in compiled.groups[0]] == ["c=F", "c=M", "c=m"]
    # A constraint of one of them is about some of the rows that were meant.
    with warns_of("'M' and 'm'"):
        compile_constraints(
            [gc.fpr(on={"c": "M"}) <= 0.9], Rows(Y, np.array([0, 1]), None, {"c": column})
        )


@pytest.mark.parametrize("make", [gc.ConstrainedXGBClassifier, gc.ConstrainedLGBMClassifier])
@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
def test_a_fit_and_an_audit_tell_of_similar_groups_once(make, measure_on):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(400, 3)), np.array(["M", "M ", "F", "F"] * 100, dtype=object)
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    rules = [gc.gap(rate, by="sex") <= 0.9 for rate in (gc.fpr(), gc.tpr())]
    quiet = {"verbosity": 0} if make is gc.ConstrainedXGBClassifier else {"verbose": -1}
    clf = make(constraints=rules, n_estimators=3, n_jobs=1, measure_on=measure_on, **quiet)
    evaluation = {
        "eval_set": [(X[:200], y[:200])],
        "sensitive_features_eval_set": [{"sex": sex[:200]}],
    }
    with warns_of("'M' and 'M '"):
        clf.fit(X, y, sensitive_features={"sex": sex}, **evaluation)
    shown = clf.group_report_["group"].tolist()
    assert shown == ["sex=F", "sex='M'", "sex='M '"] * 2
    with warns_of("'M' and 'M '"):
        found = gc.audit(clf, X, y, rules, sensitive_features={"sex": sex})
    assert found.groups["group"].tolist() == shown


def test_groups_that_would_print_alike_are_quoted():
    column = np.array([0, "0", "a", None, "missing"] * 12, dtype=object)
    columns = {"c": column, "d": column}
    for by in (["c"], ["c", "d"]):
        rule = gc.each(gc.selection_rate(), by=by, min_group_size=1) <= 0.5
        with warns_of("0 and '0'", times=len(by)):
            _, compiled = compile_constraints([rule], Rows(Y, np.array([0, 1]), None, columns))
        expected = ["c=0", "c='0'", "c=a", "c='missing'", "c=missing"]
        if len(by) == 2:
            expected = [f"{name}, d{name[1:]}" for name in expected]
        assert [str(group) for group in compiled.groups[0]] == expected
        assert compiled.rows[1] == f"selection_rate[{expected[1]}] <= 0.5"


def test_missing_texts_in_lists_are_missing():
    """numpy makes the text "nan" of them."""
    sex = SEX.tolist()
    sex[3] = sex[8] = np.nan
    for given in ({"sex": sex}, sex):
        columns = columns_of(given, N)
        assert groups_of(columns) == pytest.approx({(k,): v for k, v in expected_of(sex).items()})
        with pytest.raises(ValueError, match="has missing values"):
            groups_of(columns, missing="raise")
    groups = ["a"] * (N // 2) + ["b"] * (N // 2 - 1) + [np.nan]
    with pytest.raises(ValueError, match="groups has 1 missing values"):
        as_groups(groups, N, N)


@pytest.mark.parametrize("form", ["list", "Int64", "category", "pyarrow", "dictionary"])
def test_whole_numbers_beside_missing_values_stay_whole(form):
    """As floating-point numbers two of them would be one group, and print as 1.0."""
    pyarrow = pytest.importorskip("pyarrow") if form in ("pyarrow", "dictionary") else None
    values = [2**60, 2**60 + 1, None, 1] * (N // 4)
    given = {
        "list": lambda: [np.nan if v is None else v for v in values],
        "Int64": lambda: pd.array(values, dtype="Int64"),
        "category": lambda: pd.Categorical(values, categories=[1, 2**60, 2**60 + 1]),
        "pyarrow": lambda: pyarrow.array(values),
        "dictionary": lambda: pyarrow.array(values).dictionary_encode(),
    }[form]()
    for columns in (columns_of(given, N), columns_of({"c": given}, N)):
        found = groups_of(columns)
        assert [name for (name,) in found] == [1, 2**60, 2**60 + 1, MISSING]
        assert [type(name) for (name,) in found][:3] == [int] * 3
        assert found[(2**60,)] == pytest.approx(PREDICTED[::4].mean())


def test_what_numpy_masks_is_missing():
    """Not what lies below the mask."""
    hidden = np.ma.array([0, 1, 1, 0], mask=[0, 0, 1, 0])
    with pytest.raises(ValueError, match=r"y has 1 missing values .*, the first in row 2"):
        check_labels(hidden)
    with pytest.raises(ValueError, match=r"sample_weight must be finite .* nan in row 2"):
        check_weight(hidden, 4)
    with pytest.raises(ValueError, match=r"groups has 1 missing values .*, the first in row 2"):
        as_groups(hidden, 4, 4)
    with pytest.raises(TypeError, match="a one-dimensional boolean mask of the training rows"):
        gc.selection_rate(on=hidden == 1)
    seen = np.ma.array([0, 1, 1, 0])
    assert check_labels(seen)[1].tolist() == [0, 1, 1, 0]
    assert check_weight(seen, 4).tolist() == [0, 1, 1, 0]
    assert gc.selection_rate(on=seen == 1) == gc.selection_rate(on=seen.data == 1)


def test_many_columns_of_many_values_are_distinguished():
    """Products of their numbers of values leave 64 bits; rows alike in all columns are a group."""
    few = np.repeat(RNG.normal(size=(N // 2, 14)), 2, axis=0)
    columns = {f"c{j}": few[:, j] for j in range(14)}
    found = groups_of(columns)
    assert len(found) == N // 2
    for i in range(0, N, 2):
        assert found[tuple(few[i])] == PREDICTED[i : i + 2].mean()


def test_numbers_of_more_values_than_there_may_be_cells_are_refused_by_name():
    n = 2**18 + 1
    rows = Rows(np.arange(n) % 2, np.array([0, 1]), None, {"age": np.arange(n) / 7.0})
    message = "compares 262145 groups by age, more than 262144: cut numbers"
    with pytest.raises(ValueError, match=message):
        compile_constraints([gc.each(gc.fpr(), by="age") <= 0.1], rows)


def test_a_merged_group_has_the_rows_of_all_of_its_parts():
    """Of a sum of rates a group has as many as the rate of fewest: also one put together."""
    n = 240
    group = np.repeat(["a", "b", "c", "d"], [100, 100, 20, 20])
    y = np.where(group == "c", 0, np.where(group == "d", 1, np.arange(n) % 2))
    for of_c in (20, 16):  # the second: some rows of the other label in each
        y[200 + of_c : 220] = 1
        y[240 - (20 - of_c) : 240] = 0
        rows = Rows(y, np.array([0, 1]), None, {"g": group})
        rule = gc.gap(gc.fpr() + gc.fnr(), by="g", min_group_size=30, small_groups="merge") <= 0.1
        with pytest.warns(UserWarning, match="merged into one group") as found:
            _, compiled = compile_constraints([rule], rows)
        assert "left out" not in str(found[0].message)
        assert [(g.name, g.size) for g in compiled.groups[0]] == [
            (("a",), 50), (("b",), 50), (("small groups",), 20),
        ]  # fmt: skip


def test_dates_stay_dates_beside_further_data_sets():
    X, y, _ = problem()
    day = pd.Series(np.where(X[:, 0] > 0, "2020-01-01", "2021-01-01")).astype("datetime64[ns]")
    rules = [
        gc.fpr(on={"day": pd.Timestamp("2020-01-01")}) <= 0.9,
        gc.each(gc.fpr(), by="day") <= 0.9,
    ]
    given = {"sensitive_features": pd.DataFrame({"day": day})}
    alone = fitted(rules, X, y, "lightgbm", **given)
    beside = fitted(rules, X, y, "lightgbm", **given, datasets={"more": X[:50]})
    assert beside.group_report_.group.tolist() == alone.group_report_.group.tolist()
    assert beside.group_report_.rows.tolist() == alone.group_report_.rows.tolist()


def test_missing_values_in_intersections():
    sex = np.where(AGE == 0, None, SEX)
    columns = {"sex": sex, "age": AGE}
    found = groups_of(columns)
    assert set(found) == {(MISSING, 0), *((s, a) for s in "FM" for a in (1, 2))}
    with pytest.raises(ValueError, match="sex, age has missing values"):
        groups_of(columns, missing="raise")
    assert len(groups_of(columns, "age", missing="raise")) == 3


@pytest.mark.parametrize("value", [["F"], {"sex": "F"}, ("F", ["M"])])
def test_values_that_cannot_be_distinguished_are_refused(value):
    column = np.array([*SEX[1:], None], dtype=object)
    column[-1] = value
    expected = f"values of column 'sex' hold {value!r}, a {type(value).__name__}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        groups_of({"sex": column, "age": AGE})


@pytest.mark.parametrize(
    ("given", "name"),
    [
        (pd.Series(SEX, name="sex"), "sex"),
        (pd.Series(SEX), "sensitive_feature_0"),
        (pd.Series(SEX, index=range(7, N + 7), name="sex"), "sex"),
        (pd.Series(SEX, name=5), 5),
        (pd.DataFrame({"sex": SEX}), "sex"),
        ({"sex": SEX}, "sex"),
        ({"sex": list(SEX)}, "sex"),
        ({"sex": pd.Series(SEX)}, "sex"),
        ({"sex": pd.Categorical(SEX)}, "sex"),
        (SEX, "sensitive_feature_0"),
        (list(SEX), "sensitive_feature_0"),
        (SEX[:, None], "sensitive_feature_0"),
        (SEX.astype(object), "sensitive_feature_0"),
        ([[s] for s in SEX], "sensitive_feature_0"),
        (pd.Categorical(SEX), "sensitive_feature_0"),
        (pd.Series(SEX, dtype="string", name="sex"), "sex"),
    ],
)
def test_the_forms_of_one_column(given, name):
    """All give the same groups; without by=, too."""
    columns = columns_of(given, N)
    assert list(columns) == [name]
    expected = {(k,): v for k, v in expected_of(SEX).items()}
    assert list(expected) == [("F",), ("M",)]
    for by in (None, name, [name]):
        assert groups_of(columns, by) == pytest.approx(expected)


@pytest.mark.parametrize(
    "given",
    [
        pd.DataFrame({"sex": SEX, "age": AGE}),
        {"sex": SEX, "age": AGE},
        {"sex": pd.Categorical(SEX), "age": list(AGE)},
    ],
)
def test_intersections_of_several_columns(given):
    """In the order of by=, which is all columns by default."""
    columns = columns_of(given, N)
    frame = pd.DataFrame({"sex": SEX, "age": AGE, "p": PREDICTED})
    expected = frame.groupby(["sex", "age"])["p"].mean().to_dict()
    assert groups_of(columns) == pytest.approx(expected)
    assert groups_of(columns, ["sex", "age"]) == pytest.approx(expected)
    swapped = {(age, sex): v for (sex, age), v in expected.items()}
    assert groups_of(columns, ["age", "sex"]) == pytest.approx(swapped)
    alone = {(k,): v for k, v in frame.groupby("age")["p"].mean().items()}
    assert groups_of(columns, "age") == pytest.approx(alone)


def test_only_intersections_that_occur_are_groups():
    sex = np.array(["F"] * 30 + ["M"] * 30)
    age = np.array([0] * 30 + [1] * 20 + [2] * 10)
    found = groups_of({"sex": sex, "age": age}, ["sex", "age"])
    assert list(found) == [("F", 0), ("M", 1), ("M", 2)]


def test_columns_of_an_array_are_numbered():
    columns = columns_of(np.column_stack([AGE, 7 * (AGE > 0)]), N)
    assert list(columns) == ["sensitive_feature_0", "sensitive_feature_1"]
    assert list(groups_of(columns, "sensitive_feature_1")) == [(0,), (7,)]
    assert columns_of(None, N) == {}
    assert columns_of({}, N) == {}


@pytest.mark.parametrize(
    "given",
    [
        SEX[:-1],
        np.append(SEX, "F"),
        pd.Series(SEX[:-1], name="sex"),
        {"age": AGE, "sex": SEX[:-1]},
        {"sex": SEX[:, None]},
        {"sex": "F"},
        {"sex": []},
        SEX[None, :],
    ],
)
def test_another_number_of_rows_is_refused(given):
    with pytest.raises(ValueError, match=f"but there are {N} rows: give one value per row"):
        columns_of(given, N)


def test_dicts_are_not_split_by_scikit_learn():
    with pytest.raises(ValueError, match="in cross-validation a Series or DataFrame"):
        columns_of({"sex": SEX[:-1]}, N)


def test_two_columns_of_one_name_are_refused():
    twice = pd.DataFrame(np.column_stack([SEX, AGE]), columns=["c", "c"])
    with pytest.raises(ValueError, match="several columns called 'c': rename them"):
        columns_of(twice, N)


@pytest.mark.parametrize("given", [3, np.zeros((N, 1, 1)), "sex"])
def test_what_is_no_table_is_refused(given):
    with pytest.raises(ValueError, match="must have one or two dimensions"):
        columns_of(given, N)


def test_columns_are_found_in_the_features():
    """Sensitive features go first; without a DataFrame there is nothing to find."""
    X = pd.DataFrame({"sex": SEX[::-1], "age": AGE, 3: AGE % 2})
    columns = columns_of({"sex": SEX}, N)
    for given, by, values in ((columns, "sex", SEX), (columns, "age", AGE), ({}, 3, AGE % 2)):
        found = {k: v for (k,), v in groups_of(given, by, [X]).items()}
        assert found == pytest.approx(expected_of(values))
    assert len(groups_of({"sex": SEX}, ["sex", "age"], [X])) == 6
    with pytest.raises(ValueError, match=r"the columns known are \['sex', 'age', 3\]"):
        groups_of(columns, "region", [X])
    with pytest.raises(ValueError, match="column 'age' is neither in sensitive_features nor in X"):
        groups_of(columns, "age", [X.to_numpy()])
    with pytest.raises(ValueError, match="groups are made by no column"):
        groups_of({}, None, [X])
