"""Constraints as text: against the objects that Python makes, their way back, and what is no text.

Errors show their place.
"""

from __future__ import annotations

import inspect
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
from gbm_constrained.constraints import rates
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


test_what_is_written_is_read_as_the_same = random(80)(given(constraints())(check_text))
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


def test_the_language_has_every_rate_preset_and_parameter():
    of_presets = set(presets.__all__) - {"from_fairlearn"}
    for name in (*rates.__all__, *rates.__all__, *of_presets):
        function = getattr(presets if name in of_presets else gc, name)
        parameters = set(inspect.signature(function).parameters) - {"options"}
        if name in ("each", "gap", "ratio"):
            parameters |= {"missing", "min_group_size", "small_groups"}
        for parameter in parameters:
            with pytest.raises(ValueError, match=r"these|expected|needs|levels must") as caught:
                gc.parse_constraint(f"{name}({parameter}=())")
            assert "unknown" not in str(caught.value)
            assert f"no {parameter}=" not in str(caught.value)
        with pytest.raises(ValueError, match=f"{name} has no other="):
            gc.parse_constraint(f"{name}(other=1)")


def test_labels_and_the_positive_class_may_be_named_otherwise():
    labels = {"no": 0, "yes": 1}

    def read(text, positive=None):
        return gc.parse_constraint(text, labels=labels, positive=positive)

    assert read("precision(yes) >= 0.9") == (gc.precision(1) >= 0.9)
    assert read("confusion(yes, no) <= 0.1") == (gc.confusion(1, 0) <= 0.1)
    assert read("fpr(on=label(no)) <= 0.1") == (gc.fpr(on=gc.label(0)) <= 0.1)
    assert read("NeymanPearson({no: 0.1})") == (gc.class_error(0) <= 0.1)
    assert read("fpr <= 0.1") == (gc.fpr() <= 0.1)
    assert read("fpr(on={yes: no}) <= 0.1") == (gc.fpr(on={"yes": "no"}) <= 0.1)  # a column
    assert read("fpr <= 0.1", "no") == (gc.fpr(0) <= 0.1)
    assert read("fpr(yes) <= 0.1", "no") == (gc.fpr(1) <= 0.1)
    assert read("gap(tpr, by=sex) <= 0.1", "no") == (gc.gap(gc.tpr(0), by="sex") <= 0.1)
    assert read("FourFifths(by=sex)", None) == presets.FourFifths(by="sex")
    assert gc.parse_constraint("fpr <= 0.1", positive=3) == (gc.fpr(3) <= 0.1)
    with pytest.raises(ValueError, match="labelled 'yess': did you mean 'yes'"):
        read("precision(yess) >= 0.9")
    with pytest.raises(ValueError, match="labelled 3: the labels are 'no', 'yes'"):
        read("class_error(3) <= 0.9")
    assert read("EqualOpportunity(by=sex)", "no") == (gc.gap(gc.tpr(0), by="sex") <= 0.02)
    assert read("FourFifths(by=sex)", "no") == (gc.ratio(gc.selection_rate(0), by="sex") >= 0.8)
    both = gc.parse_constraints("EqualizedOdds(by=sex)", positive="no")
    assert [constraint.expression.rate for constraint in both] == [gc.tpr("no"), gc.fpr("no")]
    assert read("BoundedGroupLoss(upper_bound=0.1)", "no") == (gc.each(gc.log_loss()) <= 0.1)


ERRORS = [
    ("fprr <= 0.05", "fprr", "did you mean fpr?"),
    ("FPR <= 0.05", "FPR", "did you mean fpr?"),
    ("miss_rate <= 0.05", "miss_rate", "did you mean fnr?"),
    ("equalized_odds(by=sex)", "equalized_odds", "did you mean EqualizedOdds?"),
    ("kappa >= 0.9", "kappa", "one of accuracy, "),
    ("gap(tpr, refrence=a) <= 0.1", "refrence=a", "did you mean reference?"),
    ("fpr <= 5", "fpr <= 5", "5 per cent is written 0.05"),
    ("fpr <= 5%", "%", "write 5% as 0.05"),
    ("fpr < 0.05", "<", "write <="),
    ("fpr ≤ 0.05", "≤", "write <="),
    ("fpr = 0.05", "=", "expected `<=` or `>=` and a bound"),
    ("fpr == 0.05", "fpr == 0.05", "expected `<=` or `>=`"),
    ("fpr", "", "expected `<=` or `>=` and a bound, such as <= 0.05; found the end"),
    ("fpr; fnr <= 0.1", ";", "found the end"),
    ("fpr <= ", "", "expected a rate or a number"),
    ("", "", "there is no constraint: write one such as fpr <= 0.05"),
    ("0.01 <= fpr <= 0.05", "0.01 <= fpr <= 0.05", "write two constraints"),
    ("0.5 <= 0.6", "0.5 <= 0.6", "nothing is bounded here"),
    ("fpr <= 0.1 and fnr <= 0.1", "and", "separate constraints by `;`"),
    ("fpr <= 0.1, fnr <= 0.1", "fpr <= 0.1, fnr <= 0.1", "expected a rate or a number"),
    ("gap(tpr <= 0.1, by=sex)", "tpr <= 0.1", "the bound comes after the closing bracket"),
    ("gap(tpr, sex) <= 0.1", "sex", "by name only: gap(rate, by=..., reference=..."),
    ("gap(by=sex, tpr) <= 0.1", ")", "positional argument follows keyword argument"),
    ("gap(tpr, by=marital-status) <= 0.1", "marital-status", "quote names and labels"),
    ("gap(tpr, by=[]) <= 0.1", "[]", "these brackets are empty"),
    ("gap(tpr, by=sex) >= 0.1", "gap(tpr, by=sex) >= 0.1", "only be bounded from above"),
    ("gap(tpr) + fpr <= 0.1", "gap(tpr) + fpr", "cannot be combined"),
    ("-gap(tpr) >= 0.1", "-gap(tpr)", "only positive finite numbers multiply gaps"),
    ("gap(EqualOpportunity) <= 0.1", "EqualOpportunity", "a preset is a constraint by itself"),
    ("gap(0.1) <= 0.1", "gap(0.1)", "compares a plain rate between groups"),
    ("EqualOpportunity + fpr <= 0.1", "EqualOpportunity", "a preset is a constraint by itself"),
    ("fpr <= FourFifths", "FourFifths", "a preset is a constraint by itself"),
    ("FourFifths(by=sex) >= 0.1", "FourFifths(by=sex)", "a preset is a constraint by itself"),
    ("FourFifths(bound=fpr)", "fpr", "expected a number"),
    ("FourFifths(bound=1e999)", "1e999", "too large"),
    ("DemographicParity(difference_bound=1, ratio_bound=1)", None, "cannot both be given"),
    ("NeymanPearson(0.1)", "NeymanPearson(0.1)", "such as {0: 0.05}; got 0.1"),
    ("NeymanPearson", "NeymanPearson", "NeymanPearson needs levels"),
    ("NeymanPearson({**a})", "{**a}", "expected a name, found `**`"),
    (
        "class_error <= 0.1",
        "class_error",
        "class_error needs k: class_error(k, on=..., weight=..., cap=...)",
    ),
    ("class_error(1, k=1) <= 0.1", "k=1", "k is given twice"),
    ("class_error(+1) <= 0.1", "+1", "expected a word, a quoted text or a number"),
    ("+fpr <= 0.1", "+fpr", "expected a rate or a number"),
    ("class_error(*a) <= 0.1", "*a", "expected a word, a quoted text or a number"),
    ("class_error(007) <= 0.1", "007", 'write the number 7 or the text "007"'),
    ("class_error(1a) <= 0.1", "1a", "a number runs into a word"),
    ("class_error(a'b') <= 0.1", "a'", "a name runs into a word"),
    ("class_error(a.5) <= 0.1", "a.", "a name runs into a word"),
    ("class_error(1e999) <= 0.1", "1e999", "too large"),
    (f"class_error({'9' * 5000}) <= 0.1", None, "Exceeds the limit"),
    ("class_error('a) <= 0.1", "'", "no closing quote"),
    (r"class_error('\x') <= 0.1", "'", r"a backslash in it that is not written \\"),
    (r"class_error('\U00110000') <= 0.1", "'", "a backslash in it"),
    ("'fpr' <= 0.1", "'fpr'", "put rates in no quotes"),
    ("confusion(0, 1, normalize=row) <= 0.1", None, "'true', 'pred' or 'all'"),
    ("fpr(on=sex) <= 0.1", "sex", "expected rows: label(1), dataset(monitor), {sex: F}"),
    ("fpr(on=label(1, 2)) <= 0.1", "label(1, 2)", "expected rows"),
    ("fpr(on={}) <= 0.1", "{}", "these brackets are empty"),
    ("fpr(on={sex: F, sex: M}) <= 0.1", "{sex: F, sex: M}", "'sex' is given twice"),
    ("fpr(on={sex F}) <= 0.1", "F", "unexpected `F`: quote names and labels"),
    ("fpr(on={sex, F}) <= 0.1", "{sex, F}", "expected rows"),
    ("label(1) <= 0.1", "label(1)", "write on=label(...) inside one"),
    ("fpr(on=dataset(1)) <= 0.1", "dataset(1)", "a string; got 1"),
    ("churn(to=3) <= 0.1", "churn(to=3)", "the name of a column of decisions"),
    ("churn(to=old, by=a) <= 0.1", "by=a", "churn has no by=: one of to, on"),
    ("churn(old, a) <= 0.1", "old", "by name only: churn(to, on=..., weight=..., cap=...)"),
    ("fpr[sex=F] <= 0.1", "[", "expected `<=` or `>=`"),
    ("fpr fnr <= 0.1", "fnr", "expected `<=` or `>=`"),
    ("fpr(1 <= 0.1", "(", "this bracket is never closed"),
    ("fpr(on={a: 1)) <= 0.1", ")", "`)` closes no `(`"),
    ("fpr ** 2 <= 0.1", "fpr ** 2", "expected a sum, product or quotient"),
    ("fpr <= 1 / 0", "1 / 0", "division by zero"),
    ("fpr / 0 <= 1", "fpr / 0", "rates are divided by finite numbers, not by 0"),
    ("fpr / 1e-320 <= 1", "fpr / 1e-320", "only finite numbers multiply rates"),
    ("fpr <= 1e308 * 10", "1e308 * 10", "too large"),
    ("1e308 * fpr * 10 <= 0.1", None, "a coefficient that is not finite"),
    ("fpr - fpr <= 0.1", None, "does not depend on predictions"),
    ("fpr / (fpr - fnr) <= 0.1", "fpr / (fpr - fnr)", "divides by a rate that can be neg"),
    ("(" * 40 + "fpr", "(", "more than 30 levels"),
    ("-" * 40 + "fpr", "-", "more than 30 levels"),
    ("fpr(on=" + "(" * 40, "(", "more than 30 levels"),
    ("gap(" * 40, "(", "more than 30 levels"),
    ("fpr + " * 30_000 + "fpr <= 0.1", "fpr", "this sum is too long"),
]


@pytest.mark.parametrize(("text", "marked", "message"), ERRORS, ids=lambda x: str(x)[:40])
def test_errors_show_where_and_what_would_be_right(text, marked, message):
    with pytest.raises(ValueError, match=re.escape(message)) as caught:
        gc.parse_constraint(text)
    *_, line, mark = str(caught.value).split("\n")
    start = mark.index("^")
    assert set(mark[start:]) == {"^"}
    if marked is not None:
        assert line[start : start + max(1, mark.count("^"))] == marked


def test_the_mark_is_on_the_line_of_the_error():
    with pytest.raises(ValueError, match="did you mean fnr") as caught:
        gc.parse_constraints("fpr <= 0.1\n  fnrr <= 0.1\ntpr >= 0.1")
    assert str(caught.value).split("\n")[1:] == ["    fnrr <= 0.1", "    ^^^^"]
    long = " + ".join(["fpr"] * 200) + " <= oops"
    with pytest.raises(ValueError, match="unknown rate oops") as caught:
        gc.parse_constraint(long)
    line, mark = str(caught.value).split("\n")[1:]
    assert len(line) < 120
    assert line[mark.index("^") :][: mark.count("^")] == "oops"


PIECES = [
    *rates.__all__, *rates.__all__, *presets.__all__,
    *"()[]{}:,=+-*/;.\n\"'\\<>%#", "<=", ">=", "==", " ", "  ", "0", "1",
    "0.05", "1e400", "-1e308", "nan", "inf", "9" * 30, "007", "true", "None", "overall", "label(",
    "on={", "dataset(m)", "by=", "reference=", "min_group_size=", "sex", "F", "é", "\ud800",
    "\x00", "٣", "²",
]  # fmt: skip
VALID = list(TABLE)


def anything(text):
    """Read any text: constraints or a ValueError that shows a place, and nothing else."""
    try:
        found = gc.parse_constraints(text)
    except ValueError as refused:
        *_, line, mark = str(refused).split("\n")
        assert re.fullmatch(r"  .*", line)
        assert re.fullmatch(r"  +\^+", mark)
        return
    assert found
    for constraint in found:
        assert isinstance(constraint, gc.Constraint)
        assert math.isfinite(constraint.bound)
        assert all(math.isfinite(a) for rate in constraint.rates for a, _ in rate.terms)
        assert gc.parse_constraint(gc.format_constraint(constraint)) == constraint


WORDS = sorted({word for text in VALID for word in re.findall(r"[\w.]+", text)})


@st.composite
def mutated(draw):
    """A valid constraint with words exchanged, or pieces inserted, removed or doubled."""
    text = draw(st.sampled_from(VALID))
    for _ in range(draw(st.integers(1, 3))):
        places = [match.span() for match in re.finditer(r"[\w.]+", text)]
        if places and draw(st.booleans()):
            start, end = draw(st.sampled_from(places))
            piece = draw(st.sampled_from(WORDS))
        else:
            start = draw(st.integers(0, len(text)))
            end = min(len(text), start + draw(st.integers(0, 4)))
            piece = draw(st.sampled_from(["", text[start:end] * 2, *PIECES]))
        text = text[:start] + piece + text[end:]
    return text


PIECED = st.lists(st.sampled_from(PIECES), max_size=15).map("".join)


@random(500)
@given(st.text(max_size=60) | PIECED | mutated())
def test_any_text_is_read_or_refused(text):
    anything(text)


@pytest.mark.slow
@random(10_000)
@given(st.text(max_size=60) | PIECED | mutated())
def test_ten_thousand_texts_are_read_or_refused(text):
    anything(text)
