"""Means of row functions: names, ranges, comparisons, texts, and what they refuse."""

import math

import numpy as np
import pytest
from pasted import paste

import gbm_constrained as gc
from gbm_constrained import format_constraint, parse_constraint, parse_constraints, presets
from gbm_constrained.constraints.checking import check_task
from gbm_constrained.constraints.rates import (
    LOSSES,
    coverage,
    mean_loss,
    mean_prediction,
    mean_residual,
    row_functions_of,
    share_above,
)

MEANS = {
    "mean_loss(squared)": mean_loss(),
    "mean_loss(absolute)": mean_loss("absolute"),
    "mean_loss(huber, delta=1)": mean_loss("huber"),
    "mean_loss(huber, delta=0.25)": mean_loss("huber", delta=0.25),
    "mean_loss(pinball, alpha=0.5)": mean_loss("pinball"),
    "mean_loss(pinball, alpha=0.9)": mean_loss("pinball", alpha=0.9),
    "mean_loss(poisson)": mean_loss("poisson"),
    "mean_prediction": mean_prediction(),
    "mean_residual": mean_residual(),
    "share_above(0.5)": share_above(0.5),
    "share_above(-2)": share_above(-2),
    "coverage": coverage(),
}


@pytest.mark.parametrize("name", MEANS)
def test_names(name):
    assert str(MEANS[name]) == name


def test_restrictions_and_amounts_are_in_names():
    rate = mean_loss("absolute", on={"sex": "F"}, weight="value", cap=9.0)
    assert str(rate) == "mean_loss(absolute)[sex=F, weight=value, cap=9]"
    assert (
        str(gc.gap(mean_prediction(), by="sex") <= 0.1) == "gap(mean_prediction, by='sex') <= 0.1"
    )


def test_ranges():
    assert all(mean_loss(loss).range == (0.0, math.inf) for loss in LOSSES)
    assert mean_prediction().range == mean_residual().range == (-math.inf, math.inf)
    assert share_above(3).range == coverage().range == (0.0, 1.0)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: mean_loss("cubic"), r"one of the losses \['squared', .*\], got 'cubic'"),
        (lambda: mean_loss("squared", delta=1.0), "delta is a parameter of 'huber': leave it out"),
        (lambda: mean_loss("huber", alpha=0.5), "alpha is a parameter of 'pinball'"),
        (
            lambda: mean_loss("huber", delta=0.0),
            "delta must lie strictly between 0 and inf, got 0.0",
        ),
        (lambda: mean_loss("huber", delta=10**400), "delta must lie strictly"),
        (lambda: mean_loss("pinball", alpha=1.0), "alpha must lie strictly between 0 and 1"),
        (lambda: share_above(math.nan), "share_above takes a finite threshold, got nan"),
        (lambda: share_above("high"), "share_above takes a finite threshold, got 'high'"),
    ],
)
def test_refused_arguments(make, message):
    with pytest.raises(ValueError, match=message):
        make()


@pytest.mark.parametrize("rate", [mean_prediction(), mean_residual()])
def test_ratios_of_means_that_may_be_negative_are_refused(rate):
    with pytest.raises(ValueError, match="divides by a rate that can be negative: bound its gap"):
        gc.ratio(rate, by="sex")


def test_ratios_of_losses_and_shares_are_made():
    assert str(gc.ratio(mean_loss(), by="sex") >= 0.8).startswith("ratio(mean_loss(squared)")
    assert str(gc.ratio(share_above(1), by="sex") >= 0.8).startswith("ratio(share_above(1)")


@pytest.mark.parametrize("bound", [-0.1, math.nan])
def test_bounds_beyond_the_range_are_refused(bound):
    with pytest.raises(ValueError, match="mean_loss"):
        mean_loss() <= bound  # noqa: B015


def test_shares_are_bounded_in_the_unit_interval():
    with pytest.raises(ValueError, match="coverage"):
        coverage() >= 1.5  # noqa: B015
    assert str(mean_prediction() <= -3.0) == "mean_prediction <= -3"  # any sign


def test_functions_are_listed_once_and_in_one_order():
    rules = [
        gc.gap(mean_prediction(), by="sex") <= 0.1,
        mean_loss(on={"sex": "F"}) + 2 * mean_prediction() <= 1.0,
        mean_loss("huber", delta=2) <= 1.0,
        mean_loss("huber") <= 1.0,
    ]
    found = row_functions_of(rules)
    assert len(found) == 4
    assert found == row_functions_of(rules[::-1])
    assert len({function.key for function in found}) == 4


def test_rules_of_the_other_task_are_refused():
    rules = [gc.fpr() <= 0.1, gc.each(mean_loss(), by="sex") <= 0.1]
    with pytest.raises(ValueError, match=r"a classifier predicts classes: use ConstrainedXGBReg"):
        check_task(rules, predicts_numbers=False)
    with pytest.raises(ValueError, match=r"fnr <= 0\.1 bounds a rate of predicted classes"):
        check_task([mean_loss() <= 0.1, gc.fnr() <= 0.1], predicts_numbers=True)
    check_task([mean_loss() <= 0.1], predicts_numbers=True)
    check_task([gc.fnr() <= 0.1], predicts_numbers=False)


def test_properties_of_functions():
    kinds = {
        name: row_functions_of([rate <= 0.5])[0]
        for name, rate in MEANS.items()
        if "(-" not in name
    }
    assert {name for name, kind in kinds.items() if kind.is_linear} == {
        "mean_prediction",
        "mean_residual",
    }
    assert {name for name, kind in kinds.items() if kind.is_step} == {
        "share_above(0.5)",
        "coverage",
    }
    assert all(np.isinf(kind.range[1]) for name, kind in kinds.items() if "mean" in name)


TEXTS = {
    "each(mean_loss(squared), by=race) <= 0.02": gc.each(mean_loss(), by="race") <= 0.02,
    "mean_loss(absolute, on={sex: F}) <= 3": mean_loss("absolute", on={"sex": "F"}) <= 3,
    "mean_loss(huber, delta=0.25) <= 1": mean_loss("huber", delta=0.25) <= 1,
    "mean_loss(pinball, alpha=0.9) <= 1": mean_loss("pinball", alpha=0.9) <= 1,
    "mean_loss(poisson, weight=hours, cap=8) <= 1": mean_loss("poisson", weight="hours", cap=8)
    <= 1,
    "gap(mean_prediction, by=sex) <= 0.1": gc.gap(gc.mean_prediction(), by="sex") <= 0.1,
    "mean_residual(on=dataset(later)) >= -0.5": gc.mean_residual(on=gc.dataset("later")) >= -0.5,
    "share_above(0.5) <= 0.2": gc.share_above(0.5) <= 0.2,
    "share_above(-2.123456789) <= 0.2": gc.share_above(-2.123456789) <= 0.2,
    "ratio(coverage, by=sex) >= 0.9": gc.ratio(gc.coverage(), by="sex") >= 0.9,
    "mean_loss(squared) - 2 * mean_prediction <= 1": mean_loss() - 2 * gc.mean_prediction() <= 1,
}


@pytest.mark.parametrize("text", TEXTS)
def test_texts_there_and_back(text):
    assert parse_constraint(text) == TEXTS[text]
    assert paste(TEXTS[text]) == parse_constraint(format_constraint(TEXTS[text])) == TEXTS[text]


@pytest.mark.parametrize(
    ("text", "rule"),
    [
        ("mean_loss <= 0.1", mean_loss() <= 0.1),
        ("mean_loss() <= 0.1", mean_loss() <= 0.1),
        ("mean_loss(loss='huber') <= 1", mean_loss("huber", delta=1.0) <= 1),
        ("share_above(threshold=1 / 2) <= 1", gc.share_above(0.5) <= 1),
        ("BoundedGroupLoss(absolute, upper_bound=2, by=race)",
         presets.BoundedGroupLoss("absolute", upper_bound=2, by="race")),
    ],
)  # fmt: skip
def test_other_ways_to_write_the_same(text, rule):
    assert parse_constraints(text) == [rule]


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("mean_loss(cubic) <= 1", "mean_loss takes one of the losses"),
        ("mean_loss(squared, delta=1) <= 1", "delta is a parameter of 'huber'"),
        ("mean_loss(huber, delta=wide) <= 1", "unknown rate wide"),
        ("share_above <= 1", r"share_above needs threshold: share_above\(threshold"),
        ("ratio(mean_prediction, by=sex) >= 0.8", "divides by a rate that can be negative"),
        ("mse <= 1", "unknown rate mse: did you mean mean_loss?"),
    ],
)
def test_mistakes_in_texts(text, message):
    with pytest.raises(ValueError, match=message):
        parse_constraint(text)
