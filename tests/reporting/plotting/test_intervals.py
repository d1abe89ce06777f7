"""Intervals of constraints, at all times and by period, are drawn at their values."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import Fixed
from matplotlib.colors import to_hex

import gbm_constrained as gc
from gbm_constrained.evaluation.verdicts import KINDS
from gbm_constrained.plotting import COLOURS, ConstraintIntervalsDisplay, plot_periods


def record(**changes):
    plain = {"constraint": "fnr <= 0.2", "sense": "<=", "bound": 0.2, "value": 0.1, "low": 0.05,
             "high": 0.15, "verdict": "met"}  # fmt: skip
    return {**plain, **changes}


def drawn(**changes):
    display = ConstraintIntervalsDisplay(pd.DataFrame([record(**changes)])).plot()
    (ax,) = display.axes_
    bound, *lines = ax.get_lines()
    display.figure_.canvas.draw()
    return ax, bound, lines


def test_intervals_of_an_estimator_are_those_of_its_audit(decided):
    y, predicted, columns, weight = decided
    X = np.zeros((y.size, 1))
    constraints = [gc.fnr() <= 0.3, gc.gap(gc.fpr(), by="g") <= 0.01, gc.precision() >= 0.9]
    given = {"sensitive_features": columns, "sample_weight": weight}
    display = ConstraintIntervalsDisplay.from_estimator(
        Fixed(predicted), X, y, constraints, **given
    )
    frame = gc.audit(Fixed(predicted), X, y, constraints, **given).frame
    pd.testing.assert_frame_equal(display.frame, frame)
    assert display.figure_ is display.ax_.figure
    assert len(display.axes_) == 3
    for ax, row in zip(display.axes_, frame.itertuples(), strict=True):
        bound, bar, point = ax.get_lines()
        assert bound.get_xdata() == [row.bound] * 2
        assert list(bar.get_xdata()) == [row.low, row.high]
        assert list(point.get_xdata()) == [row.value]
        assert ax.get_title("left") == row.constraint
        assert ax.get_title("right") == row.verdict
        left, right = ax.get_xlim()
        assert left <= min(row.low, row.bound) < max(row.high, row.bound) < right


@pytest.mark.parametrize(("sense", "is_left"), [("<=", True), (">=", False)])
def test_the_side_that_is_allowed_is_shaded(sense, is_left):
    ax, _, _ = drawn(sense=sense)
    (span,) = ax.patches
    ends = span.get_extents().transformed(ax.transData.inverted()).intervalx
    left, right = ax.get_xlim()
    np.testing.assert_allclose(ends, (left, 0.2) if is_left else (0.2, right))


def test_verdicts_differ_by_shape_and_word():
    looks = set()
    for verdict in KINDS:
        ax, _, (_, point) = drawn(verdict=verdict)
        looks.add((point.get_marker(), ax.get_title("right")))
        assert to_hex(point.get_color()).upper() in COLOURS
    assert len({marker for marker, _ in looks}) == len({name for _, name in looks}) == len(KINDS)


@pytest.mark.parametrize(
    ("value", "low", "n_lines", "title"),
    [
        (np.nan, np.nan, 0, "met (no value)"),
        (np.inf, 2.0, 0, "met (infinite)"),
        (0.1, np.nan, 1, "met"),
    ],
)
def test_what_is_not_finite_is_not_drawn(value, low, n_lines, title):
    ax, _, lines = drawn(value=value, low=low, high=np.inf)
    assert len(lines) == n_lines
    assert ax.get_title("right") == title
    assert np.isfinite(ax.get_xlim()).all()


@pytest.mark.parametrize("low", [-0.1, 0.01])
def test_only_differences_go_below_zero(low):
    ax, _, _ = drawn(low=low)
    assert (ax.get_xlim()[0] < 0.0) == (low < 0.0)


def test_long_names_leave_room_for_the_verdict():
    ax, _, _ = drawn(constraint="very " * 40 + "$long_", verdict="missed within sampling error")
    name, verdict = ax._left_title.get_window_extent(), ax._right_title.get_window_extent()
    assert not name.overlaps(verdict)
    assert name.x0 >= 0.0


def test_it_draws_into_the_axes_given():
    _, axes = plt.subplots(1, 2)
    display = ConstraintIntervalsDisplay(pd.DataFrame([record()] * 3)).plot(axes[1])
    assert display.ax_ is axes[1]
    assert axes[1].child_axes == display.axes_
    assert len(plt.get_fignums()) == 1


def test_columns_that_are_missing_are_named():
    with pytest.raises(ValueError, match="verdict='verdict' is not a column of the table"):
        ConstraintIntervalsDisplay(pd.DataFrame([record()]).drop(columns="verdict"))
    with pytest.raises(ValueError, match="holds no constraint: give one row for each"):
        ConstraintIntervalsDisplay(pd.DataFrame([record()]).iloc[:0])


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
    *bounds, named = (line for line in ax.get_lines() if line.get_linestyle() == "--")
    assert [line.get_ydata()[0] for line in bounds] == [0.2, 0.3]
    assert named.get_label() == "bound"
    legend = [text.get_text() for text in ax.get_legend().get_texts()]
    assert legend == [*frame["constraint"].unique(), "bound"]
    assert [tick.get_text() for tick in ax.get_xticklabels()] == ["0", "1", "2", "3"]


def test_what_drifts_has_a_ring_and_the_expected_interval():
    frame = audited(drifts=True)
    assert frame["drifts"].dropna().all()
    plain, ax = plot_periods(audited(drifts=False)), plot_periods(frame)
    assert len(ax.get_lines()) == len(plain.get_lines()) + 6
    *rings, named = (line for line in ax.get_lines() if line.get_fillstyle() == "none")
    assert named.get_label() == "value that drifts"
    last = frame.groupby("constraint", sort=False).tail(1)
    assert [line.get_ydata()[0] for line in rings] == last["value"].tolist()


def test_other_tables_are_refused():
    with pytest.raises(ValueError, match="is not a column of the table"):
        plot_periods(pd.DataFrame({"value": [1.0]}))
    with pytest.raises(ValueError, match="frame holds no period: give time="):
        plot_periods(audited(drifts=False).iloc[:0])
