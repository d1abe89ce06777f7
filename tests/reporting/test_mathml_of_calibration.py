"""Formulas of calibration errors."""

import xml.etree.ElementTree as ET

import pytest

import gbm_constrained as gc
from gbm_constrained import calibration_error, each, gap
from gbm_constrained.reporting.mathml import formula_of, legend_of

FORMULAS = [
    (calibration_error() <= 0.05, "∑b|E[1p^∈b(y-p^)]|≤0.05"),
    (calibration_error(on={"sex": "F"}) <= 0.05, "∑b|E[1p^∈b(y-p^)|sex=F]|≤0.05"),
    (each(calibration_error(), by="sex") <= 0.05, "maxg∑b|E[1p^∈b(y-p^)|sex=g]|≤0.05"),
    (
        gap(calibration_error(), by="sex") <= 0.03,
        "maxg,h|∑b|E[1p^∈b(y-p^)|sex=g]|-∑b|E[1p^∈b(y-p^)|sex=h]||≤0.03",
    ),
    (
        gap(calibration_error(), by="sex", reference=gc.overall) <= 0.03,
        "maxg|∑b|E[1p^∈b(y-p^)|sex=g]|-∑b|E[1p^∈b(y-p^)]||≤0.03",
    ),
    (
        gap(calibration_error(), by="sex", reference="F") <= 0.03,
        "maxg|∑b|E[1p^∈b(y-p^)|sex=g]|-∑b|E[1p^∈b(y-p^)|sex=F]||≤0.03",
    ),
]


@pytest.mark.parametrize(("constraint", "text"), FORMULAS)
def test_formulas(constraint, text):
    found = "".join(ET.fromstring(formula_of(constraint)).itertext())
    assert found.replace("\N{MINUS SIGN}", "-") == text


def test_the_legend_names_the_bins():
    legend = legend_of([formula_of(calibration_error() <= 0.05)])
    assert "is a bin of probabilities of the positive class" in legend
    assert "is the label" in legend
