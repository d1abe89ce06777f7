"""Formulas of means over numbers."""

import xml.etree.ElementTree as ET

import pytest

import gbm_constrained as gc
from gbm_constrained import mean_loss
from gbm_constrained.reporting.mathml import formula_of, legend_of

FORMULAS = [
    (mean_loss() <= 2, "E[(y-f)2]≤2"),
    (mean_loss("absolute", on={"sex": "F"}) <= 2, "E[|y-f||sex=F]≤2"),
    (mean_loss("huber", delta=0.5) <= 2, "E[H0.5(y-f)]≤2"),
    (mean_loss("pinball", alpha=0.9) <= 2, "E[\N{GREEK SMALL LETTER RHO}0.9(y-f)]≤2"),
    (mean_loss("poisson", weight="hours") <= 2, "Ehours[D(y,f)]≤2"),
    (gc.mean_residual() >= -1, "E[y-f]≥-1"),
    (gc.gap(gc.mean_prediction(), by="sex") <= 1, "maxg,h|E[f|sex=g]-E[f|sex=h]|≤1"),
    (gc.share_above(-3) <= 0.5, "P(f>-3)≤0.5"),
    (gc.coverage() >= 0.9, "P(y≤f)≥0.9"),
]


@pytest.mark.parametrize(("constraint", "text"), FORMULAS)
def test_formulas(constraint, text):
    found = "".join(ET.fromstring(formula_of(constraint)).itertext())
    assert found.replace("\N{MINUS SIGN}", "-") == text


def test_legends():
    legend = legend_of([formula_of(mean_loss("huber") <= 1)])
    assert "is the target" in legend
    assert "is the prediction" in legend
    assert "is Huber's loss" in legend
    assert "decision" not in legend
    assert "is the label" in legend_of([formula_of(gc.error_rate() <= 0.1)])
