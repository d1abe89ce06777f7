"""Histories show the values and multipliers of a fit as they are."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import assert_line, fitted, labels

import gbm_constrained as gc
from gbm_constrained.plotting import COLOURS, ConstraintHistoryDisplay, MultipliersDisplay


def test_history_lines_are_the_columns_of_the_history(two_constraints):
    history = two_constraints.history_
    display = ConstraintHistoryDisplay.from_estimator(two_constraints)
    assert isinstance(display, ConstraintHistoryDisplay)
    assert display.figure_ is display.ax_.figure
    assert display.constraints == ("fnr <= 0.05", "fpr <= 0.2")
    lines = iter(display.ax_.get_lines())
    for constraint, colour in zip(display.constraints, COLOURS[:2], strict=True):
        for column, style in (("value", "-"), ("held_out", "--"), ("bound", ":")):
            line = next(lines)
            assert_line(line, history["rounds"], history[f"{column}[{constraint}]"])
            assert line.get_linestyle() == style
            assert line.get_color() == colour
    assert list(lines) == []


def test_constraints_that_print_alike_have_histories_of_their_own(data):
    """Two masks of as many rows print alike."""
    first = np.arange(300) < 150
    constraints = [
        gc.selection_rate(on=first) <= 0.1,
        gc.fnr() <= 0.5,
        gc.selection_rate(on=~first) <= 0.3,
    ]
    seen = []
    X, y = data[:2]
    model = gc.ConstrainedXGBClassifier(
        constraints=constraints, n_estimators=12, measure_on="train"
    )
    model.fit(X, y, constraint_callbacks=[seen.append])
    constraint = "selection_rate[mask of 150 rows] <= 0."
    names = (f"{constraint}1", "fnr <= 0.5", f"{constraint}3")
    same = fitted(data, [gc.selection_rate(on=m) <= 0.1 for m in (first, ~first)], held_out=False)
    assert tuple(seen[0].values.index) == names
    assert seen[0].rates.index.tolist() == [
        "selection_rate[mask of 150 rows]", "fnr", "selection_rate[mask of 150 rows] #2"
    ]  # fmt: skip
    names = (f"{constraint}1", f"{constraint}1 #2")
    assert same.multipliers_.index.tolist() == list(names)
    chosen = same.predict(X)
    last = same.history_.iloc[-1]
    for name, rows in zip(names, (first, ~first), strict=True):
        assert last[f"value[{name}]"] == pytest.approx(chosen[rows].mean())
    display = ConstraintHistoryDisplay.from_estimator(same, violation=True)
    assert display.constraints == names
    assert MultipliersDisplay.from_estimator(same).constraints == names


def test_multipliers_are_the_columns_of_the_history(two_constraints):
    history = two_constraints.history_
    display = MultipliersDisplay.from_estimator(two_constraints, names={"fpr <= 0.2": "alarms"})
    assert display.lines_ == list(display.ax_.get_lines())
    for line, constraint, colour in zip(
        display.lines_, display.constraints, COLOURS[:2], strict=True
    ):
        assert_line(line, history["rounds"], history[f"multiplier[{constraint}]"])
        assert line.get_color() == colour  # as in the history of values
    assert labels(display.ax_) == ["fnr <= 0.05", "alarms"]
    assert display.ax_.get_ylabel() == "multiplier"
    assert display.ax_.get_xlabel() == "boosting rounds"
    assert display.ax_.get_ylim()[0] < 0.0  # a line at zero is seen
    again = MultipliersDisplay(history).plot(legend=False)
    assert again.ax_.get_legend() is None


def test_multipliers_of_several_rows_are_added(data):
    X, y, *_ = data
    group = np.where(X[:, 0] > 0, "a", "b")
    model = gc.ConstrainedXGBClassifier(
        constraints=[gc.gap(gc.fpr(), by="g") <= 0.01],
        n_estimators=6,
        n_jobs=1,
        measure_on="train",
    ).fit(X, y, sensitive_features={"g": group}, verbose=False)
    (line,) = MultipliersDisplay.from_estimator(model).lines_
    assert line.get_ydata()[-1] == pytest.approx(model.multipliers_.sum())
    assert len(model.multipliers_) == 2


def test_history_labels(two_constraints):
    ax = ConstraintHistoryDisplay.from_estimator(two_constraints).ax_
    assert labels(ax) == ["fnr <= 0.05", "fpr <= 0.2", "training rows", "held-out rows", "bound"]
    assert ax.get_ylabel() == "constrained values (fraction)"
    assert ax.get_xlabel() == "boosting rounds"
    ax = ConstraintHistoryDisplay.from_estimator(
        two_constraints,
        train_name="train",
        held_out_name="test",
        names={"fnr <= 0.05": "missed frauds"},
    ).ax_
    assert labels(ax) == ["missed frauds", "fpr <= 0.2", "train", "test", "bound"]


def test_history_of_a_linear_model_counts_iterations(data):
    X, y, *_ = data
    model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.3], n_iterations=5).fit(
        X, y
    )
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        assert display.from_estimator(model).ax_.get_xlabel() == "iterations"


def test_one_constraint_names_the_axis(data):
    for constraint, name in (
        (gc.fnr() <= 0.05, "fnr"),
        (gc.recall(on={"g": "<= b"}) >= 0.9, "recall[g=<= b]"),
    ):
        groups = {"g": np.repeat(["<= b", "c"], 150)}
        X, y, *_ = data
        model = gc.ConstrainedXGBClassifier(
            constraints=[constraint], n_estimators=4, n_jobs=1, measure_on="train"
        ).fit(X, y, sensitive_features=groups, verbose=False)
        display = ConstraintHistoryDisplay.from_estimator(model)
        assert display.ax_.get_ylabel() == f"{name} (fraction)"


def test_violation_is_the_part_beyond_the_bound(data):
    constraints = [gc.fnr() <= 0.05, gc.precision() >= 0.8]
    history = fitted(data, constraints).history_
    ax = ConstraintHistoryDisplay(history).plot(violation=True).ax_
    lines = iter(ax.get_lines())
    for constraint, sign in zip(constraints, (1, -1), strict=True):
        for column in ("value", "held_out"):
            beyond = sign * (history[f"{column}[{constraint}]"] - history[f"bound[{constraint}]"])
            assert_line(next(lines), history["rounds"], beyond.clip(lower=0.0))
    assert list(lines) == []
    assert "bound" not in labels(ax)
    assert ax.get_ylabel() == "violation (fraction)"


def test_without_held_out_rows_there_is_no_dashed_line(data):
    model = fitted(data, [gc.fnr() <= 0.05], held_out=False, measure_on="train")
    ax = ConstraintHistoryDisplay.from_estimator(model).ax_
    assert [line.get_linestyle() for line in ax.get_lines()] == ["-", ":"]
    assert labels(ax) == ["fnr <= 0.05", "training rows", "bound"]


@pytest.mark.parametrize(
    ("constraints", "shown"),
    [
        ([gc.log_loss(on=gc.label(1)) <= 0.2], "log_loss[y=1] (nats)"),
        ([gc.gap(gc.log_loss(), by="g") <= 0.2], "gap(log_loss, by='g') (nats)"),
        ([gc.precision() >= 0.7], "precision (fraction)"),
        ([gc.fpr() - 0.5 * gc.fnr() <= 0.1], "fpr - 0.5 * fnr (fraction)"),
        ([gc.wins(over="old") / gc.losses(to="old") >= 2], "wins / losses"),
        ([gc.ratio(gc.log_loss(), by="g") >= 0.8], "ratio(log_loss, by='g')"),
        ([gc.fnr() <= 0.1, gc.wins(over="old") / gc.losses(to="old") >= 2], "constrained values"),
        ([gc.fnr() <= 0.1, gc.log_loss() <= 0.3], "constrained values"),
        ([gc.fnr() <= 0.1, gc.fpr() <= 0.3], "constrained values (fraction)"),
    ],
)
def test_units(constraints, shown):
    """Losses are in nats, rates are fractions, and what may be any number has no unit."""
    columns = {
        f"{kind}[{constraint}]": [0.3, 0.2]
        for constraint in constraints
        for kind in ("value", "bound")
    }
    history = pd.DataFrame({"rounds": [0, 1], **columns})
    assert ConstraintHistoryDisplay(history).plot().ax_.get_ylabel() == shown


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_history_draws_into_the_axes_given(display, two_constraints):
    _, axes = plt.subplots(1, 2)
    before = dict(matplotlib.rcParams)
    drawn = display.from_estimator(two_constraints, ax=axes[1])
    assert drawn.ax_ is axes[1]
    assert not axes[0].lines
    assert drawn.plot(axes[0]) is drawn
    assert drawn.ax_ is axes[0]
    assert len(plt.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("bound", [0.0, 1e-6, 1.0])
def test_scale_is_sensible_for_any_bound(data, bound):
    model = fitted(data, [gc.fnr() <= bound, gc.fpr() <= 1.0])
    ax = ConstraintHistoryDisplay.from_estimator(model).ax_
    ticks = ax.get_yticks()
    assert ticks[0] == 0.0
    assert 2 <= ticks.size <= 12
    assert ax.get_ylim()[0] < 0.0 < 1.0 <= ax.get_ylim()[1]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("violation", [False, True])
@pytest.mark.parametrize("largest", [0.05, 0.24, 0.39])
def test_values_about_the_bound_have_a_scale(largest, violation):
    values = [0.1, largest, 0.02]
    history = {"rounds": range(3), "value[fnr <= 0.2]": values, "bound[fnr <= 0.2]": 0.2}
    ax = ConstraintHistoryDisplay(pd.DataFrame(history)).plot(violation=violation).ax_
    low, high = ax.get_ylim()
    ticks = ax.get_yticks()
    assert ((ticks >= low) & (ticks <= high)).all()
    assert 3 <= ticks.size <= 7


@pytest.mark.parametrize(
    ("values", "bound"),
    [([0.0, -0.102, -0.083], 0.02), ([-0.5, -0.1], -0.1), ([0.3, -0.2], 0.001), ([0.0], 0.1)],
)
def test_differences_below_zero_are_in_sight(values, bound):
    history = pd.DataFrame(
        {
            "rounds": range(len(values)),
            f"value[a - b <= {bound}]": values,
            f"bound[a - b <= {bound}]": bound,
        }
    )
    ax = ConstraintHistoryDisplay(history).plot().ax_
    low, high = ax.get_ylim()
    assert low < min(*values, bound) <= max(*values, bound) < high
    ticks = ax.get_yticks()
    assert (0.0 in ticks) == (low <= 0.0 <= high)
    assert ((ticks >= low) & (ticks <= high)).all()
    assert (ticks < 0.0).any() == (min(values) < -abs(bound))
    inside = [t for t in ticks if abs(t) <= min(-low, high)]
    assert inside == [-t for t in reversed(inside)]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_fits_that_share_axes_are_all_in_sight(display, two_constraints):
    larger = two_constraints.history_
    numbers = larger.filter(regex="value|held_out|multiplier").columns
    smaller = larger.assign(**{name: 0.1 * larger[name] for name in numbers})
    for order in ((smaller, larger), (larger, smaller)):
        _, ax = plt.subplots()
        for history in order:
            display(history).plot(ax)
        ax.figure.canvas.draw()
        low, high = ax.get_ylim()
        drawn = np.concatenate([line.get_ydata() for line in ax.get_lines()])
        assert low < np.nanmin(drawn) <= np.nanmax(drawn) < high


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_history_of_nothing(display, data):
    with pytest.raises(TypeError, match="ConstrainedXGBClassifier has no history_"):
        display.from_estimator(gc.ConstrainedXGBClassifier(constraints=[gc.fnr() <= 0.1]))
    with pytest.raises(TypeError, match="fitted with constraints"):
        display.from_estimator(fitted(data, []))
    with pytest.raises(ValueError, match="holds no constraint"):
        display(pd.DataFrame({"rounds": [0]}))
    with pytest.raises(TypeError, match="history must be the history_"):
        display(fitted(data, [gc.fnr() <= 0.1]))


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_constraints_of_many_classes_are_told_apart(display):
    columns = {"rounds": range(30)}
    for k in range(28):
        for kind in ("value", "bound", "multiplier"):
            columns[f"{kind}[class_error({k}) <= 0.1]"] = k / 28
    ax = display(pd.DataFrame(columns)).plot().ax_
    shown = [(h.get_color(), h.get_marker()) for h in ax.get_legend().legend_handles[:28]]
    assert len(set(shown)) == 28
    drawn = {(line.get_color(), line.get_marker()) for line in ax.get_lines()}
    assert drawn == set(shown)
    assert {marker for _, marker in shown[:7]} == {"None"}


@pytest.mark.parametrize("n_rules", [1, 28])
@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_legends_of_histories_hide_nothing_in_figures_of_their_own(display, n_rules):
    """Lines that go everywhere leave no corner for a legend."""
    constraints = [gc.gap(gc.fpr(), by=["sex", f"column {j}"]) <= 0.1 for j in range(n_rules)]
    values = np.random.default_rng(0).random((20, n_rules))
    columns = {"rounds": range(20)}
    for constraint, column in zip(constraints, values.T, strict=True):
        columns |= {
            f"{kind}[{constraint}]": column for kind in ("value", "held_out", "multiplier")
        }
        columns[f"bound[{constraint}]"] = constraint.bound
    ax = display(pd.DataFrame(columns)).plot().ax_
    ax.figure.canvas.draw()
    legend, axes, inside = (
        ax.get_legend().get_window_extent(), ax.get_window_extent(), ax.figure.bbox
    )  # fmt: skip
    assert not legend.overlaps(axes)
    assert inside.x0 <= legend.x0 < legend.x1 <= inside.x1
    assert inside.y0 <= legend.y0 < legend.y1 <= inside.y1
    assert axes.width > 0.5 * inside.width
