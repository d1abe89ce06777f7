"""Constraints as text: against the objects that Python makes, their way back, and refusals."""

from __future__ import annotations

import math
import re
from dataclasses import fields, is_dataclass

import numpy as np
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from pasted import paste
from sklearn.linear_model import LogisticRegression

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.constraints.base import Rate
from gbm_constrained.constraints.comparisons import Gap, Ratio

F, M = {"sex": "F"}, {"sex": "M"}
TABLE = {
    "fpr <= 0.05": gc.fpr() <= 0.05,
    " fpr() <=.05 ": gc.fpr() <= 0.05,
    "0.05 >= fpr": gc.fpr() <= 0.05,
    "recall >= 95e-2": gc.recall() >= 0.95,
    "error_rate <= 1 - 0.95": gc.error_rate() <= 1 - 0.95,
    "class_error(2) <= 0.03": gc.class_error(2) <= 0.03,
    "class_error(-1) <= 0.03": gc.class_error(-1) <= 0.03,
    "class_error(k=two) <= 0.03": gc.class_error("two") <= 0.03,
    "class_error(true) <= 0.03": gc.class_error(True) <= 0.03,
    'class_error("true") <= 0.03': gc.class_error("true") <= 0.03,
    "class_error('2') <= 0.03": gc.class_error("2") <= 0.03,
    "class_error(2.5) <= 0.03": gc.class_error(2.5) <= 0.03,
    'precision(label="yes") >= 0.9': gc.precision(label="yes") >= 0.9,
    "precision(yes, on={sex: F}) >= 0.9": gc.precision("yes", on=F) >= 0.9,
    "f1(label=None) >= 0.5": gc.f1() >= 0.5,
    "tnr(a) >= 0.9": gc.tnr("a") >= 0.9,
    "tnr >= 0.9": gc.tnr() >= 0.9,
    "confusion(0, 1) <= 0.1": gc.confusion(0, 1) <= 0.1,
    "confusion(0, 1, normalize=pred) <= 0.1": gc.confusion(0, 1, normalize="pred") <= 0.1,
    'confusion(i=a, j="b c", normalize="all", on=label(a)) <= 0.1': (
        gc.confusion("a", "b c", normalize="all", on=gc.label("a")) <= 0.1
    ),
    "log_loss(on=label(1)) <= 0.3": gc.log_loss(on=gc.label(1)) <= 0.3,
    "selection_rate(on=dataset(monitor)) <= 0.1": gc.selection_rate(on=gc.dataset("monitor"))
    <= 0.1,
    "accuracy(on=(label(0), ({a: 1, 'b c': 2.5}, {d: false}))) >= 0.5": (
        gc.accuracy(on=(gc.label(0), {"a": 1, "b c": 2.5, "d": False})) >= 0.5
    ),
    "fpr(on={sex: F}) - fpr(on={sex: M}) <= 0.02": gc.fpr(on=F) - gc.fpr(on=M) <= 0.02,
    "fpr(on={sex: F}) <= fpr(on={sex: M}) + 0.02": gc.fpr(on=F) <= gc.fpr(on=M) + 0.02,
    "0.5 * fnr + 0.5 * fpr <= 0.1": 0.5 * gc.fnr() + 0.5 * gc.fpr() <= 0.1,
    "-(fpr - 2 * fnr) / 4 <= 0.1": -(gc.fpr() - 2 * gc.fnr()) / 4 <= 0.1,
    "1 - fpr - 0.25 >= 0.1": 1 - gc.fpr() - 0.25 >= 0.1,
    "fpr / 4 * 2 <= 0.1": gc.fpr() / 4 * 2 <= 0.1,
    "8 / 4 / 2 * fpr <= 0.1": 8 / 4 / 2 * gc.fpr() <= 0.1,
    "--fpr <= 0.1": gc.fpr() <= 0.1,
    "wins(over=old) / losses(to=old) >= 2": gc.wins(over="old") / gc.losses(to="old") >= 2,
    "(fpr + fnr) / (2 * accuracy) <= 0.3": (gc.fpr() + gc.fnr()) / (2 * gc.accuracy()) <= 0.3,
    'churn(to="old model") <= 0.02': gc.churn(to="old model") <= 0.02,
    "gap(tpr, by=sex) <= 0.02": gc.gap(gc.tpr(), by="sex") <= 0.02,
    "gap(tpr) <= 0.02": gc.gap(gc.tpr()) <= 0.02,
    "gap(selection_rate, by=[sex, race], min_group_size=50) <= 0.1": (
        gc.gap(gc.selection_rate(), by=["sex", "race"], min_group_size=50) <= 0.1
    ),
    "gap(rate=fpr, by=(sex, race), reference=(F, Black)) <= 0.1": (
        gc.gap(gc.fpr(), by=["sex", "race"], reference=("F", "Black")) <= 0.1
    ),
    "gap(fpr, by=sex, reference=(F)) <= 0.1": gc.gap(gc.fpr(), by="sex", reference="F") <= 0.1,
    "gap(fpr, by=sex, reference=(F,)) <= 0.1": gc.gap(gc.fpr(), by="sex", reference=("F",)) <= 0.1,
    "gap(fpr, by=sex, reference=overall) <= 0.1": gc.gap(gc.fpr(), by="sex", reference=gc.overall)
    <= 0.1,
    'gap(fpr, by=sex, reference="overall") <= 0.1': (
        gc.gap(gc.fpr(), by="sex", reference="overall") <= 0.1
    ),
    "ratio(selection_rate, by=sex, slack=0.01) >= 0.8": (
        gc.ratio(gc.selection_rate(), by="sex", slack=0.01) >= 0.8
    ),
    "each(recall(), by=region, missing=raise, small_groups=drop) >= 0.8": (
        gc.each(gc.recall(), by="region", missing="raise", small_groups="drop") >= 0.8
    ),
    "gap(0.5 * fnr + 0.5 * fpr, by=0) <= 0.1": gc.gap(0.5 * gc.fnr() + 0.5 * gc.fpr(), by=0)
    <= 0.1,
    "DemographicParity(difference_bound=0.02, by=sex)": presets.DemographicParity(
        difference_bound=0.02, by="sex"
    ),
    "UtilityParity(fpr, ratio_bound=0.8, ratio_bound_slack=0.1)": presets.UtilityParity(
        gc.fpr(), ratio_bound=0.8, ratio_bound_slack=0.1
    ),
    "TruePositiveRateParity": presets.TruePositiveRateParity(),
    "Churn(old, 0.02, on={sex: F})": presets.Churn("old", 0.02, on=F),
    "EqualOpportunity(0.05, by=[sex])": presets.EqualOpportunity(0.05, by="sex"),
    "FourFifths(by=sex)": presets.FourFifths(by="sex"),
    "BoundedGroupLoss(zero_one, upper_bound=0.1, by=sex)": presets.BoundedGroupLoss(
        "zero_one", upper_bound=0.1, by="sex"
    ),
    "NeymanPearson({0: 0.05})": presets.NeymanPearson({0: 0.05})[0],
    "each(fpr, by=class, missing=raise) <= 0.1": (
        gc.each(gc.fpr(), by="class", missing="raise") <= 0.1
    ),
    "fpr(on={is: lambda, not: None}) <= 0.1": gc.fpr(on={"is": "lambda", "not": None}) <= 0.1,
    "class_error(\ufb01) <= 0.1": gc.class_error("\ufb01") <= 0.1,
    "class_error('\ufb01\x00\\u0000\\'') <= 0.1": gc.class_error("\ufb01\x00\x00'") <= 0.1,
    "(fpr <= 0.1)": gc.fpr() <= 0.1,
}
MEANS = ["accuracy", "error_rate", "fnr", "fpr", "log_loss", "recall", "selection_rate", "tnr"]
for name in (*MEANS, "tpr", "f1", "precision"):
    make = getattr(gc, name)
    TABLE[f"{name}() >= 0.5"] = make() >= 0.5
    TABLE[f"{name}(on=({{sex: F}}, label(1))) >= 0.5"] = make(on=(F, gc.label(1))) >= 0.5
for name in MEANS:
    make = getattr(gc, name)
    TABLE[f"each({name}, by=sex) <= 0.5"] = gc.each(make(), by="sex") <= 0.5
    TABLE[f"ratio({name}, slack=1e-2) >= 0.5"] = gc.ratio(make(), slack=0.01) >= 0.5
    TABLE[f"gap({name}, by=[sex, age], reference=(F, 3)) <= 0.5"] = (
        gc.gap(make(), by=["sex", "age"], reference=("F", 3)) <= 0.5
    )


def alike(a, b):
    """Compare constraints; 1, 1.0 and True differ."""
    if type(a) is not type(b):
        return False
    if is_dataclass(a):
        return all(alike(getattr(a, f.name), getattr(b, f.name)) for f in fields(a))
    if isinstance(a, tuple):
        return len(a) == len(b) and all(map(alike, a, b))
    return a == b


@pytest.mark.parametrize("text", list(TABLE))
def test_text_makes_what_python_makes(text):
    made = gc.parse_constraint(text)
    assert made == TABLE[text]
    assert alike(made, TABLE[text])
    assert gc.parse_constraints(text) == [made]


@pytest.mark.parametrize("text", list(TABLE))
def test_constraints_are_written_and_read_again(text):
    written = gc.format_constraint(TABLE[text])
    assert alike(gc.parse_constraint(written), TABLE[text])
    assert gc.format_constraint(gc.parse_constraint(written)) == written
    assert "\n" not in written
    assert alike(paste(TABLE[text]), TABLE[text])
    assert repr(TABLE[text]) == written


def test_how_constraints_are_written():
    written = {
        gc.tnr("a") >= 0.9: "tnr('a') >= 0.9",
        1 - gc.fpr("a") >= 0.9: "1 - fpr('a') >= 0.9",
        gc.gap(gc.tpr(), by="sex", min_group_size=30) <= 0.1: "gap(tpr(), by='sex') <= 0.1",
        gc.fpr(on=(F, {"sex": "M", "age": 3})) <= 0.1: (
            "fpr(on=({'sex': 'F'}, {'sex': 'M', 'age': 3})) <= 0.1"
        ),
        gc.class_error('a "b"\n\x00\\\U0001f600') <= 0.1: (
            "class_error('a \"b\"\\n\\u0000\\\\\U0001f600') <= 0.1"
        ),
        gc.class_error("None") <= 0.1: "class_error('None') <= 0.1",
        gc.fpr() <= 0.1 + 0.2: "fpr() <= 0.30000000000000004",
    }
    for constraint, text in written.items():
        assert gc.format_constraint(constraint) == text
        assert gc.parse_constraint(text) == constraint


def test_numpy_values_are_written_as_pythons_own():
    assert gc.format_constraint(gc.class_error(np.int64(2)) <= np.float64(0.1)) == (
        "class_error(2) <= 0.1"
    )
    assert gc.format_constraint(gc.fpr(on={np.str_("a"): np.bool_(True)}) <= 0.1) == (
        "fpr(on={'a': True}) <= 0.1"
    )


def test_several_constraints_and_presets_of_several_constraints():
    text = (
        "EqualizedOdds(by=sex);; fpr(\n on={sex: F}\n) <= 0.1\n\n NeymanPearson({0: .1, b: .2})\n"
    )
    assert gc.parse_constraints(text) == [
        *presets.EqualizedOdds(by="sex"),
        gc.fpr(on=F) <= 0.1,
        gc.class_error(0) <= 0.1,
        gc.class_error("b") <= 0.2,
    ]
    with pytest.raises(ValueError, match="makes 2 constraints: parse_constraints reads several"):
        gc.parse_constraint("EqualizedOdds(by=sex)")
    with pytest.raises(ValueError, match="makes 2 constraints"):
        gc.parse_constraint("fpr <= 0.1; fnr <= 0.1")


finite = st.floats(allow_nan=False, allow_infinity=False)
moderate = st.floats(-1e6, 1e6).filter(lambda x: abs(x) > 1e-6)
texts = st.text(max_size=8) | st.sampled_from(["yes", "overall", "None", "true", 'q"\\', "é_1"])
values = texts | st.integers() | st.booleans() | finite
levels = st.none() | values
binary_label = st.none() | values
selectors = st.recursive(
    st.builds(gc.label, values)
    | st.builds(gc.dataset, texts)
    | st.dictionaries(texts | st.integers(), levels, min_size=1, max_size=3),
    lambda inner: st.lists(inner, min_size=1, max_size=3).map(tuple),
    max_leaves=4,
)
ons = st.none() | selectors


@st.composite
def simple_rates(draw):
    on = draw(ons)
    kind = draw(st.integers(0, 4))
    if kind == 0:
        return draw(st.sampled_from([gc.error_rate, gc.accuracy, gc.log_loss]))(on=on)
    if kind == 1:
        rate = draw(
            st.sampled_from([gc.selection_rate, gc.tpr, gc.recall, gc.fnr, gc.fpr, gc.tnr])
        )
        return rate(draw(binary_label), on=on)
    if kind == 2:
        return gc.class_error(draw(values), on=on)
    if kind == 3:
        normalize = draw(st.sampled_from(["true", "all"]))
        return gc.confusion(draw(values), draw(values), normalize=normalize, on=on)
    column = draw(texts)
    made = [gc.churn(to=column, on=on), gc.wins(over=column, on=on), gc.losses(to=column, on=on)]
    return draw(st.sampled_from(made))


@st.composite
def sums(draw, least=-1e6):
    total = draw(simple_rates())
    for other in draw(st.lists(simple_rates(), max_size=2)):
        total = draw(moderate.filter(lambda x: x > least)) * total + other
    return total + draw(st.just(0.0) | moderate.filter(lambda x: x > least))


@st.composite
def quotients(draw):
    on = draw(ons)
    kind = draw(st.integers(0, 3))
    if kind == 0:
        return draw(st.sampled_from([gc.precision, gc.f1]))(draw(binary_label), on=on)
    if kind == 1:
        return gc.confusion(draw(values), draw(values), normalize="pred", on=on)
    return draw(sums(0.0)) / draw(sums(0.0))


@st.composite
def comparisons(draw):
    by = draw(st.none() | values | st.lists(values, min_size=1, max_size=3))
    options = draw(
        st.fixed_dictionaries(
            {},
            optional={
                "missing": st.sampled_from(["group", "raise"]),
                "min_group_size": st.integers(1, 100),
                "small_groups": st.sampled_from(["keep", "merge", "drop"]),
            },
        )
    )
    reference = st.none() | st.just(gc.overall) | values | st.lists(levels, min_size=1).map(tuple)
    kind = draw(st.sampled_from([gc.each, gc.gap, gc.ratio]))
    if kind is not gc.each:
        options["reference"] = draw(reference)
    if kind is gc.ratio:
        options["slack"] = draw(st.floats(0, 1e6))
    return kind(draw(sums(0.0)), by=by, **options)


@st.composite
def constraints(draw):
    expression = draw(simple_rates() | sums() | quotients() | comparisons())
    senses = {Gap: ["<="], Ratio: [">="]}.get(type(expression), ["<=", ">="])
    sense = draw(st.sampled_from(senses))
    low, high = expression.range
    low, high = max(low, -1e9), min(high, 1e9)
    bound = min(max(low + draw(st.floats(0, 1)) * (high - low), low), high)
    # Mean losses are bounded by positive numbers.
    return gc.Constraint(expression, sense, bound or math.ulp(0.0) if high > 0 else bound)


def random(examples):
    return settings(
        derandomize=True,
        deadline=None,
        max_examples=examples,
        suppress_health_check=[HealthCheck.too_slow],
    )


def check_text(constraint):
    again = gc.parse_constraint(gc.format_constraint(constraint))
    assert again == constraint == paste(constraint)
    assert hash(again) == hash(constraint)


test_what_is_written_is_read_as_the_same = random(120)(given(constraints())(check_text))
test_hundreds_are_read_as_the_same = pytest.mark.slow(
    random(700)(given(constraints())(check_text))
)


@random(100)
@given(values)
def test_labels_keep_their_type(value):
    again = gc.parse_constraint(gc.format_constraint(gc.class_error(value) <= 0.1))
    (selector,) = again.terms[0].rows
    assert type(selector.value) is type(value)
    assert selector.value == value


@random(100)
@given(finite, finite)
def test_numbers_keep_every_digit(coefficient, bound):
    if coefficient == 0:
        coefficient = 1.0
    expression = coefficient * gc.log_loss()
    bound = math.copysign(bound or 1.0, coefficient)
    again = gc.parse_constraint(gc.format_constraint(expression >= bound))
    assert again.rates[0].terms[0][0] == coefficient
    assert again.bound == bound


@pytest.mark.parametrize(
    ("constraint", "reason"),
    [
        (gc.fpr(on=np.array([True, False])) <= 0.1, "mask of 1 rows: put it into a column"),
        (
            gc.churn(to=LogisticRegression()) <= 0.1,
            "with LogisticRegression: put the other model's",
        ),
        (gc.churn(to=[0, 1, 1]) <= 0.1, "with decisions of single rows: put the other"),
        (gc.wins(over=[0, 1, 1]) <= 0.1, "with decisions of single rows: put the other"),
        (gc.class_error(float("nan")) <= 0.1, "nan as a value has no text"),
        (gc.class_error(b"a") <= 0.1, "is of type bytes, and only texts"),
        (gc.class_error(("a", 1)) <= 0.1, "is of type tuple, and only texts"),
        (gc.gap(gc.fpr(), by=[("a", "b")]) <= 0.1, "is of type tuple"),
        (
            gc.Constraint(gc.precision().numerator, "<=", 0.1),
            "true_positives is a part of a quotient",
        ),
        (
            gc.Constraint(Rate((*gc.fpr().terms, *gc.fpr().terms)), "<=", 0.1),
            "not made by the functions of gbm_constrained.constraints.rates alone",
        ),
    ],
)
def test_what_has_no_text_is_refused_with_the_reason(constraint, reason):
    with pytest.raises(ValueError, match=f"cannot be written as text: .*{re.escape(reason)}"):
        gc.format_constraint(constraint)


def test_only_constraints_are_written_and_only_texts_are_read():
    with pytest.raises(TypeError, match="constraint must be a constraint such as"):
        gc.format_constraint(gc.fpr())
    with pytest.raises(TypeError, match="text must be a string such as"):
        gc.parse_constraint(gc.fpr() <= 0.1)
