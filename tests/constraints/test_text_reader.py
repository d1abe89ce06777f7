"""Constraints read from text: what the language holds, and errors that show a place."""

from __future__ import annotations

import inspect
import math
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.constraints import rates


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
VALID = [
    " fpr() <=.05 ",
    "0.05 >= fpr",
    "error_rate <= 1 - 0.95",
    "class_error(-1) <= 0.03",
    "class_error('2') <= 0.03",
    'precision(label="yes", on={sex: F}) >= 0.9',
    "f1(label=None) >= 0.5",
    'confusion(i=a, j="b c", normalize="all", on=label(a)) <= 0.1',
    "selection_rate(on=dataset(monitor)) <= 0.1",
    "accuracy(on=(label(0), ({a: 1, 'b c': 2.5}, {d: false}))) >= 0.5",
    "fpr(on={sex: F}) <= fpr(on={sex: M}) + 0.02",
    "-(fpr - 2 * fnr) / 4 <= 0.1",
    "8 / 4 / 2 * fpr <= 0.1",
    "wins(over=old) / losses(to=old) >= 2",
    "(fpr + fnr) / (2 * accuracy) <= 0.3",
    'churn(to="old model") <= 0.02',
    "gap(rate=fpr, by=(sex, race), reference=(F, Black)) <= 0.1",
    "gap(selection_rate, by=[sex], min_group_size=50, reference=overall) <= 0.1",
    "ratio(selection_rate, by=sex, slack=0.01) >= 0.8",
    "each(recall(), by=region, missing=raise, small_groups=drop) >= 0.8",
    "UtilityParity(fpr, ratio_bound=0.8, ratio_bound_slack=0.1)",
    "TruePositiveRateParity; Churn(old, 0.02, on={sex: F})",
    "BoundedGroupLoss(zero_one, upper_bound=0.1, by=sex)\nEqualizedOdds(by=sex)",
    "NeymanPearson({0: 0.05, b: .1})",
]


def random(examples):
    return settings(derandomize=True, deadline=None, max_examples=examples)


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


@random(900)
@given(st.text(max_size=60) | PIECED | mutated())
def test_any_text_is_read_or_refused(text):
    anything(text)


@pytest.mark.slow
@random(10_000)
@given(st.text(max_size=60) | PIECED | mutated())
def test_ten_thousand_texts_are_read_or_refused(text):
    anything(text)
