"""Means over numbers as text: there and back, and the places of mistakes."""

import pytest
from pasted import paste

import gbm_constrained as gc
from gbm_constrained import format_constraint, mean_loss, parse_constraint, presets
from gbm_constrained.constraints.text import parse_constraints

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
def test_there_and_back(text):
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
def test_mistakes(text, message):
    with pytest.raises(ValueError, match=message):
        parse_constraint(text)
