"""JSON of constraints, reports and parameters: exact both ways, and ValueError otherwise."""

from __future__ import annotations

import json
import math
from datetime import date, datetime, timedelta, timezone
from decimal import Decimal

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, reject, settings
from hypothesis import strategies as st
from hypothesis.extra import numpy as hnp
from sklearn.dummy import DummyClassifier

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.fit.model_note import dumps, loads

floats = st.floats(allow_nan=False)
labels = st.one_of(
    st.integers(), st.text(), st.booleans(), floats, st.binary(), st.dates(),
    st.tuples(st.integers(), st.text()), hnp.arrays(st.sampled_from(["i1", "f4", "U5", "?"]), ()),
)  # fmt: skip
labels = labels.map(lambda v: v[()] if isinstance(v, np.ndarray) else v)
labels = labels.filter(lambda v: v == v)
names = st.one_of(st.text(), st.integers(), st.tuples(st.text(), st.text()))
selectors = st.one_of(
    labels.map(gc.label),
    st.text().map(gc.dataset),
    st.dictionaries(names, st.none() | labels, min_size=1, max_size=2),
    hnp.arrays(bool, st.integers(1, 20)),
)
where = st.one_of(st.none(), selectors, st.tuples(selectors, selectors))
models = st.one_of(
    st.text(), st.lists(st.integers(0, 3), min_size=1), st.lists(st.text(), min_size=1)
)


@st.composite
def rates(draw):
    on = draw(where)
    of_class = st.sampled_from([gc.selection_rate, gc.tpr, gc.recall, gc.fnr, gc.fpr, gc.tnr])
    of_all = st.sampled_from([gc.error_rate, gc.accuracy, gc.log_loss])
    kind = draw(st.sampled_from(["class", "all", "confusion", "other", "sum"]))
    if kind == "class":
        return draw(of_class)(draw(st.one_of(st.none(), labels)), on=on)
    if kind == "all":
        return draw(of_all)(on=on)
    if kind == "confusion":
        normalize = draw(st.sampled_from(["true", "all"]))
        return gc.confusion(draw(labels), draw(labels), normalize=normalize, on=on)
    if kind == "other":
        other = draw(models)
        made = [gc.churn(to=other, on=on), gc.wins(over=other), gc.losses(to=other, on=on)]
        return draw(st.sampled_from(made))
    factor = draw(st.floats(-3, 3))
    return factor * draw(of_class)(on=on) - draw(of_all)() + draw(st.floats(-1, 1))


@st.composite
def constraints(draw):
    rate = draw(rates())
    groups = {
        "by": draw(st.one_of(st.none(), names, st.lists(st.text(), min_size=1, max_size=3))),
        "missing": draw(st.sampled_from(["group", "raise"])),
        "min_group_size": draw(st.one_of(st.integers(1, 99), st.integers(1, 99).map(np.int64))),
        "small_groups": draw(st.sampled_from(["keep", "merge", "drop"])),
    }
    reference = draw(st.one_of(st.none(), st.just(gc.overall), st.just(np.nan), labels))
    kind = draw(st.sampled_from(["rate", "each", "gap", "ratio", "quotient"]))
    sense = draw(st.sampled_from(["<=", ">="]))
    try:
        if kind == "each":
            rate = gc.each(rate, **groups)
        elif kind == "gap":
            rate, sense = gc.gap(rate, reference=reference, **groups), "<="
        elif kind == "ratio":
            slack = draw(st.floats(0, 1))
            rate, sense = gc.ratio(rate, reference=reference, slack=slack, **groups), ">="
        elif kind == "quotient":
            of_class = draw(st.sampled_from([gc.precision, gc.f1]))
            rate = draw(st.sampled_from([of_class(draw(labels)), rate / rate]))
        return gc.Constraint(rate, sense, draw(st.floats(0, 1)))
    except ValueError:  # A bound is out of range, or a divisor may be negative.
        reject()


@settings(max_examples=60, deadline=None)
@given(constraint=constraints())
def test_a_constraint_is_read_as_it_was_written(constraint):
    text = dumps(constraint)
    read = loads(text)
    assert read == constraint
    assert hash(read) == hash(constraint)
    assert str(read) == str(constraint)
    assert dumps(read) == text  # 1, 1.0 and True are equal, and their texts are not.


PRESETS = [
    presets.NeymanPearson({0: 0.05, "b": 0.1}),
    presets.EqualizedOdds(difference_bound=0.02, by=["sex", "race"]),
    presets.FourFifths(by="race"),
    presets.BoundedGroupLoss(upper_bound=0.3, by="age"),
    presets.CrossAUC(0.05, by="race"),
    presets.AverageEqualityGap("yes", by="sex"),
    presets.BackgroundSubgroupAUC(0.05, by="sex", background="others"),
]


@pytest.mark.parametrize("given", PRESETS)
def test_presets_are_read_as_they_were_written(given):
    assert loads(dumps(given)) == given


def test_constraints_are_written_as_texts_where_they_have_one():
    text = "gap(tpr('yes'), by=['a', 'b']) <= 0.1"
    expected = f'{{"$":"Constraint","text":"{text}"}}'
    assert dumps(gc.gap(gc.tpr("yes"), by=["a", "b"]) <= 0.1) == expected
    mask = gc.fnr(on=np.array([True, False])) <= 0.1
    assert json.loads(dumps(mask)).keys() == {
        "$", "expression", "sense", "bound", "priority", "violation_weight"
    }  # fmt: skip


def test_constraints_of_fairlearn_are_written_as_ours():
    reductions = pytest.importorskip("fairlearn.reductions", reason="fairlearn is not installed")
    moments = [reductions.DemographicParity(difference_bound=0.02), gc.fnr() <= 0.1]
    parity = gc.gap(gc.selection_rate(), reference=gc.overall) <= 0.02
    assert loads(dumps(moments)) == [(parity,), gc.fnr() <= 0.1]


def test_a_deployed_model_is_kept_by_name_only():
    X, y = np.arange(40.0)[:, None], np.arange(40) % 2
    model = DummyClassifier(strategy="most_frequent").fit(X, y)
    written = [gc.churn(to=model) <= 0.1, gc.wins(over=model) / gc.losses(to=model) >= 2]
    read = loads(dumps(written))
    assert str(read) == str(written)
    assert repr(read[0].terms[0].event) == repr(written[0].terms[0].event)
    assert read != written  # There is no model in what is read.
    again = loads(dumps(read))
    assert again == read
    assert list(map(hash, again)) == list(map(hash, read))
    for constraint in read:
        with pytest.raises(ValueError, match=r"asks a DummyClassifier for its decisions, and"):
            gc.ConstrainedLogisticRegression(constraints=[constraint]).fit(X, y)


def assert_same(a, b):
    """Equal in value and type, down to the last bit, with NaN equal to NaN."""
    assert type(a) is type(b)
    if isinstance(a, (list, tuple)):
        assert len(a) == len(b)
        for item, other in zip(a, b, strict=True):
            assert_same(item, other)
    elif isinstance(a, dict):
        assert_same(list(a.items()), list(b.items()))
    elif isinstance(a, np.ndarray) and a.dtype != object:
        assert a.dtype == b.dtype
        assert a.shape == b.shape
        np.testing.assert_array_equal(a, b)
        if a.dtype.kind == "f":
            np.testing.assert_array_equal(np.signbit(a), np.signbit(b))
    elif isinstance(a, np.ndarray):
        assert b.dtype == object
        assert_same(a.tolist(), b.tolist())
    elif isinstance(a, (float, np.floating, np.datetime64, np.timedelta64)):
        assert repr(a) == repr(b)
    elif isinstance(a, (pd.DataFrame, pd.Series, pd.Index)):
        check = f"assert_{type(a).__name__.lower()}_equal".replace("dataframe", "frame")
        check = "assert_index_equal" if isinstance(a, pd.Index) else check
        getattr(pd.testing, check)(a, b, check_exact=True)
    else:
        assert a is b or a == b


ARRAYS = st.sampled_from(["?", "i1", "u8", ">i4", "f2", "f4", "f8", "U3", "S3", "M8[ns]", "m8[s]"])
arrays = hnp.arrays(ARRAYS, hnp.array_shapes(min_dims=0, max_dims=2, min_side=0, max_side=4))
leaves = st.one_of(
    st.none(), st.booleans(), st.integers(), st.floats(), st.text(), st.binary(), st.dates(),
    st.datetimes(), st.timedeltas(), st.decimals(allow_nan=False), arrays,
    arrays.filter(lambda a: a.size).map(lambda a: a.ravel()[0]),
)  # fmt: skip
values = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, max_size=4),
        st.lists(inner, max_size=4).map(tuple),
        st.dictionaries(st.text(), inner, max_size=4),
        st.dictionaries(st.one_of(st.integers(), st.text(), st.binary()), inner, max_size=4),
        st.lists(inner, max_size=3).map(lambda v: pd.Series(v, dtype=object).to_numpy()),
    ),
    max_leaves=10,
)


@settings(max_examples=60, deadline=None)
@given(value=values)
def test_a_value_is_read_as_it_was_written(value):
    text = dumps(value)
    assert text.isascii()
    assert "\n" not in text
    assert_same(loads(text), value)


@pytest.mark.parametrize(
    "value",
    [-0.0, 5e-324, 0.1 + 0.2, math.pi, np.float32(0.1), np.nan, np.inf, 2**80, {"$": "tuple"},
     np.array(-np.nan),
     {1: "a", "1": "b"}, pd.NA, pd.NaT, pd.Timestamp("2026-01-02T03:04:05.000000006"),
     pd.Timedelta(1, "ns"), pd.Interval(0.0, 1.5, closed="left"), Decimal("0.10"),
     datetime(2026, 1, 2, tzinfo=timezone(timedelta(hours=2))), date(2026, 1, 2), "\ud800",
     np.str_("a"), np.bool_(True), np.datetime64("NaT", "D"), np.timedelta64(3, "s")],
)  # fmt: skip
def test_scalars_keep_their_type_and_last_bit(value):
    assert_same(loads(dumps(value)), value)


TABLES = {
    "numbers": pd.DataFrame({"a": [0.1, np.nan, -np.inf], "b": [1, 2, 3]}),
    "texts": pd.DataFrame({"a": ["x", None, "é"], "b": pd.array(["x", pd.NA, ""], "string")}),
    "nullable": pd.DataFrame({"a": pd.array([True, pd.NA], "boolean"),
                              "b": pd.array([1, pd.NA], "Int8")}),
    "categories": pd.DataFrame({"a": pd.Categorical(["u", None, "v"], ["v", "u"], ordered=True),
                                "b": pd.Categorical([3, 1, 3])}),
    "objects": pd.DataFrame({"a": pd.Series([1, "x", None, (1, 2)], dtype=object)}),
    "no rows": pd.DataFrame([], columns=["a", "b"]),
    "no columns": pd.DataFrame(index=[1, 2]),
    "odd names": pd.DataFrame([[1, 2.5]], columns=pd.Index([3, "x"], name="c"), index=["r"]),
    "same names": pd.DataFrame([[1, 2.5]], columns=["a", "a"]),
    "series": pd.Series([0.1, 0.2], index=["a - b <= 0.1", "é"], name="multiplier"),
    "times": pd.Series(pd.to_datetime(["2026-01-01", None]), name=("a", 1)),
    "steps": pd.Series([1.0, 2.0], index=pd.RangeIndex(4, 0, -2, name="i")),
}  # fmt: skip


@pytest.mark.parametrize("name", TABLES)
def test_a_table_is_read_as_it_was_written(name):
    assert_same(loads(dumps(TABLES[name])), TABLES[name])


@pytest.mark.parametrize(
    "value",
    [print, object(), 1j, {1, 2}, np.array([1j]), np.zeros(1, "i4,f4"), pd.Series([1j]),
     pd.MultiIndex.from_tuples([(1, 2)]), pd.Series(pd.period_range("2026", periods=1, freq="D")),
     np.random.RandomState(0), [lambda: 0]],
)  # fmt: skip
def test_anything_else_is_refused(value):
    with pytest.raises(TypeError, match="cannot be written as JSON"):
        dumps(value)


def term(**fields):
    return {"$": "Term", "name": "fnr", "event": {"$": "Misclassified"}, **fields}


def rate(**fields):
    items = [{"$": "tuple", "items": [1.0, term(**fields)]}]
    return {"$": "Rate", "terms": {"$": "tuple", "items": items}}


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ({"$": "os.system", "command": "true"}, "There is no 'os.system' that could be read"),
        ({"$": "ConstrainedFit"}, "There is no 'ConstrainedFit'"),
        ({"$": ["tuple"]}, "There is no"),
        ({"$": "tuple"}, "missing 1 required positional argument"),
        ({"$": "tuple", "items": 3}, "not iterable"),
        ({"$": "Label", "value": [1]}, "cannot be the value of a Label"),
        ({"$": "Label", "value": {"$": "tuple", "items": [[1]]}}, "one value of y"),
        ({"$": "Label", "value": 1, "extra": 2}, "Label has no field 'extra'"),
        ({"$": "Label"}, "missing 1 required positional argument"),
        ({"$": "Label", "value": 1, "excluded": 1}, "1 cannot be the excluded of a Label"),
        ({"$": "ReferenceModel", "model": {}}, "ReferenceModel has no field 'model'"),
        ({"$": "ClassPosition", "index": 2}, "2 cannot be the index"),
        ({"$": "ClassPosition", "index": True}, "True cannot be the index"),
        ({"$": "Mask", "packed": "abc", "n_samples": 3}, "cannot be the packed of a Mask"),
        ({"$": "Mask", "packed": {"$": "bytes", "value": "AA=="}, "n_samples": 10**12}, "one bit"),
        (term(rows=[]), "cannot be the rows of a Term"),
        (term(event="guess"), "cannot be the event of a Term"),
        ({"$": "Rate", "terms": "fnr"}, "cannot be the terms of a Rate"),
        ({"$": "Constraint", "expression": rate(), "sense": "<", "bound": 0.1}, "the sense of a"),
        ({"$": "Constraint", "expression": rate(), "sense": "<=", "bound": "0"}, "the bound of a"),
        ({"$": "Constraint", "expression": rate(), "sense": "<=", "bound": 1.5}, "must be a rate"),
        ({"$": "Constraint", "expression": term(), "sense": "<=", "bound": 1}, "the expression"),
        ({"$": "Gap", "rate": rate(), "by": None, "missing": "hide"}, "the missing of a Gap"),
        ({"$": "Constraint", "text": "fpr <= 2"}, "must be a rate"),
        ({"$": "Constraint", "text": "exec(1) <= 2"}, "exec"),
        ({"$": "Constraint", "text": 1}, "must be a string"),
        ({"$": "Categorical", "categories": ["a"], "codes": [7], "ordered": False}, "codes need"),
        ({"$": "Categorical", "categories": ["a"], "codes": [7], "validate": False}, "validate"),
        ({"$": "float", "value": "1e3"}, "KeyError: '1e3'"),
        ({"$": "bytes", "value": "?"}, "padding|base64"),
        ({"$": "ndarray", "dtype": "<f8", "shape": [3], "values": [1.0]}, "cannot reshape"),
        ({"$": "ndarray", "dtype": "<f8", "shape": [1], "values": ["x"]}, "could not convert"),
        ({"$": "ndarray", "dtype": "V9", "shape": [1], "values": [1]}, "cannot be read"),
        ({"$": "ndarray", "dtype": "U9999999", "shape": [1], "values": ["a"]}, "cannot be read"),
        ({"$": "ndarray", "dtype": "i1", "shape": [1], "values": [300]}, "OverflowError"),
        ({"$": "extension", "dtype": "interval", "values": []}, "cannot be read"),
        ({"$": "Series", "values": [1], "index": [0]}, "AttributeError"),
    ],
)
def test_a_forged_text_is_refused(content, message):
    with pytest.raises(ValueError, match=message):
        loads(json.dumps(content))


@pytest.mark.parametrize(
    "text", ["", "{", '{"$":"tuple","items":[1', "[" * 10**5, '{"a":' * 10**5]
)
def test_a_torn_text_is_refused(text):
    with pytest.raises(ValueError, match=r"Expecting|nested too deeply"):
        loads(text)


WHOLE = json.loads(
    dumps(
        {
            "constraints": [
                gc.gap(gc.fpr(on=[True, False]), by="sex") <= 0.1,
                gc.class_error("a") <= 0.2,
            ],
            "table": TABLES["numbers"],
            "more": TABLES["categories"],
            "s": TABLES["series"],
            "scalars": (np.float32(1), np.nan, b"ab", date(2026, 1, 1), pd.Interval(0, 1)),
        }
    )
)
JUNK = st.one_of(
    st.none(), st.booleans(), st.integers(-3, 300), floats, st.text(max_size=3),
    st.sampled_from(["float", "tuple", "Mask", "ndarray", "<f8", "|O", "<U2", "<M8[ns]", "str"]),
    st.lists(st.integers(0, 3), max_size=3), st.just({}), st.just({"$": "NaT", "value": None}),
)  # fmt: skip


def places(node, path=()):
    yield path
    if isinstance(node, (dict, list)):
        for key, child in node.items() if isinstance(node, dict) else enumerate(node):
            yield from places(child, (*path, key))


def changed(node, path, junk):
    if not path:
        return junk
    copy = dict(node) if isinstance(node, dict) else list(node)
    copy[path[0]] = changed(node[path[0]], path[1:], junk)
    return copy


PLACES = list(places(WHOLE))


def test_a_number_that_its_dtype_cannot_hold_is_refused():
    text = dumps(np.float32(1.5))
    assert loads(text) == np.float32(1.5)
    with pytest.raises(ValueError, match="overflow"):
        loads(text.replace("1.5", "3.5e38"))


@pytest.mark.parametrize(
    ("dtype", "message"),
    [(",", "SyntaxError"), ("(1,", "SyntaxError"), ("<f4,<f4", "cannot be read")],
)
def test_a_dtype_that_is_none_is_refused(dtype, message):
    text = json.dumps({**json.loads(dumps(np.zeros(2, np.float32))), "dtype": dtype})
    with pytest.raises(ValueError, match=message):
        loads(text)


@settings(max_examples=100, deadline=None)
@given(path=st.sampled_from(PLACES), junk=JUNK)
def test_a_changed_text_is_read_or_refused_and_nothing_else(path, junk):
    text = json.dumps(changed(WHOLE, path, junk))
    try:
        read = loads(text)
    except ValueError:
        return
    found = read.get("constraints") if isinstance(read, dict) else None
    for constraint in found if type(found) is list else ():
        if isinstance(constraint, gc.Constraint):  # Whatever it says, it is one.
            assert isinstance(hash(constraint), int)
            assert isinstance(str(constraint), str)
