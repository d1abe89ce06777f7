"""Values by period are drawn with their intervals, bounds, and what drifts."""

import numpy as np
import pandas as pd
import pytest
from drawing import Fixed

import gbm_constrained as gc
from gbm_constrained.plotting import plot_periods


def audited(*, drifts):
    rng = np.random.default_rng(0)
    time = np.repeat(np.arange(4), 500)
    y = rng.integers(0, 2, 2000)
    wrong = rng.random(2000) < np.where(drifts & (time == 3), 0.5, 0.1)
    rules = [gc.fnr() <= 0.2, gc.fpr() <= 0.3]
    model = Fixed(np.where(wrong, 1 - y, y))
    return gc.audit(model, np.zeros((2000, 1)), y, rules, time=time, n_periods=4).periods


def test_values_and_bounds_are_those_of_the_table():
    frame = audited(drifts=False)
    ax = plot_periods(frame)
    for i, (name, part) in enumerate(frame.groupby("constraint", sort=False)):
        drawn = ax.containers[i]
        assert drawn.get_label() == name
        np.testing.assert_array_equal(drawn.lines[0].get_ydata(), part["value"])
        (bars,) = drawn.lines[2]
        ends = np.array([segment[:, 1] for segment in bars.get_segments()])
        np.testing.assert_allclose(ends, part[["low", "high"]], atol=1e-12)
    assert [line.get_ydata()[0] for line in ax.get_lines() if line.get_linestyle() == "--"] == [
        0.2,
        0.3,
    ]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2", "3"]


def test_what_drifts_has_a_ring_and_the_expected_interval():
    frame = audited(drifts=True)
    assert frame["drifts"].dropna().all()
    plain, ax = plot_periods(audited(drifts=False)), plot_periods(frame)
    assert len(ax.get_lines()) == len(plain.get_lines()) + 4
    rings = [line for line in ax.get_lines() if line.get_fillstyle() == "none"]
    last = frame.groupby("constraint", sort=False).tail(1)
    assert [line.get_ydata()[0] for line in rings] == last["value"].tolist()


def test_other_tables_are_refused():
    with pytest.raises(ValueError, match="is not a column of the table"):
        plot_periods(pd.DataFrame({"value": [1.0]}))
    with pytest.raises(ValueError, match="frame holds no period: give time="):
        plot_periods(audited(drifts=False).iloc[:0])
