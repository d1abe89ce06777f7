"""Groups: the forms in which columns may be given, and the groups that they make."""

from __future__ import annotations

import contextlib
import datetime
import re

import numpy as np
import pandas as pd
import pytest
from scipy import sparse

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedLogisticRegression,
    ConstrainedXGBClassifier,
    audit,
    fnr,
    fpr,
)
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.rates import each, error_rate, gap, ratio, selection_rate, tpr
from gbm_constrained.constraints.selectors import MISSING, dataset
from gbm_constrained.data.rows import Rows, columns_of
from gbm_constrained.data.validation import as_groups, check_labels, check_weight
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

N = 60
RNG = np.random.default_rng(0)
SEX = RNG.choice(["F", "M"], N)
AGE = RNG.integers(0, 3, N)
Y = RNG.integers(0, 2, N)
PREDICTED = RNG.integers(0, 2, N)


def groups_of(columns, by=None, features=(), n=N, **options):
    """Groups of a rate, by name, and its value in each."""
    rows = Rows(Y[:n], np.array([0, 1]), None, columns, features)
    rule = each(selection_rate(), by=by, min_group_size=1, **options) <= 0.5
    cells, compiled = compile_constraints([rule], rows)
    margin = np.where(PREDICTED[:n], 1.0, -1.0)
    statistics = Lagrangian(Y[:n], cells, compiled).at(margin).statistics()
    values = compiled.functionals(statistics)
    return dict(zip([g.name for g in compiled.groups[0]], values, strict=True))


def expected_of(column):
    """The same by pandas, rows without a value last."""
    column = pd.Series(column, dtype=object).map(lambda v: "missing" if pd.isna(v) else v)
    found = pd.Series(PREDICTED[: len(column)]).groupby(column.to_numpy()).mean()
    return found.rename({"missing": MISSING}).to_dict()


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
        compiled = compile_constraints([selection_rate(on={"c": time}) <= 0.5], rows)[1]
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
def told_of(values, times=1):
    """One warning of a column, about values that look alike."""
    with pytest.warns(UserWarning, match="has values that look alike") as caught:
        yield
    told = [str(w.message) for w in caught if "look alike" in str(w.message)]
    assert len(told) == times
    assert all(f"groups of their own: {values}. Spell them alike" in text for text in told)


COMPOSED, DECOMPOSED = "caf\N{LATIN SMALL LETTER E WITH ACUTE}", "cafe\N{COMBINING ACUTE ACCENT}"
ALIKE = {
    "space": (["M", "M "], "'M' and 'M '", ["M", "M "]),
    "no-break space": (["M", "M\xa0"], "'M' and 'M\\xa0'", ["M", "M\xa0"]),
    "two spaces": (["a b", "a  b"], "'a  b' and 'a b'", ["a  b", "a b"]),
    "zero width": (["M", "\ufeffM"], "'M' and '\\ufeffM'", ["M", "\ufeffM"]),
    "number and text": ([1, "1"], "1 and '1'", [1, "1"]),
}


@pytest.mark.parametrize("kind", ALIKE)
def test_groups_that_look_alike_are_told_of_and_quoted(kind):
    values, told, ordered = ALIKE[kind]
    column = np.array([*values, "x"] * 20, dtype=object)
    rows = Rows(Y, np.array([0, 1]), None, {"c": column})
    rules = [each(rate, by="c", min_group_size=1) <= 0.9 for rate in (fpr(), error_rate())]
    with told_of(told):
        _, compiled = compile_constraints(rules, rows)
    names = [f"c={v!r}" if isinstance(v, str) else f"c={v}" for v in ordered]
    assert sorted(map(str, compiled.groups[0])) == sorted([*names, "c=x"])


def test_two_forms_of_a_letter_are_shown_in_ascii():
    """In quotes they would look alike as well."""
    column = np.array([COMPOSED, DECOMPOSED, "bar"] * 20, dtype=object)
    rule = each(selection_rate(), by="c", min_group_size=1) <= 0.9
    with told_of(r"'cafe\u0301' and 'caf\xe9'"):
        _, compiled = compile_constraints([rule], Rows(Y, np.array([0, 1]), None, {"c": column}))
    assert [str(group) for group in compiled.groups[0]] == [
        "c=bar", r"c='cafe\u0301'", r"c='caf\xe9'",
    ]  # fmt: skip


def test_groups_that_differ_in_case_are_told_of():
    """They can be told apart where they are shown."""
    column = np.array(["M", "m", "F"] * 20)
    rule = each(selection_rate(), by="c", min_group_size=1) <= 0.9
    with told_of("'M' and 'm'"):
        _, compiled = compile_constraints([rule], Rows(Y, np.array([0, 1]), None, {"c": column}))
    assert [str(group) for group in compiled.groups[0]] == ["c=F", "c=M", "c=m"]
    # A rule of one of them is about some of the rows that were meant.
    with told_of("'M' and 'm'"):
        compile_constraints(
            [fpr(on={"c": "M"}) <= 0.9], Rows(Y, np.array([0, 1]), None, {"c": column})
        )


@pytest.mark.parametrize("make", [ConstrainedXGBClassifier, ConstrainedLGBMClassifier])
@pytest.mark.parametrize("measure_on", ["train", "holdout", "crossfit"])
def test_a_fit_and_an_audit_tell_of_similar_groups_once(make, measure_on):
    rng = np.random.default_rng(0)
    X, sex = rng.normal(size=(400, 3)), np.array(["M", "M ", "F", "F"] * 100, dtype=object)
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    rules = [gap(rate, by="sex") <= 0.9 for rate in (fpr(), tpr())]
    quiet = {"verbosity": 0} if make is ConstrainedXGBClassifier else {"verbose": -1}
    clf = make(constraints=rules, n_estimators=3, n_jobs=1, measure_on=measure_on, **quiet)
    evaluation = {
        "eval_set": [(X[:200], y[:200])],
        "sensitive_features_eval_set": [{"sex": sex[:200]}],
    }
    with told_of("'M' and 'M '"):
        clf.fit(X, y, sensitive_features={"sex": sex}, **evaluation)
    shown = clf.group_report_["group"].tolist()
    assert shown == ["sex=F", "sex='M'", "sex='M '"] * 2
    with told_of("'M' and 'M '"):
        found = audit(clf, X, y, rules, sensitive_features={"sex": sex})
    assert found.groups["group"].tolist() == shown


def test_groups_that_would_print_alike_are_quoted():
    column = np.array([0, "0", "a", None, "missing"] * 12, dtype=object)
    columns = {"c": column, "d": column}
    for by in (["c"], ["c", "d"]):
        rule = each(selection_rate(), by=by, min_group_size=1) <= 0.5
        with told_of("0 and '0'", times=len(by)):
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
    with pytest.raises(ValueError, match=r"y has 1 missing labels .*, the first in row 2"):
        check_labels(hidden)
    with pytest.raises(ValueError, match=r"sample_weight must be finite .* nan in row 2"):
        check_weight(hidden, 4)
    with pytest.raises(ValueError, match=r"groups has 1 missing values .*, the first in row 2"):
        as_groups(hidden, 4, 4)
    with pytest.raises(TypeError, match="a one-dimensional boolean mask of the training rows"):
        selection_rate(on=hidden == 1)
    seen = np.ma.array([0, 1, 1, 0])
    assert check_labels(seen)[1].tolist() == [0, 1, 1, 0]
    assert check_weight(seen, 4).tolist() == [0, 1, 1, 0]
    assert selection_rate(on=seen == 1) == selection_rate(on=seen.data == 1)


def test_many_columns_of_many_values_are_told_apart():
    """Products of their numbers of values leave 64 bits; rows alike in all columns are a group."""
    few = np.repeat(RNG.normal(size=(N // 2, 14)), 2, axis=0)
    columns = {f"c{j}": few[:, j] for j in range(14)}
    found = groups_of(columns)
    assert len(found) == N // 2
    for i in range(0, N, 2):
        assert found[tuple(few[i])] == PREDICTED[i : i + 2].mean()


def test_numbers_of_more_values_than_there_may_be_cells_are_refused_by_name(monkeypatch):
    monkeypatch.setattr("gbm_constrained.problem.compiler.MOST_CELLS", 4 * (N - 1))
    with pytest.raises(ValueError, match="compares 60 groups by age, more than 59: cut numbers"):
        groups_of({"age": RNG.normal(size=N)})


def test_a_merged_group_has_the_rows_of_all_of_its_parts():
    """Of a sum of rates a group has as many as the rate of fewest: also one put together."""
    n = 240
    group = np.repeat(["a", "b", "c", "d"], [100, 100, 20, 20])
    y = np.where(group == "c", 0, np.where(group == "d", 1, np.arange(n) % 2))
    for of_c in (20, 16):  # the second: some rows of the other label in each
        y[200 + of_c : 220] = 1
        y[240 - (20 - of_c) : 240] = 0
        rows = Rows(y, np.array([0, 1]), None, {"g": group})
        rule = gap(fpr() + fnr(), by="g", min_group_size=30, small_groups="merge") <= 0.1
        with pytest.warns(UserWarning, match="merged into one group") as told:
            _, compiled = compile_constraints([rule], rows)
        assert "left out" not in str(told[0].message)
        assert [(g.name, g.size) for g in compiled.groups[0]] == [
            (("a",), 50), (("b",), 50), (("small groups",), 20),
        ]  # fmt: skip


def test_dates_stay_dates_beside_further_data_sets():
    X, y, _ = problem()
    day = pd.Series(np.where(X[:, 0] > 0, "2020-01-01", "2021-01-01")).astype("datetime64[ns]")
    rules = [fpr(on={"day": pd.Timestamp("2020-01-01")}) <= 0.9, each(fpr(), by="day") <= 0.9]
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


@pytest.mark.parametrize("value", [["F"], {"sex": "F"}, ("F", ["M"])])
def test_values_that_cannot_be_told_apart_are_refused(value):
    column = np.array([*SEX[1:], None], dtype=object)
    column[-1] = value
    expected = f"values of column 'sex' hold {value!r}, a {type(value).__name__}"
    with pytest.raises(ValueError, match=re.escape(expected)):
        groups_of({"sex": column, "age": AGE})


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
    with pytest.raises(ValueError, match=r"the columns known are \['sex', 'sex', 'age', 3\]"):
        groups_of(columns, "region", [X])
    with pytest.raises(ValueError, match="column 'age' is neither in sensitive_features nor in X"):
        groups_of(columns, "age", [X.to_numpy()])
    with pytest.raises(ValueError, match="groups are made by no column"):
        groups_of({}, None, [X])


# --- in a fit -------------------------------------------------------------------------------


def problem(n=600):
    rng = np.random.default_rng(0)
    sex = rng.choice(["F", "M"], n)
    X = rng.normal(size=(n, 3)) + (sex == "F")[:, None]
    return X, (X[:, 0] + rng.normal(size=n) > 0.5).astype(int), sex


OPTIONS = (
    "measure_on", "holdout_fraction", "iterate", "guarantee", "early_stopping_on",
    "early_stopping_rounds",
)  # fmt: skip


def fitted(rules, X, y, booster="lightgbm", **given):
    if booster == "lightgbm":
        model = ConstrainedLGBMClassifier(
            constraints=rules, n_estimators=40, n_jobs=1, num_leaves=7, verbose=-1
        )
    else:
        model = ConstrainedXGBClassifier(
            constraints=rules, n_estimators=40, n_jobs=1, max_depth=2, enable_categorical=True
        )
        given |= {"verbose": False}
    options = {name: given.pop(name) for name in [*given] if name in OPTIONS}
    return model.set_params(**options).fit(X, y, **given)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_every_form_gives_the_same_model(booster):
    X, y, sex = problem()
    rules = [gap(selection_rate()) <= 0.05, each(error_rate()) <= 0.4]
    forms = [sex, list(sex), pd.Series(sex), sex[:, None], {"s": sex}, pd.Categorical(sex)]
    scores = [
        fitted(rules, X, y, booster, sensitive_features=form).predict_proba(X) for form in forms
    ]
    for other in scores[1:]:
        np.testing.assert_array_equal(scores[0], other)
    free = fitted([], X, y, booster).predict(X)
    apart = [
        abs(p[sex == "F"].mean() - p[sex == "M"].mean()) for p in (free, scores[0][:, 1] > 0.5)
    ]
    assert apart[1] < apart[0] - 0.05


def test_a_feature_is_as_good_as_a_sensitive_feature():
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=pd.Categorical(sex))
    rules = [gap(selection_rate(), by="sex") <= 0.05]
    inside = fitted(rules, frame, y)
    outside = fitted(rules, frame, y, sensitive_features=pd.Series(sex, name="sex"))
    np.testing.assert_array_equal(inside.predict_proba(frame), outside.predict_proba(frame))
    report = inside.group_report_
    assert report.group.tolist() == ["sex=F", "sex=M"]
    assert report.rows.tolist() == [(sex == "F").sum(), (sex == "M").sum()]
    chosen = inside.predict(frame)
    np.testing.assert_allclose(report.train, [chosen[sex == s].mean() for s in "FM"], atol=1e-12)


def test_evaluation_rows_without_groups_report_none():
    X, y, sex = problem()
    model = fitted(
        [gap(selection_rate()) <= 0.05], X[200:], y[200:], sensitive_features=sex[200:],
        measure_on="train", eval_set=[(X[:200], y[:200])],
    )  # fmt: skip
    assert model.constraint_report_["rows"].tolist() == ["training rows"]
    assert model.constraint_report_.held_out.isna().all()
    assert model.constraint_report_.satisfied.isna().all()


# --- groups of evaluation sets that the training rows do not have -------------------------------

NEW_GROUPS = "eval_set\\[0\\] has groups that a constraint has no training rows of: "


def with_new_groups(values=("X",), n=200):
    """A problem whose first rows, the evaluation set, have groups of their own."""
    X, y, sex = problem()
    held = sex[:n].astype(object)
    for k, value in enumerate(values):
        held[np.arange(n) % (3 + k) == 0] = value
    return X, y, sex, held


def fitted_beside(rule, held, booster, n=200, **options):
    X, y, sex = problem()
    return fitted(
        [rule] if not isinstance(rule, list) else rule, X[n:], y[n:], booster,
        sensitive_features={"sex": sex[n:]}, eval_set=[(X[:n], y[:n])],
        sensitive_features_eval_set=[{"sex": held}], **options,
    )  # fmt: skip


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
@pytest.mark.parametrize("measure_on", ["train", "crossfit"])
@pytest.mark.parametrize(
    "rule",
    [
        gap(selection_rate(), by="sex") <= 0.05,
        gap(tpr(), by="sex", reference=overall, min_group_size=1) <= 0.1,
        gap(fpr(), by="sex", reference="F", min_group_size=1) <= 0.1,
        ratio(selection_rate(), by="sex") >= 0.8,
        ratio(selection_rate(), by="sex", reference="F") >= 0.8,
        each(selection_rate(), by="sex") <= 0.9,
    ],
    ids=str,
)
def test_new_groups_of_an_evaluation_set_are_reported_as_audit_does(booster, measure_on, rule):
    """The report said "satisfied" of the known groups alone."""
    X, y, _, held = with_new_groups(("X", None))
    with pytest.warns(UserWarning, match=NEW_GROUPS) as told:
        model = fitted_beside(rule, held, booster, measure_on=measure_on)
    assert len([w for w in told if re.match(NEW_GROUPS, str(w.message))]) == 1
    found = audit(model, X[:200], y[:200], rule, sensitive_features={"sex": held})
    report = model.constraint_report_.iloc[0]
    assert report["rows"] == "eval_set[0]"
    expected = found.frame.iloc[0]
    for column in ("held_out", "low", "high"):
        name = {"held_out": "value"}.get(column, column)
        assert report[column] == pytest.approx(expected[name], abs=1e-12), column
    assert report.satisfied == expected.satisfied
    groups = model.group_report_.set_index("group")
    rates = found.groups.set_index("group")["rate"]
    assert set(groups.index) == set(rates.index)
    pd.testing.assert_series_equal(
        groups["held_out"].sort_index(), rates.sort_index(), check_names=False
    )
    new = groups.loc[~groups.index.isin(["sex=F", "sex=M"])]
    assert len(new) == 2
    assert (new["rows"] == 0).all()
    assert new["train"].isna().all()
    assert model.history_[f"held_out[{rule}]"].iloc[-1] == pytest.approx(report.held_out)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_rules_of_known_groups_stay_beside_rules_with_new_ones(booster):
    X, y, _, held = with_new_groups()
    rules = [
        gap(fpr(), by="sex", min_group_size=1) <= 0.1,
        fpr(on={"sex": "F"}) <= 0.5,
        fnr() <= 0.5,
    ]
    model = fitted_beside(rules, held, booster)
    found = audit(model, X[:200], y[:200], rules, sensitive_features={"sex": held})
    np.testing.assert_allclose(model.constraint_report_.held_out, found.frame.value, atol=1e-12)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_a_mean_of_prefixes_is_reported_on_new_groups(booster):
    *_, held = with_new_groups()
    rule = gap(selection_rate(), by="sex") <= 0.02
    model = fitted_beside(rule, held, booster, iterate="randomized")
    groups = model.group_report_.set_index("group").held_out
    assert groups.index.tolist() == ["sex=F", "sex=M", "sex=X"]
    assert model.constraint_report_.held_out[0] == pytest.approx(groups.max() - groups.min())
    assert model.constraint_report_["rows"][0] == "eval_set[0]"


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_small_new_groups_are_left_out_where_that_is_asked_for(booster):
    *_, held = with_new_groups(())
    held[:5] = "X"
    rule = gap(selection_rate(), by="sex", small_groups="drop") <= 0.05
    with pytest.warns(UserWarning, match=r"eval_set\[0\], gap.*sex=X \(5\)\. They are left out"):
        model = fitted_beside(rule, held, booster)
    assert model.group_report_.group.tolist() == ["sex=F", "sex=M"]


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}", "ignore:.*fewer than min_group_size")
def test_small_new_groups_join_the_others_where_that_is_asked_for(booster):
    X, y, sex, held = with_new_groups(("X",), 200)
    rule = gap(selection_rate(), by="sex", min_group_size=70, small_groups="merge") <= 0.05
    groups = fitted_beside(rule, held, booster).group_report_
    assert groups.group.tolist() == ["sex=F", "sex=M", "sex=small groups"]
    held[0] = None
    groups = fitted_beside(rule, held, booster).group_report_
    assert groups.group.tolist() == ["sex=F", "sex=M", "sex=small groups"]
    few = sex.astype(object)
    few[300:330] = "Y"
    model = fitted(
        [rule], X[200:], y[200:], booster, sensitive_features={"sex": few[200:]},
        eval_set=[(X[:200], y[:200])], sensitive_features_eval_set=[{"sex": held}],
    )  # fmt: skip
    groups = model.group_report_.set_index("group")
    chosen = model.predict(X[:200])[~np.isin(held, ["F", "M"])].mean()
    assert groups.held_out["sex=small groups"] == pytest.approx(chosen)
    assert groups["rows"]["sex=small groups"] == 30


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_missing_groups_of_an_evaluation_set_are_refused_where_missing_is(booster):
    *_, held = with_new_groups((None,))
    rule = gap(selection_rate(), by="sex", missing="raise") <= 0.05
    with pytest.raises(ValueError, match=r"eval_set\[0\]: gap.*sex has missing values: fill"):
        fitted_beside(rule, held, booster)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_multipliers_are_not_moved_by_groups_that_training_rows_lack(booster):
    *_, held = with_new_groups()
    rule = gap(selection_rate(), by="sex") <= 0.05
    with (
        pytest.raises(ValueError, match=r"'holdout' moves.*of: sex=X \(67 rows\)\. Put rows of"),
        pytest.warns(UserWarning, match=NEW_GROUPS),
    ):
        fitted_beside(rule, held, booster, measure_on="holdout")
    with pytest.warns(UserWarning, match=NEW_GROUPS):
        fitted_beside(rule, held, booster, measure_on="holdout", holdout_fraction=0.3)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
@pytest.mark.filterwarnings(f"ignore:{NEW_GROUPS}")
def test_early_stopping_looks_at_new_groups(booster):
    """A round meets the rules only if the new group does too."""
    X, y, _, held = with_new_groups()
    held = np.where(X[:200, 0] > 0, "X", held)
    rule = gap(selection_rate(), by="sex", min_group_size=1) <= 0.05
    stop = {"early_stopping_on": "constraints", "early_stopping_rounds": 3}
    model = fitted_beside(rule, held, booster, measure_on="train", **stop)
    found = audit(model, X[:200], y[:200], rule, sensitive_features={"sex": held})
    assert model.constraint_report_.held_out[0] == pytest.approx(found.frame.value[0], abs=1e-12)
    sex = problem()[2]
    with pytest.raises(ValueError, match="cannot be measured"):
        fitted(
            [rule], X[200:], y[200:], booster, sensitive_features={"sex": sex[200:]},
            eval_set=[(X[:200], y[:200])], **stop,
        )  # fmt: skip


@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
def test_a_guarantee_is_refused_where_all_rows_of_a_group_are_set_aside(guarantee, monkeypatch):
    """The certificate was about the other groups, in silence."""
    X, y, sex = problem()
    sex = sex.astype(object)
    sex[:40] = "X"

    def parts(self, rows, *given):
        return [np.arange(200), np.arange(200, rows.size)]

    monkeypatch.setattr("gbm_constrained.training.fit.ConstrainedFit._parts", parts)
    rule = each(selection_rate(), by="sex") <= 0.9
    with pytest.raises(ValueError, match=r"sets aside all rows of sex=X: .* Give more rows"):
        fitted([rule], X, y, sensitive_features={"sex": sex}, guarantee=guarantee)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_new_groups_of_further_data_sets_take_part(booster):
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(float))
    further = frame[:120].assign(sex=np.repeat([0.0, 2.0, np.nan], 40))
    rule = gap(selection_rate(on=dataset("mon")), by="sex", small_groups="drop") <= 0.1
    with pytest.warns(UserWarning, match=r"sex=1\.0 \(0\)\. They are left out"):
        model = fitted([rule], frame, y, booster, datasets={"mon": further})
    chosen = model.predict(further).reshape(3, 40).mean(axis=1)
    groups = model.group_report_
    assert groups.group.tolist() == ["sex=0.0", "sex=2.0", "sex=missing"]
    np.testing.assert_allclose(groups.train, chosen, atol=1e-12)
    rule = gap(selection_rate(on=dataset("mon")), by="sex", missing="raise") <= 0.1
    with pytest.raises(ValueError, match="sex has missing values"):
        fitted([rule], frame, y, booster, datasets={"mon": further})


def test_numbers_and_texts_that_print_alike_are_quoted_in_the_report():
    X, y, sex = problem()
    codes = np.where(sex == "F", "0", "1")
    held = np.array([0, "0", "1"] * 67, dtype=object)[:200]
    with pytest.warns(UserWarning, match=NEW_GROUPS + "c=0"):
        model = fitted(
            [gap(selection_rate(), by="c") <= 0.1], X[200:], y[200:],
            sensitive_features={"c": codes[200:]}, eval_set=[(X[:200], y[:200])],
            sensitive_features_eval_set=[{"c": held}],
        )  # fmt: skip
    assert model.group_report_.group.tolist() == ["c='0'", "c=1", "c=0"]


def test_many_small_groups_are_told_of_once_and_listed():
    """Five names, the number of all, and the list in `small_groups_`."""
    rng = np.random.default_rng(0)
    X, y, region = rng.normal(size=(800, 3)), rng.integers(0, 2, 800), rng.integers(0, 60, 800)
    rules = [gap(rate, by="region") <= 0.9 for rate in (fpr(), tpr())]
    with pytest.warns(UserWarning, match="fewer than min_group_size") as told:
        model = fitted(rules, X, y, sensitive_features={"region": region}, measure_on="train")
    (text,) = [str(w.message) for w in told if "min_group_size" in str(w.message)]
    assert text.startswith(f"{rules[0]}, {rules[1]}: some groups have fewer")
    assert text.count("region=") == 5
    assert "and 55 more, 60 groups in all. They are kept" in text
    assert text.endswith("small_groups_ lists all of them. [GC204]")
    assert len(text) < 500
    listed = model.small_groups_
    sizes = pd.Series(region[y == 1]).value_counts()
    of_tpr = listed[listed.constraint == str(rules[1])].set_index("group")["rows"]
    assert {int(g.removeprefix("region=")): n for g, n in of_tpr.items()} == sizes.to_dict()
    assert listed.treatment.unique().tolist() == ["kept"]
    model = ConstrainedLogisticRegression(constraints=rules)
    with pytest.warns(UserWarning, match="fewer than min_group_size") as told:
        model.fit(X, y, sensitive_features={"region": region})
    assert len([w for w in told if "min_group_size" in str(w.message)]) == 1
    assert len(model.small_groups_) == len(listed)


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_rows_of_data_sets_have_groups_from_columns_of_the_features_only(booster):
    X, y, sex = problem()
    monitor = {"mon": X[:100]}
    for rule in (
        gap(selection_rate(on=dataset("mon")), by="sex") <= 0.1,
        gap(selection_rate(on=dataset("mon"))) <= 0.1,
        each(selection_rate(on=dataset("mon")), by="sex") <= 0.1,
        selection_rate(on=(dataset("mon"), {"sex": "F"})) <= 0.1,
    ):
        with pytest.raises(ValueError, match="as sensitive_features are of the training rows"):
            fitted([rule], X, y, booster, sensitive_features={"sex": sex}, datasets=monitor)
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(int))
    rule = gap(selection_rate(on=dataset("mon")), by="sex") <= 0.1
    model = fitted([rule], frame, y, booster, datasets={"mon": frame[:100]})
    sizes = [(sex[:100] == s).sum() for s in "MF"]
    assert model.group_report_.rows.tolist() == sizes


@pytest.mark.parametrize("guarantee", ["expected", "high_probability"])
@pytest.mark.parametrize(
    "rule",
    [
        gap(selection_rate(on=dataset("mon")), by="sex") <= 0.6,
        selection_rate(on=(dataset("mon"), {"sex": 0})) <= 0.6,
    ],
)
def test_rows_of_data_sets_have_groups_where_some_are_set_aside(rule, guarantee):
    X, y, sex = problem()
    frame = pd.DataFrame(X, columns=list("abc")).assign(sex=(sex == "F").astype(int))
    model = ConstrainedLGBMClassifier(
        constraints=[rule], guarantee=guarantee, calibration_fraction=0.5,
        n_estimators=5, n_jobs=1, num_leaves=7, verbose=-1,
    ).fit(frame, y, datasets={"mon": frame[:300]})  # fmt: skip
    assert model.constraint_report_.rows.tolist() == ["certification"]
    assert model.constraint_report_.satisfied.all()


def test_numbers_that_are_no_groups_are_refused():
    """A gap by income would have a row for each pair of incomes."""
    income = np.random.default_rng(0).normal(size=800)
    y = np.arange(800) % 2
    clf = ConstrainedLGBMClassifier(n_estimators=2, verbose=-1)
    for rule in (gap(selection_rate(), by="income"), each(selection_rate(), by="income")):
        clf.set_params(constraints=rule <= 0.1)
        with (
            pytest.raises(ValueError, match=r"800 groups by income, more than 500.*pandas\.cut"),
            pytest.warns(UserWarning, match=r"and 795 more, 800 groups in all\. They are kept"),
        ):
            clf.fit(np.zeros((800, 1)), y, sensitive_features={"income": income})


@pytest.mark.parametrize("booster", ["lightgbm", "xgboost"])
def test_a_fit_names_what_is_wrong_with_groups(booster):
    X, y, sex = problem()
    with pytest.raises(ValueError, match="groups are made by no column"):
        fitted([gap(tpr()) <= 0.1], X, y, booster)
    with pytest.raises(ValueError, match="column 'age' is neither"):
        fitted([gap(tpr(), by="age") <= 0.1], X, y, booster, sensitive_features=sex)
    with pytest.raises(ValueError, match="give one value per row"):
        fitted([gap(tpr()) <= 0.1], X, y, booster, sensitive_features=sex[:-1])
    with pytest.raises(ValueError, match=r"1 is left \(s=a\): at least 2 are needed"):
        fitted([gap(tpr()) <= 0.1], X, y, booster, sensitive_features={"s": ["a"] * len(y)})
    with pytest.raises(ValueError, match="column 'sex' is neither"):
        fitted([gap(tpr(), by="sex") <= 0.1], sparse.csr_array(X), y, booster)
