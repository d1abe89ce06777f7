"""Trade-offs show the points, intervals and bounds of a curve."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import assert_line, curve, labels

import gbm_constrained as gc
from gbm_constrained.plotting import TradeoffDisplay, plot_tradeoff


@pytest.fixture
def points():
    return pd.DataFrame(
        {
            "rows": ["train", "train", "test", "test"],
            "bound": ["none", "0.1", "none", None],
            "misses": [0.2, 0.1, 0.3, 0.2],
            "alarms": [0.01, 0.03, 0.02, 0.05],
        }
    )


def test_trade_off_draws_one_line_per_series(points):
    _, ax = plt.subplots()
    styles = {"test": {"color": "black", "marker": "x"}}
    returned = plot_tradeoff(
        points, ax, x="misses", y="alarms", bound=None, series="rows", label="bound", styles=styles
    )
    assert returned is ax
    train, test = ax.get_lines()
    assert_line(train, [0.2, 0.1], [0.01, 0.03])
    assert_line(test, [0.3, 0.2], [0.02, 0.05])
    assert (test.get_color(), test.get_marker()) == ("black", "x")
    assert labels(ax) == ["train", "test"]
    assert [text.get_text() for text in ax.texts] == ["none", "0.1", "none"]
    assert [text.xy for text in ax.texts] == [(0.2, 0.01), (0.1, 0.03), (0.3, 0.02)]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("misses", "alarms")


@pytest.mark.parametrize(
    ("axes", "across"),
    [
        (("value", "accuracy"), 0),
        (("accuracy", "value"), 1),
        (("bound", "value"), 1),
        (("train", "accuracy"), 0),
        (("accuracy", "train"), 1),
        (("train", "value"), 1),
        (("multiplier", "accuracy"), None),
    ],
)
def test_bounds_are_drawn_across_the_axis_of_what_they_bound(axes, across):
    points = curve().assign(train=[0.16, 0.11], multiplier=[0.0, 0.4])
    ax = plot_tradeoff(points, x=axes[0], y=axes[1])
    dotted = [line for line in ax.get_lines() if line.get_linestyle() == ":"]
    if across is None:
        assert dotted == []
        return
    ends = [np.column_stack(line.get_data()) for line in dotted]
    assert [set(e[:, across]) for e in ends] == [{0.1}, {0.2}]
    own = curve().rename(columns={"value": "misses"})  # a table that names its columns itself
    dotted = plot_tradeoff(own, x="misses").get_lines()[:2]
    assert [line.get_xdata() for line in dotted] == [[0.1, 0.1], [0.2, 0.2]]


def test_trade_off_of_one_series_needs_no_legend(points):
    ax = plot_tradeoff(points, x="misses", y="alarms", bound=None)
    assert_line(ax.get_lines()[0], points["misses"], points["alarms"])
    assert ax.get_legend() is None
    assert not ax.texts


def test_tradeoff_draws_intervals_bounds_and_the_plain_model():
    ax = plot_tradeoff(curve(), plain=(0.3, 0.91), label="bound")
    *bounds, points, cross = ax.get_lines()
    assert [line.get_xdata()[0] for line in bounds] == [0.1, 0.2]
    assert_line(points, [0.15, 0.12], [0.9, 0.88])
    assert_line(cross, [0.3], [0.91])
    horizontal, vertical = (c.get_segments() for c in ax.collections)
    np.testing.assert_allclose(horizontal[0], [[0.12, 0.9], [0.19, 0.9]])
    np.testing.assert_allclose(vertical[1], [[0.12, 0.87], [0.12, 0.89]])
    assert labels(ax) == ["bounds", "models", "without the constraint", "intervals"]
    assert [text.get_text() for text in ax.texts] == ["0.2", "0.1"]
    ax = plot_tradeoff(curve()[["bound", "value", "accuracy"]], bound=None)
    assert not ax.collections
    assert len(ax.get_lines()) == 1
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("value (fraction)", "accuracy (fraction)")


def test_tradeoff_of_pair_rates_draws_the_auc():
    points = curve().assign(auc=[0.9, 0.85], auc_low=[0.88, 0.83], auc_high=[0.92, 0.88])
    points["constraint"] = [f"gap(auc, by='g') <= {bound}" for bound in points["bound"]]
    ax = plot_tradeoff(points)
    drawn = next(line for line in ax.get_lines() if line.get_marker() == "o")
    assert_line(drawn, points["value"], [0.9, 0.85])
    assert ax.get_ylabel().startswith("AUC")
    assert ax.get_xlabel().startswith("gap(auc, by='g')")
    ax = plot_tradeoff(points, y="accuracy")
    assert ax.get_ylabel().startswith("accuracy")


def test_tradeoff_of_wins_over_no_losses_is_drawn():
    """No bar reaches an infinite value; the others keep theirs."""
    table = curve()
    table.loc[0, ["value", "value_high"]] = np.inf
    ax = plot_tradeoff(table)
    ax.figure.canvas.draw()
    horizontal, _ = (c.get_segments() for c in ax.collections)
    np.testing.assert_allclose(horizontal[-1], [[0.1, 0.88], [0.13, 0.88]])
    assert_line(ax.get_lines()[-1], [np.inf, 0.12], [0.9, 0.88])


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tradeoff_of_an_estimator_is_its_curve(data):
    X, y, X_test, y_test = data
    model = gc.ConstrainedXGBClassifier(
        constraints=[gc.fnr() <= 0.1], n_estimators=6, max_depth=2, n_jobs=1, measure_on="train"
    )
    test = {"X_test": X_test, "y_test": y_test, "verbose": False}
    _, ax = plt.subplots()
    display = TradeoffDisplay.from_estimator(
        model, X, y, [0.1, 0.4], ax=ax, plot_options={"label": "bound"}, **test
    )
    expected = gc.tradeoff_curve(model, X, y, [0.1, 0.4], **test)
    pd.testing.assert_frame_equal(
        display.curve.drop(columns="seconds"), expected.drop(columns="seconds")
    )
    assert display.ax_ is ax
    assert display.figure_ is ax.figure
    assert ax.get_xlabel() == "fnr, test rows (fraction)"
    assert ax.get_ylabel() == "accuracy, test rows (fraction)"
    assert [text.get_text() for text in ax.texts] == ["0.4", "0.1"]
    again = display.plot()
    assert again is display
    assert display.ax_ is not ax


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_tradeoff_of_several_constraints_has_a_line_for_each(data):
    X, y, *_ = data
    model = gc.ConstrainedXGBClassifier(
        n_estimators=4, max_depth=2, n_jobs=1, measure_on=gc.CrossFit(2)
    )
    display = TradeoffDisplay.from_estimator(
        model, X, y, [0.5, 0.3], constraint=lambda b: [gc.fnr() <= b, gc.recall() >= 1 - b],
        verbose=False,
    )  # fmt: skip
    *_, first, second = display.ax_.get_lines()
    assert (first.get_label(), second.get_label()) == ("fnr", "recall")
    values = display.curve["value"].to_numpy()
    np.testing.assert_array_equal(first.get_xdata(), values[::2])
    np.testing.assert_array_equal(second.get_xdata(), values[1::2])
    assert display.ax_.get_xlabel() == "value, out of fold (fraction)"
