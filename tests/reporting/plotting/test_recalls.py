"""Recalls of classes are those of scikit-learn, with Clopper and Pearson's intervals."""

import numpy as np
import pandas as pd
import pytest
from drawing import Fixed, assert_line, labels
from scipy.stats import binomtest
from sklearn.metrics import recall_score

from gbm_constrained.plotting import ClassRecallsDisplay


def test_recalls_and_intervals(decided):
    y, predicted, _, weight = decided
    display = ClassRecallsDisplay.from_predictions(y, predicted, level=0.9)
    table = display.recalls["predictions"]
    np.testing.assert_allclose(table["recall"], recall_score(y, predicted, average=None))
    for k, row in table.iterrows():
        exact = binomtest(int(np.sum((predicted == k) & (y == k))), int((y == k).sum()))
        ends = exact.proportion_ci(0.9)
        np.testing.assert_allclose([row["low"], row["high"]], [ends.low, ends.high])
    assert table["rows"].tolist() == np.bincount(y).tolist()
    weighted = ClassRecallsDisplay.from_predictions(y, predicted, sample_weight=weight)
    expected = recall_score(y, predicted, average=None, sample_weight=weight)
    np.testing.assert_allclose(weighted.recalls["predictions"]["recall"], expected)


def test_probabilities_of_decisions_count_by_their_mean():
    y = np.array(["a", "a", "b", "c"])
    shares = pd.DataFrame([[0.5, 0.5], [1.0, 0.0], [0.25, 0.75], [0.0, 1.0]], columns=["a", "b"])
    display = ClassRecallsDisplay.from_predictions(y, shares)
    assert display.recalls["predictions"]["recall"].tolist() == [0.75, 0.75, 0.0]


class Mixed(Fixed):
    """A model that draws its decisions."""

    classes_ = np.array([0, 1])

    def decision_probabilities(self, X):
        return np.column_stack([1.0 - self.decisions, self.decisions])


def test_others_are_drawn_first_and_mixtures_are_not_drawn(decided):
    y, predicted, *_ = decided
    X = np.zeros((y.size, 1))
    after = Mixed(0.25 + 0.5 * predicted)
    display = ClassRecallsDisplay.from_estimator(
        after, X, y, others={"before": Fixed(predicted)}, name="after"
    )
    assert list(display.recalls) == ["before", "after"]
    assert labels(display.ax_) == ["before, 95% intervals", "after, 95% intervals"]
    before, drawn = (display.recalls[name]["recall"].to_numpy() for name in display.recalls)
    np.testing.assert_allclose(drawn, 0.25 + 0.5 * before)
    points = [line for line in display.ax_.get_lines() if "intervals" in line.get_label()]
    for line, recalls, shift in zip(points, (before, drawn), (-0.11, 0.11), strict=True):
        assert_line(line, recalls, np.arange(2) + shift)
    assert display.figure_ is display.ax_.figure


def test_bad_input_is_named(decided):
    y, predicted, *_ = decided
    with pytest.raises(ValueError, match="y_pred has 5 rows and y_true has 600"):
        ClassRecallsDisplay.from_predictions(y, predicted[:5])
    with pytest.raises(ValueError, match="level"):
        ClassRecallsDisplay.from_predictions(y, predicted, level=1.5)
    with pytest.raises(ValueError, match="no classifier"):
        ClassRecallsDisplay({})
    with pytest.raises(ValueError, match="'recall' is not a column"):
        ClassRecallsDisplay({"a": pd.DataFrame({"class": [0], "rows": [1]})})
