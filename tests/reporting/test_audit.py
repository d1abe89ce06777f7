"""Audits print, sum themselves up in a headline, and are read back from JSON."""

import json

import numpy as np
import pandas as pd
import pytest

import gbm_constrained as gc


class Decides:
    """A model without classes, scores and probabilities."""

    def __init__(self, decisions):
        self.decisions = np.asanyarray(decisions)

    def predict(self, X):
        return self.decisions


def test_headlines():
    """45 of 1,000 positives are missed."""
    X, y = np.ones((2000, 1)), np.repeat([1, 0], 1000)
    model = Decides(np.where(np.arange(2000) < 45, 0, y))
    bounds = [gc.fnr() <= 0.1, gc.fnr() <= 0.05, gc.fnr() <= 0.01]
    missed = [gc.fnr() <= 0.044, gc.fnr() <= 0.01, gc.fnr() <= 0.1]
    for constraints, headline in (
        (bounds[:1], "The constraint is met"),
        (bounds[:2], "Both constraints are met"),
        (bounds, "2 of 3 constraints are met on 2,000 held-out rows; 1 missed."),
        ([bounds[0]] * 3, "All 3 constraints are met"),
        (missed, "1 of 3 constraints is met on 2,000 held-out rows; 1 missed within sampling "
                 "error, 1 missed."),
        (missed[:1], "The constraint is missed within sampling error"),
    ):  # fmt: skip
        end = "" if headline.endswith(".") else " on 2,000 held-out rows."
        assert gc.audit(model, X, y, constraints).headline == headline + end
    nobody = gc.audit(Decides(np.zeros(2000)), X, y, gc.precision() >= 0.5).headline
    assert nobody == "Whether the constraint is met cannot be told on 2,000 held-out rows."


def test_it_prints_a_compact_table(full):
    text = str(full)
    assert text.startswith("Audit of ConstrainedLGBMClassifier. ")
    assert full.headline in text
    for row in full.frame.itertuples():
        lines = [line for line in text.splitlines() if line.lstrip().startswith(row.constraint)]
        assert lines[0].endswith(row.verdict)
    assert repr(full) == text


def test_json_round_trips(full):
    def refuse(constant):
        raise AssertionError(constant)

    text = full.to_json()
    content = json.loads(text, parse_constant=refuse)  # NaN and Infinity are no JSON
    assert list(content) == [
        "format", "model", "headline", "n_rows", "level", "weighted", "classes", "accuracy",
        "quality", "constraints", "groups", "models", "history", "metrics", "periods",
    ]  # fmt: skip
    assert list(content["constraints"][0]) == [
        "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
        "detail",
    ]  # fmt: skip
    again = gc.Audit.from_json(text)
    assert again.to_json() == text
    assert again.to_html() == full.to_html()
    for name in ("frame", "groups", "models", "history"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(full, name))
    assert again.accuracy == full.accuracy
    with pytest.raises(ValueError, match="text must be what Audit"):
        gc.Audit.from_json("{}")
    with pytest.raises(ValueError, match=r"its format is 'gbm_constrained\.audit/1': audit the"):
        gc.Audit.from_json(text.replace("audit/2", "audit/1", 1))


def test_json_of_infinite_values():
    y = np.repeat([0, 1], 50)
    wins = gc.wins(over=1 - y) / gc.losses(to=1 - y) >= 2.0
    of = gc.audit(Decides(y), np.ones((100, 1)), y, wins)
    assert of.frame["value"].tolist() == [np.inf]
    assert json.loads(of.to_json())["constraints"][0]["value"] == "Infinity"
    again = gc.Audit.from_json(of.to_json())
    assert again.frame["value"].tolist() == [np.inf]
    assert "\N{INFINITY}" in again.to_html()
