"""Verdicts of audits follow values, intervals and numbers of rows."""

import json

import numpy as np
import pandas as pd
import pytest
from audited import Decides

import gbm_constrained as gc


def decisions(wrong, n=1000):
    """All rows positive, the first so many missed; the negatives are right."""
    decided = np.ones(n)
    decided[:wrong] = 0
    return np.ones((2 * n, 1)), np.repeat([1, 0], n), Decides(np.r_[decided, np.zeros(n)])


@pytest.mark.parametrize(
    ("wrong", "rule", "verdict", "satisfied"),
    [
        (10, gc.fnr() <= 0.05, "met", True),
        (45, gc.fnr() <= 0.05, "met", True),
        (55, gc.fnr() <= 0.05, "missed within sampling error", False),
        (90, gc.fnr() <= 0.05, "missed", False),
        (10, gc.recall() >= 0.95, "met", True),
        (45, gc.recall() >= 0.95, "met", True),
        (55, gc.recall() >= 0.95, "missed within sampling error", False),
        (90, gc.recall() >= 0.95, "missed", False),
        (0, gc.fnr() <= 0.0, "met", True),
        (0, gc.fnr() <= 1.0, "met", True),
    ],
)
def test_verdicts(wrong, rule, verdict, satisfied):
    X, y, model = decisions(wrong)
    of = gc.audit(model, X, y, rule)
    assert of.frame["verdict"].tolist() == [verdict]
    assert of.frame["satisfied"].tolist() == [satisfied]
    low, high = of.frame.loc[0, ["low", "high"]]
    wrong_side = low > rule.bound if rule.sense == "<=" else high < rule.bound
    assert (verdict == "missed") == wrong_side
    beyond = high > rule.bound if rule.sense == "<=" else low < rule.bound
    (detail,) = of.frame["detail"]
    assert detail.startswith(verdict.split()[0])
    if verdict == "met":
        assert ("but the interval reaches beyond the bound" in detail) == beyond


def test_rules_that_print_alike_have_names_of_their_own():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(y), X, y, [gc.selection_rate(on=y == k) <= 0.4 for k in (0, 1)])
    names = [f"selection_rate[mask of 50 rows] <= 0.4{suffix}" for suffix in ("", " #2")]
    assert of.frame["constraint"].tolist() == names
    assert of.models[[f"value[{name}]" for name in names]].iloc[0].tolist() == [0.0, 1.0]
    pd.testing.assert_frame_equal(gc.Audit.from_json(of.to_json()).models, of.models)


def test_of_an_undefined_value_nothing_can_be_told():
    X, y = np.ones((100, 1)), np.repeat([0, 1], 50)
    of = gc.audit(Decides(np.zeros(100)), X, y, [gc.precision() >= 0.5, gc.fnr() <= 0.1])
    assert of.frame["verdict"].tolist() == ["cannot be told", "missed"]
    assert of.frame["satisfied"].isna().tolist() == [True, False]
    assert np.isnan(of.models["value[precision >= 0.5]"][0])
    assert of.models["violation"][0] == pytest.approx(0.9)
    assert "value" in json.loads(of.to_json())["constraints"][0]
    assert json.loads(of.to_json())["constraints"][0]["value"] is None
    assert "no value" in of.to_html()


@pytest.mark.filterwarnings("ignore:.*fewer than min_group_size")
def test_a_small_group_without_an_event_is_not_certified():
    """Nine rows without an error say little: resampling them would say that none ever has one."""
    group = np.repeat(["large", "small"], [2000, 9])
    decided = np.where(np.arange(2009) < 20, 0, 1)
    y = np.r_[np.ones(2009), [0]]
    model = Decides(np.r_[decided, [0]])
    given = {"sensitive_features": {"g": np.r_[group, ["large"]]}}
    rules = [gc.each(gc.fnr(), by="g") <= 0.05, gc.each(gc.recall(), by="g") >= 0.95]
    of = gc.audit(model, np.ones((2010, 1)), y, rules, **given)
    assert of.frame["value"].tolist() == pytest.approx([0.01, 0.99])
    assert of.frame["verdict"].tolist() == ["cannot be told", "cannot be told"]
    assert of.frame["detail"].str.contains("9 rows of g=small").all()
    small = 1 - 0.025 ** (1 / 9)
    assert of.frame.loc[0, "high"] == pytest.approx(small)
    assert of.frame.loc[1, "low"] == pytest.approx(1 - small)
    of = gc.audit(model, np.ones((2010, 1)), y, gc.each(gc.fnr(), by="g") <= 0.05 + small, **given)
    assert of.frame["verdict"].tolist() == ["met"]
    # Nor is the rule missed for certain because nobody of nine was found to be wrong.
    of = gc.audit(model, np.ones((2010, 1)), y, gc.ratio(gc.fnr(), by="g") >= 0.8, **given)
    assert of.frame.loc[0, "value":"high"].tolist() == pytest.approx([0.0, 0.0, 1.0])
    assert of.frame["verdict"].tolist() == ["cannot be told"]
