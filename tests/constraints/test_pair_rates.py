"""Pair rates in the language: printing, text, algebra, and what is refused."""

import pickle

import pytest
from pasted import paste

import gbm_constrained as gc
from gbm_constrained import auc, cross_auc, each, gap, mean_rank, ratio
from gbm_constrained.constraints.checking import name_positive_class
from gbm_constrained.constraints.text import format_constraint, parse_constraint

F, M = {"sex": "F"}, {"sex": "M"}
RULES = [
    (auc() >= 0.8, "auc >= 0.8", "auc >= 0.8"),
    (auc("a", on={"x": 1}) >= 0.8, "auc('a')[x=1] >= 0.8", "auc(a, on={x: 1}) >= 0.8"),
    (gap(auc(), by="sex") <= 0.02, "gap(auc, by='sex') <= 0.02", "gap(auc, by=sex) <= 0.02"),
    (
        gap(cross_auc(group="negatives", background="all"), by="sex") <= 0.05,
        "gap(cross_auc[group negatives, background all], by='sex') <= 0.05",
        "gap(cross_auc(group=negatives, background=all), by=sex) <= 0.05",
    ),
    (
        gap(mean_rank(on=gc.label(1)), by="sex", reference=gc.overall) <= 0.01,
        "gap(mean_rank[y=1], by='sex', reference=overall) <= 0.01",
        "gap(mean_rank(on=label(1)), by=sex, reference=overall) <= 0.01",
    ),
    (
        auc(negatives=F) - auc(positives=F) <= 0.02,
        "auc[negatives sex=F] - auc[positives sex=F] <= 0.02",
        "auc(negatives={sex: F}) - auc(positives={sex: F}) <= 0.02",
    ),
    (
        auc(on=F) - auc(on=M) <= 0.02,
        "auc[sex=F] - auc[sex=M] <= 0.02",
        "auc(on={sex: F}) - auc(on={sex: M}) <= 0.02",
    ),
    (
        2 * auc() - 0.5 * auc(on=F) + 0.1 >= 0.3,
        "2 * auc - 0.5 * auc[sex=F] + 0.1 >= 0.3",
        "2 * auc - 0.5 * auc(on={sex: F}) + 0.1 >= 0.3",
    ),
    (
        each(auc(), by=["sex", "x"]) >= 0.8,
        "each(auc, by=['sex', 'x']) >= 0.8",
        "each(auc, by=[sex, x]) >= 0.8",
    ),
    (
        ratio(cross_auc(2), by="sex") >= 0.9,
        "ratio(cross_auc(2), by='sex') >= 0.9",
        "ratio(cross_auc(2), by=sex) >= 0.9",
    ),
]


@pytest.mark.parametrize(("rule", "printed", "text"), RULES)
def test_printing_text_and_pickles(rule, printed, text):
    assert str(rule) == printed
    assert paste(rule) == parse_constraint(format_constraint(rule)) == rule
    assert parse_constraint(text) == rule
    assert hash(pickle.loads(pickle.dumps(rule))) == hash(rule)
    assert "pair" in rule.kinds
    assert rule.is_of_scores
    assert not rule.is_of_predictions
    assert not rule.is_of_labels


def test_sides_are_part_of_a_rate():
    """Rates that print alike but for their sides, or not even for them, differ."""
    rates = [
        cross_auc(), cross_auc(group="negatives"), cross_auc(background="all"), auc(),
        auc(positives=F), auc(negatives=F), auc(on=F), mean_rank(), mean_rank(on=F),
    ]  # fmt: skip
    assert len(set(rates)) == len(rates)


def test_equal_terms_cancel():
    assert (auc() + auc() - 2 * auc()).terms == ()
    assert (auc() - auc(on=F)).range == (-1.0, 1.0)


@pytest.mark.parametrize("rule", [auc() <= 0.5, gap(auc(), by="x") <= 0.1])
def test_the_positive_class_is_named_on_both_sides(rule):
    rule = name_positive_class(rule, "yes")
    ((_, term),) = rule.rates[0].terms
    assert str(term) == "auc('yes')"
    assert [str(part) for part in (*term.base, *term.other_base)] == ["y='yes'", "y!='yes'"]
    assert not rule.is_binary


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: auc() + gc.fpr(), TypeError, "a constraint of its own"),
        (lambda: gc.log_loss() - auc(), TypeError, "a constraint of its own"),
        (lambda: auc() <= gc.fpr(), TypeError, "a constraint of its own"),
        (lambda: auc() / auc(on=F), TypeError, "compare groups by ratio"),
        (lambda: gc.tpr() / auc(), TypeError, "quotient of pair rates"),
        (lambda: cross_auc() <= 0.8, TypeError, r"write gap\(cross_auc\(\), by=...\)"),
        (lambda: mean_rank() <= 0.6, TypeError, r"write gap\(mean_rank\(\), by=...\)"),
        (lambda: gap(cross_auc(), by="s", reference=gc.overall) <= 0.1, TypeError, "overall"),
        (lambda: auc() >= 1.2, ValueError, r"a probability in \[0, 1\]"),
        (lambda: gap(auc(), by="s") <= -0.1, ValueError, r"\[0, 1\]"),
        (lambda: auc() - auc(on=F) <= 2, ValueError, r"\[-1, 1\]"),
        (lambda: cross_auc(group="both"), ValueError, r"group must be one of .* got 'both'"),
        (lambda: cross_auc(background=0), ValueError, r"background must be one of .* got 0"),
        (lambda: auc >= 0.8, TypeError, r"write auc\(\) >= 0\.8"),
        (lambda: gap(auc, by="s"), TypeError, r"write auc\(\)"),
    ],
)
def test_refusals(make, error, message):
    with pytest.raises(error, match=message):
        make()


def test_unknown_names_lead_here():
    with pytest.raises(ValueError, match="did you mean auc"):
        parse_constraint("roc_auc >= 0.8")
