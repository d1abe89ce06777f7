"""Constraints as formulas: what they read, their legend, and texts of users in them."""

import re
import xml.etree.ElementTree as ET

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.dummy import DummyClassifier

import gbm_constrained as gc
from gbm_constrained.constraints.rates import LOSSES
from gbm_constrained.reporting.mathml import DECISION, formula_of, legend_of

DEPLOYED = DummyClassifier()


def text_of(math):
    """What it reads, with a minus and a prime that are easy to type."""
    text = "".join(ET.fromstring(math).itertext())
    return text.replace("\N{MINUS SIGN}", "-").replace("\N{PRIME}", "'")


@pytest.mark.parametrize(
    ("constraint", "text"),
    [
        (gc.fnr() <= 0.05, "P(ŷ≠y|y=+)≤0.05"),
        (gc.fpr() <= 0.03, "P(ŷ=+|y=-)≤0.03"),
        (gc.tnr() >= 0.9, "P(ŷ=-|y=-)≥0.9"),
        (gc.tnr("SIRA") >= 0.9, "P(ŷ≠SIRA|y≠SIRA)≥0.9"),
        (gc.accuracy() >= 0.9, "P(ŷ=y)≥0.9"),
        (gc.recall("SIRA") >= 0.95, "P(ŷ=SIRA|y=SIRA)≥0.95"),
        (gc.fpr("SIRA") <= 0.1, "P(ŷ=SIRA|y≠SIRA)≤0.1"),
        (gc.class_error(3) <= 0.01, "P(ŷ≠y|y=3)≤0.01"),
        (gc.confusion(0, 2) <= 0.1, "P(ŷ=2|y=0)≤0.1"),
        (gc.confusion(0, 2, normalize="all") <= 0.1, "P(ŷ=2,y=0)≤0.1"),
        (gc.selection_rate(on=gc.dataset("monitor")) <= 0.1, "P(ŷ=+|x∈monitor)≤0.1"),
        (gc.fnr(on={"sex": "F", "age": 30}) <= 0.1, "P(ŷ≠y|y=+,sex=F,age=30)≤0.1"),
        (gc.fnr(on=np.array([True, False])) <= 0.1, "P(ŷ≠y|y=+,x∈mask of 1 rows)≤0.1"),
        (
            gc.fpr(on={"sex": "F"}) - 0.5 * gc.fpr() + 0.1 <= 0.02,
            "P(ŷ=+|y=-,sex=F)-0.5⋅P(ŷ=+|y=-)+0.1≤0.02",
        ),
        (-1.0 * gc.accuracy() <= -0.9, "-P(ŷ=y)≤-0.9"),
        (gc.log_loss(on=gc.label(1)) <= 0.3, "E[-logp̂(y)|y=1]≤0.3"),
        (gc.auc() >= 0.8, "P(s(x)>s(x')|x:y=+;x':y=-)≥0.8"),
        (gc.auc("SIRA") >= 0.8, "P(sSIRA(x)>sSIRA(x')|x:y=SIRA;x':y≠SIRA)≥0.8"),
        (
            gc.auc(on={"age": 30}, negatives={"sex": "F"}) <= 0.8,
            "P(s(x)>s(x')|x:y=+,age=30;x':y=-,age=30,sex=F)≤0.8",
        ),
        (
            gc.auc(negatives=np.array([True, False])) <= 0.8,
            "P(s(x)>s(x')|x:y=+;x':y=-,x'∈mask of 1 rows)≤0.8",
        ),
        (
            gc.gap(gc.auc(), by="sex") <= 0.02,
            "maxg,h|P(s(x)>s(x')|x:y=+,sex=g;x':y=-,sex=g)"
            "-P(s(x)>s(x')|x:y=+,sex=h;x':y=-,sex=h)|≤0.02",
        ),
        (
            gc.each(gc.cross_auc(), by="sex") >= 0.7,
            "mingP(s(x)>s(x')|x:y=+,sex=g;x':y=-,sex≠g)≥0.7",
        ),
        (
            gc.each(gc.cross_auc(group="negatives", background="all"), by="sex") >= 0.7,
            "mingP(s(x)>s(x')|x:y=+;x':y=-,sex=g)≥0.7",
        ),
        (
            gc.each(gc.mean_rank(on=gc.label(1)), by="sex") >= 0.4,
            "mingP(s(x)>s(x')|x:y=1,sex=g;x':y=1)≥0.4",
        ),
        (gc.precision() >= 0.9, "P(ŷ=+,y=+)P(ŷ=+,y=+)+P(ŷ=+,y=-)≥0.9"),
        (gc.churn(to="old") <= 0.02, "P(ŷ≠ŷold)≤0.02"),
        (gc.churn(to=DEPLOYED) <= 0.02, "P(ŷ≠ŷDummyClassifier)≤0.02"),
        (gc.wins(over="old") / gc.losses(to="old") >= 2, "P(ŷ=y,ŷold≠y)P(ŷ≠y,ŷold=y)≥2"),
        (gc.each(gc.recall(), by="region") >= 0.8, "mingP(ŷ=+|y=+,region=g)≥0.8"),
        (gc.each(gc.fpr(), by="region") <= 0.2, "maxgP(ŷ=+|y=-,region=g)≤0.2"),
        (gc.gap(gc.fpr(), by="sex") <= 0.02, "maxg,h|P(ŷ=+|y=-,sex=g)-P(ŷ=+|y=-,sex=h)|≤0.02"),
        (
            gc.gap(gc.selection_rate(), by=["sex", "race"]) <= 0.02,
            "maxg,h|P(ŷ=+|(sex,race)=g)-P(ŷ=+|(sex,race)=h)|≤0.02",
        ),
        (
            gc.gap(gc.selection_rate()) <= 0.02,
            "maxg,h|P(ŷ=+|sensitive features=g)-P(ŷ=+|sensitive features=h)|≤0.02",
        ),
        (
            gc.gap(gc.fpr(), by="sex", reference=gc.overall) <= 0.02,
            "maxg|P(ŷ=+|y=-,sex=g)-P(ŷ=+|y=-)|≤0.02",
        ),
        (
            gc.gap(gc.fpr() + gc.fnr(), by="sex", reference="F") <= 0.02,
            "maxg|P(ŷ=+|y=-,sex=g)+P(ŷ≠y|y=+,sex=g)-(P(ŷ=+|y=-,sex=F)+P(ŷ≠y|y=+,sex=F))|≤0.02",
        ),
        (gc.ratio(gc.selection_rate(), by="race") >= 0.8, "ming,hP(ŷ=+|race=g)P(ŷ=+|race=h)≥0.8"),
        (
            gc.ratio(gc.selection_rate(), by="race", reference=("A",), slack=0.1) >= 0.8,
            "ming{P(ŷ=+|race=g)+0.1P(ŷ=+|race=A),P(ŷ=+|race=A)+0.1P(ŷ=+|race=g)}≥0.8",
        ),
        (gc.mean_loss() <= 2, "E[(y-f)2]≤2"),
        (gc.mean_loss("absolute", on={"sex": "F"}) <= 2, "E[|y-f||sex=F]≤2"),
        (gc.mean_loss("huber", delta=0.5) <= 2, "E[H0.5(y-f)]≤2"),
        (gc.mean_loss("pinball", alpha=0.9) <= 2, "E[\N{GREEK SMALL LETTER RHO}0.9(y-f)]≤2"),
        (gc.mean_loss("poisson", weight="hours") <= 2, "Ehours[D(y,f)]≤2"),
        (gc.mean_residual() >= -1, "E[y-f]≥-1"),
        (gc.gap(gc.mean_prediction(), by="sex") <= 1, "maxg,h|E[f|sex=g]-E[f|sex=h]|≤1"),
        (gc.share_above(-3) <= 0.5, "P(f>-3)≤0.5"),
        (gc.coverage() >= 0.9, "P(y≤f)≥0.9"),
        (gc.calibration_error() <= 0.05, "∑b|E[1p̂∈b(y-p̂)]|≤0.05"),
        (gc.calibration_error(on={"sex": "F"}) <= 0.05, "∑b|E[1p̂∈b(y-p̂)|sex=F]|≤0.05"),
        (gc.each(gc.calibration_error(), by="sex") <= 0.05, "maxg∑b|E[1p̂∈b(y-p̂)|sex=g]|≤0.05"),
        (
            gc.gap(gc.calibration_error(), by="sex") <= 0.03,
            "maxg,h|∑b|E[1p̂∈b(y-p̂)|sex=g]|-∑b|E[1p̂∈b(y-p̂)|sex=h]||≤0.03",
        ),
        (
            gc.gap(gc.calibration_error(), by="sex", reference=gc.overall) <= 0.03,
            "maxg|∑b|E[1p̂∈b(y-p̂)|sex=g]|-∑b|E[1p̂∈b(y-p̂)]||≤0.03",
        ),
        (
            gc.gap(gc.calibration_error(), by="sex", reference="F") <= 0.03,
            "maxg|∑b|E[1p̂∈b(y-p̂)|sex=g]|-∑b|E[1p̂∈b(y-p̂)|sex=F]||≤0.03",
        ),
    ],
)
def test_mathematics(constraint, text):
    math = formula_of(constraint)
    assert text_of(math).replace("y^", "ŷ").replace("p^", "p̂") == text
    assert ET.fromstring(math).get("alttext") == str(constraint)


def test_mathematics_names_the_classes_that_are_known():
    shown = text_of(formula_of(gc.fpr() - gc.fnr() <= 0.1, ["bad", "good"]))
    assert shown == "P(y^=good|y=bad)-P(y^≠y|y=good)≤0.1"


@settings(max_examples=25)
@given(st.text(), st.text())
def test_texts_of_users_stay_texts(name, value):
    # XML has no control characters; HTML parsers read them, so that they do no harm.
    name, value = (re.sub(r"[\x00-\x1f\ud800-\udfff\ufffe\uffff]", "", t) for t in (name, value))
    for constraint in (
        gc.fpr(on={name: value}) <= 0.1,
        gc.gap(gc.fpr(), by=name, reference=value) <= 0.1,
    ):
        tree = ET.fromstring(formula_of(constraint))
        texts = [element.text or "" for element in tree.iter("mtext")]
        assert name in texts
        assert value in texts
        tags = {"math", "mrow", "mi", "mo", "mn", "mtext", "mover", "munder"}
        assert {element.tag for element in tree.iter()} <= tags


def test_the_legend_has_the_signs_of_the_formulas():
    """The very same elements, and of these only those that occur."""
    formulas = [formula_of(gc.fnr() <= 0.1), formula_of(gc.gap(gc.fpr(), by="g") <= 0.1)]
    legend = legend_of(formulas)
    signs = re.findall(r"<math>(.*?)</math>", legend)
    assert all(any(sign in formula for formula in formulas) for sign in signs)
    assert [text_of(f"<math>{sign}</math>") for sign in signs] == [
        "y^", "y", "+", "-", "g", "h"
    ]  # fmt: skip
    assert legend_of([formula_of(gc.fnr() <= 0.1, [0, 1])]) == (
        f"<math>{DECISION}</math> is the decision and <math><mi>y</mi></math> is the label."
    )
    assert "probability" in legend_of([formula_of(gc.log_loss() <= 0.5)])
    of_pairs = legend_of([formula_of(gc.gap(gc.mean_rank(), by="g") <= 0.5)])
    assert "<math><mi>s</mi></math> is the score" in of_pairs
    assert "is another row, and half of the ties of scores count" in of_pairs
    assert "label" not in of_pairs
    of_losses = legend_of([formula_of(gc.mean_loss("huber") <= 1)])
    for meaning in ("is the target", "is the prediction", "is Huber's loss"):
        assert meaning in of_losses
    assert "decision" not in of_losses
    of_bins = legend_of([formula_of(gc.calibration_error() <= 0.05)])
    assert "is a bin of probabilities of the positive class" in of_bins
    assert "is the label" in of_bins


@pytest.mark.parametrize("loss", LOSSES)
def test_each_loss_of_regressors_has_a_formula(loss):
    tree = ET.fromstring(formula_of(gc.mean_loss(loss) <= 1.0))
    assert tree.tag.endswith("math")
