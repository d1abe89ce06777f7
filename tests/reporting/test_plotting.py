"""The figures show what the history holds, and ask for matplotlib only when it is needed."""

import io
import subprocess
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import confusion_matrix, roc_curve

from gbm_constrained import (
    ConstrainedLogisticRegression,
    ConstrainedXGBClassifier,
    each,
    fnr,
    fpr,
    gap,
    label,
    log_loss,
    losses,
    overall,
    precision,
    ratio,
    recall,
    selection_rate,
    tradeoff_curve,
    wins,
)
from gbm_constrained.plotting import (
    COLOURS,
    ConstraintHistoryDisplay,
    GroupConfusionDisplay,
    GroupRatesDisplay,
    MultipliersDisplay,
    TradeoffDisplay,
    plot_np_roc,
    plot_requested,
    plot_threshold_curve,
    plot_tradeoff,
)
from gbm_constrained.statistics.binomial import clopper_pearson

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402
from matplotlib.cbook import STEP_LOOKUP_MAP  # noqa: E402
from matplotlib.colors import to_rgb  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(400, 6, n_informative=4, weights=[0.8], random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


def fitted(data, constraints, held_out=True, **options):
    X, y, X_held, y_held = data
    model = ConstrainedXGBClassifier(
        constraints=constraints,
        n_estimators=12,
        max_depth=2,
        n_jobs=1,
        random_state=0,
        **{"measure_on": "train", **options},
    )
    return model.fit(X, y, eval_set=[(X_held, y_held)] if held_out else None, verbose=False)


@pytest.fixture(scope="module")
def two_rules(data):
    return fitted(data, [fnr() <= 0.05, fpr() <= 0.2])


def labels(ax):
    return [text.get_text() for text in ax.get_legend().get_texts()]


def assert_line(line, x, y):
    np.testing.assert_array_equal(line.get_xdata(), x)
    np.testing.assert_array_equal(line.get_ydata(), y)


def test_history_lines_are_the_columns_of_the_history(two_rules):
    history = two_rules.history_
    display = ConstraintHistoryDisplay.from_estimator(two_rules)
    assert isinstance(display, ConstraintHistoryDisplay)
    assert display.figure_ is display.ax_.figure
    assert display.constraints == ("fnr <= 0.05", "fpr <= 0.2")
    lines = iter(display.ax_.get_lines())
    for rule, colour in zip(display.constraints, COLOURS[:2], strict=True):
        for column, style in (("value", "-"), ("held_out", "--"), ("bound", ":")):
            line = next(lines)
            assert_line(line, history["rounds"], history[f"{column}[{rule}]"])
            assert line.get_linestyle() == style
            assert line.get_color() == colour
    assert list(lines) == []


def test_rules_that_print_alike_have_histories_of_their_own(data):
    """Two masks of as many rows print alike."""
    first = np.arange(300) < 150
    rules = [selection_rate(on=first) <= 0.1, fnr() <= 0.5, selection_rate(on=~first) <= 0.3]
    seen = []
    X, y = data[:2]
    model = ConstrainedXGBClassifier(constraints=rules, n_estimators=12, measure_on="train")
    model.fit(X, y, constraint_callbacks=[seen.append])
    rule = "selection_rate[mask of 150 rows] <= 0."
    names = (f"{rule}1", "fnr <= 0.5", f"{rule}3")
    same = fitted(data, [selection_rate(on=m) <= 0.1 for m in (first, ~first)], held_out=False)
    assert tuple(seen[0].values.index) == names
    assert seen[0].rates.index.tolist() == [
        "selection_rate[mask of 150 rows]", "fnr", "selection_rate[mask of 150 rows] #2"
    ]  # fmt: skip
    names = (f"{rule}1", f"{rule}1 #2")
    assert same.multipliers_.index.tolist() == list(names)
    chosen = same.predict(X)
    last = same.history_.iloc[-1]
    for name, rows in zip(names, (first, ~first), strict=True):
        assert last[f"value[{name}]"] == pytest.approx(chosen[rows].mean())
    display = ConstraintHistoryDisplay.from_estimator(same, violation=True)
    assert display.constraints == names
    assert MultipliersDisplay.from_estimator(same).constraints == names


def test_multipliers_are_the_columns_of_the_history(two_rules):
    history = two_rules.history_
    display = MultipliersDisplay.from_estimator(two_rules, names={"fpr <= 0.2": "alarms"})
    assert display.lines_ == list(display.ax_.get_lines())
    for line, rule, colour in zip(display.lines_, display.constraints, COLOURS[:2], strict=True):
        assert_line(line, history["rounds"], history[f"multiplier[{rule}]"])
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
    model = ConstrainedXGBClassifier(
        constraints=[gap(fpr(), by="g") <= 0.01], n_estimators=6, n_jobs=1, measure_on="train"
    ).fit(X, y, sensitive_features={"g": group}, verbose=False)
    (line,) = MultipliersDisplay.from_estimator(model).lines_
    assert line.get_ydata()[-1] == pytest.approx(model.multipliers_.sum())
    assert len(model.multipliers_) == 2


def test_history_labels(two_rules):
    ax = ConstraintHistoryDisplay.from_estimator(two_rules).ax_
    assert labels(ax) == ["fnr <= 0.05", "fpr <= 0.2", "training rows", "held-out rows", "bound"]
    assert ax.get_ylabel() == "constrained values (fraction)"
    assert ax.get_xlabel() == "boosting rounds"
    ax = ConstraintHistoryDisplay.from_estimator(
        two_rules,
        train_name="train",
        held_out_name="test",
        names={"fnr <= 0.05": "missed frauds"},
    ).ax_
    assert labels(ax) == ["missed frauds", "fpr <= 0.2", "train", "test", "bound"]


def test_history_of_a_linear_model_counts_iterations(data):
    X, y, *_ = data
    model = ConstrainedLogisticRegression(constraints=[fnr() <= 0.3], n_iterations=5).fit(X, y)
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        assert display.from_estimator(model).ax_.get_xlabel() == "iterations"


def test_one_rule_names_the_axis(data):
    for rule, name in (
        (fnr() <= 0.05, "fnr"),
        (recall(on={"g": "<= b"}) >= 0.9, "recall[g=<= b]"),
    ):
        groups = {"g": np.repeat(["<= b", "c"], 150)}
        X, y, *_ = data
        model = ConstrainedXGBClassifier(
            constraints=[rule], n_estimators=4, n_jobs=1, measure_on="train"
        ).fit(X, y, sensitive_features=groups, verbose=False)
        display = ConstraintHistoryDisplay.from_estimator(model)
        assert display.ax_.get_ylabel() == f"{name} (fraction)"


def test_violation_is_the_part_beyond_the_bound(data):
    rules = [fnr() <= 0.05, precision() >= 0.8]
    history = fitted(data, rules).history_
    ax = ConstraintHistoryDisplay(history).plot(violation=True).ax_
    lines = iter(ax.get_lines())
    for rule, sign in zip(rules, (1, -1), strict=True):
        for column in ("value", "held_out"):
            beyond = sign * (history[f"{column}[{rule}]"] - history[f"bound[{rule}]"])
            assert_line(next(lines), history["rounds"], beyond.clip(lower=0.0))
    assert list(lines) == []
    assert "bound" not in labels(ax)
    assert ax.get_ylabel() == "violation (fraction)"


def test_without_held_out_rows_there_is_no_dashed_line(data):
    model = fitted(data, [fnr() <= 0.05], held_out=False, measure_on="train")
    ax = ConstraintHistoryDisplay.from_estimator(model).ax_
    assert [line.get_linestyle() for line in ax.get_lines()] == ["-", ":"]
    assert labels(ax) == ["fnr <= 0.05", "training rows", "bound"]


@pytest.mark.parametrize(
    ("rules", "shown"),
    [
        ([log_loss(on=label(1)) <= 0.2], "log_loss[y=1] (nats)"),
        ([gap(log_loss(), by="g") <= 0.2], "gap(log_loss, by='g') (nats)"),
        ([precision() >= 0.7], "precision (fraction)"),
        ([fpr() - 0.5 * fnr() <= 0.1], "fpr - 0.5 * fnr (fraction)"),
        ([wins(over="old") / losses(to="old") >= 2], "(wins) / (losses)"),
        ([ratio(log_loss(), by="g") >= 0.8], "ratio(log_loss, by='g')"),
        ([fnr() <= 0.1, wins(over="old") / losses(to="old") >= 2], "constrained values"),
        ([fnr() <= 0.1, log_loss() <= 0.3], "constrained values"),
        ([fnr() <= 0.1, fpr() <= 0.3], "constrained values (fraction)"),
    ],
)
def test_units(rules, shown):
    """Losses are in nats, rates are fractions, and what may be any number has no unit."""
    columns = {f"{kind}[{rule}]": [0.3, 0.2] for rule in rules for kind in ("value", "bound")}
    history = pd.DataFrame({"rounds": [0, 1], **columns})
    assert ConstraintHistoryDisplay(history).plot().ax_.get_ylabel() == shown


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_history_draws_into_the_axes_given(display, two_rules):
    _, axes = plt.subplots(1, 2)
    before = dict(matplotlib.rcParams)
    drawn = display.from_estimator(two_rules, ax=axes[1])
    assert drawn.ax_ is axes[1]
    assert not axes[0].lines
    assert drawn.plot(axes[0]) is drawn
    assert drawn.ax_ is axes[0]
    assert len(plt.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("bound", [0.0, 1e-6, 1.0])
def test_scale_is_sensible_for_any_bound(data, bound):
    model = fitted(data, [fnr() <= bound, fpr() <= 1.0])
    ax = ConstraintHistoryDisplay.from_estimator(model).ax_
    ticks = ax.get_yticks()
    assert ticks[0] == 0.0
    assert 2 <= ticks.size <= 12
    assert ax.get_ylim()[0] < 0.0 < 1.0 <= ax.get_ylim()[1]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("violation", [False, True])
@pytest.mark.parametrize("largest", [0.05, 0.2, 0.24, 0.39])
def test_values_about_the_bound_have_a_scale(largest, violation):
    values = [0.1, largest, 0.02]
    history = {"rounds": range(3), "value[fnr <= 0.2]": values, "bound[fnr <= 0.2]": 0.2}
    ax = ConstraintHistoryDisplay(pd.DataFrame(history)).plot(violation=violation).ax_
    low, high = ax.get_ylim()
    ticks = ax.get_yticks()
    assert ((ticks >= low) & (ticks <= high)).all()
    assert 3 <= ticks.size <= 7


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_grids_are_faint_on_any_background(style):
    with plt.style.context(style):
        ax = plot_threshold_curve([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4])
        ax.figure.canvas.draw()
    back = np.array(to_rgb(ax.get_facecolor()))
    for line in (*ax.get_xgridlines(), *ax.get_ygridlines()):
        alpha = 1.0 if line.get_alpha() is None else line.get_alpha()
        assert 0.05 < alpha * np.abs(to_rgb(line.get_color()) - back).max() < 0.15


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
    assert low < min(values) <= max(values) < high or max(values) <= high == 0.0
    assert low < min(0.0, bound) <= max(0.0, bound) <= high
    ticks = ax.get_yticks()
    assert 0.0 in ticks
    assert ((ticks >= low) & (ticks <= high)).all()
    assert (ticks < 0.0).any() == (min(values) < -abs(bound))
    inside = [t for t in ticks if abs(t) <= min(-low, high)]
    assert inside == [-t for t in reversed(inside)]
    ax.figure.canvas.draw()


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_fits_that_share_axes_are_all_in_sight(display, two_rules):
    larger = two_rules.history_
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
        display.from_estimator(ConstrainedXGBClassifier(constraints=[fnr() <= 0.1]))
    with pytest.raises(TypeError, match="fitted with constraints"):
        display.from_estimator(fitted(data, []))
    with pytest.raises(ValueError, match="holds no constraint"):
        display(pd.DataFrame({"rounds": [0]}))
    with pytest.raises(TypeError, match="history must be the history_"):
        display(fitted(data, [fnr() <= 0.1]))


def test_threshold_curve_is_the_roc_curve(two_rules, data):
    _, _, X, y = data
    score = two_rules.predict_proba(X)[:, 1]
    ax = plot_threshold_curve(y, score, label="plain", linestyle="--")
    false_alarms, hits, _ = roc_curve(y, score, drop_intermediate=False)
    (line,) = ax.get_lines()
    assert_line(line, 1.0 - hits, false_alarms)
    assert line.get_label() == "plain"
    assert line.get_linestyle() == "--"
    assert ax.get_xlabel() == "miss rate (fraction)"
    assert ax.get_ylabel() == "false alarm rate (fraction)"
    ax = plot_threshold_curve(y, score, plot_tradeoff(curve(), bound=None))
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("value (fraction)", "accuracy (fraction)")


@pytest.mark.parametrize("levels", [1, 2, 5, 1000])
def test_threshold_curve_draws_nothing_better_than_a_threshold(levels):
    """With tied scores, of which one threshold decides all alike: by brute force."""
    rng = np.random.default_rng(levels)
    y = rng.random(60) < 0.4
    score = rng.integers(0, levels, 60) + 0.0
    (line,) = plot_threshold_curve(y, score).get_lines()
    steps = STEP_LOOKUP_MAP[line.get_drawstyle()]
    misses, alarms = steps(line.get_xdata(), line.get_ydata())
    thresholds = [-np.inf, *np.unique(score)]
    reached = np.array([[np.mean(score[y] <= t), np.mean(score[~y] > t)] for t in thresholds])
    for drawn in np.column_stack([misses, alarms]):
        assert (reached <= drawn + 1e-12).all(axis=1).any()
    for pair in reached:
        assert np.abs(np.column_stack([misses, alarms]) - pair).max(axis=1).min() < 1e-12


@pytest.mark.parametrize("levels", [1, 3, 1000])
def test_the_empirical_curve_is_of_thresholds(levels):
    rng = np.random.default_rng(levels)
    y = rng.random(80) < 0.4
    score = rng.integers(0, levels, 80) + 0.0
    curve = plot_np_roc(score, None, y).get_lines()[-1]
    steps = STEP_LOOKUP_MAP[curve.get_drawstyle()]
    corners = np.array(steps(curve.get_xdata(), curve.get_ydata()))
    alarms, hits = np.hstack([corners, (corners[:, 1:] + corners[:, :-1]) / 2])
    thresholds = [-np.inf, *np.unique(score)]
    reached = np.array([[np.mean(score[~y] > t), np.mean(score[y] > t)] for t in thresholds])
    for alarm, hit in zip(alarms, hits, strict=True):
        assert hit <= reached[reached[:, 0] <= alarm + 1e-12, 1].max() + 1e-12


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


def curve():
    return pd.DataFrame(
        {
            "bound": [0.2, 0.1],
            "value": [0.15, 0.12],
            "value_low": [0.12, 0.1],
            "value_high": [0.19, 0.13],
            "accuracy": [0.9, 0.88],
            "accuracy_low": [0.89, 0.87],
            "accuracy_high": [0.92, 0.89],
        }
    )


def test_tradeoff_draws_intervals_bounds_and_the_plain_model():
    ax = plot_tradeoff(curve(), plain=(0.3, 0.91), label="bound")
    *bounds, points, cross = ax.get_lines()
    assert [line.get_xdata()[0] for line in bounds] == [0.1, 0.2]
    assert_line(points, [0.15, 0.12], [0.9, 0.88])
    assert_line(cross, [0.3], [0.91])
    horizontal, vertical = (c.get_segments() for c in ax.collections)
    np.testing.assert_allclose(horizontal[0], [[0.12, 0.9], [0.19, 0.9]])
    np.testing.assert_allclose(vertical[1], [[0.12, 0.87], [0.12, 0.89]])
    assert labels(ax) == ["bounds", "without the rule"]
    assert [text.get_text() for text in ax.texts] == ["0.2", "0.1"]
    ax = plot_tradeoff(curve()[["bound", "value", "accuracy"]], bound=None)
    assert not ax.collections
    assert len(ax.get_lines()) == 1
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("value (fraction)", "accuracy (fraction)")


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
    model = ConstrainedXGBClassifier(
        constraints=[fnr() <= 0.1], n_estimators=6, max_depth=2, n_jobs=1, measure_on="train"
    )
    test = {"X_test": X_test, "y_test": y_test, "verbose": False}
    _, ax = plt.subplots()
    display = TradeoffDisplay.from_estimator(
        model, X, y, [0.1, 0.4], ax=ax, plot_options={"label": "bound"}, **test
    )
    expected = tradeoff_curve(model, X, y, [0.1, 0.4], **test)
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
def test_tradeoff_of_several_rules_has_a_line_for_each(data):
    X, y, *_ = data
    model = ConstrainedXGBClassifier(n_estimators=4, max_depth=2, n_jobs=1, n_folds=2)
    display = TradeoffDisplay.from_estimator(
        model, X, y, [0.5, 0.3], constraint=lambda b: [fnr() <= b, recall() >= 1 - b],
        verbose=False,
    )  # fmt: skip
    *_, first, second = display.ax_.get_lines()
    assert (first.get_label(), second.get_label()) == ("fnr", "recall")
    values = display.curve["value"].to_numpy()
    np.testing.assert_array_equal(first.get_xdata(), values[::2])
    np.testing.assert_array_equal(second.get_xdata(), values[1::2])
    assert display.ax_.get_xlabel() == "value, out of fold (fraction)"


def requests():
    """Two rules by two libraries, each without a bound and with two."""
    keys = [(rule, library) for rule in ("gap", "churn") for library in ("XGBoost", "LightGBM")]
    return pd.DataFrame(
        [
            {
                "rule": rule,
                "library": library,
                "requested": bound,
                "train": 10.0 * i + j,
                "test": 10.0 * i + j + 0.5,
                "accuracy": 80.0 + j,
            }
            for i, (rule, library) in enumerate(keys)
            for j, bound in enumerate([2.0, None, 5.0])
        ]
    )


def test_requested_draws_a_line_per_rule_and_library():
    left, right = plot_requested(requests(), variant="library")
    diagonal, *lines = left.get_lines()
    assert_line(diagonal, [2, 5], [2, 5])
    on_test, on_train, plain = lines[::3], lines[1::3], lines[2::3]
    for i in range(4):
        # From the loose bound to the tight one, whatever the order of the rows.
        assert_line(on_test[i], [5, 2], [10 * i + 2.5, 10 * i + 0.5])
        assert_line(on_train[i], [5, 2], [10 * i + 2, 10 * i])
        assert_line(plain[i], [5.6], [10 * i + 1.5])
        assert (on_train[i].get_markerfacecolor(), plain[i].get_marker()) == ("none", "x")
    assert [line.get_color() for line in on_test] == ["#0072B2"] * 2 + ["#D55E00"] * 2
    assert [line.get_marker() for line in on_test] == ["o", "s", "o", "s"]
    assert [text.get_text() for text in left.get_xticklabels()] == ["2", "5", "none"]
    joined, crosses = right.get_lines()[::2], right.get_lines()[1::2]
    for i in range(4):
        assert_line(joined[i], 10 * i + np.array([1.5, 2.5, 0.5]), [81, 82, 80])
        assert joined[i].get_markevery() == [1, 2]
        assert_line(crosses[i], [10 * i + 1.5], [81])


@pytest.mark.parametrize("bound", [0.2, 0.0, -0.1])
def test_requested_of_one_bound_has_a_diagonal(bound):
    table = requests()
    points = table[table["requested"].isna() | (table["requested"] == 2)].replace(
        {"requested": {2.0: bound}}
    )
    left, _ = plot_requested(points)
    diagonal, *_ = left.get_lines()
    across, up = diagonal.get_data()
    np.testing.assert_array_equal(across, up)
    assert across.mean() == pytest.approx(bound)
    first, none = left.get_xticks()
    assert first == bound < across[1] < none
    assert none - bound >= 0.01


def test_requested_labels():
    left, right = plot_requested(requests(), variant="library")
    assert labels(right) == [
        "gap", "churn", "XGBoost", "LightGBM", "training rows", "as requested", "no rule"
    ]  # fmt: skip
    assert (left.get_xlabel(), left.get_ylabel()) == ("requested", "test")
    assert (right.get_xlabel(), right.get_ylabel()) == ("test", "accuracy")
    gaps = requests()[:6]
    left, right = plot_requested(gaps, series="library", variant="library", train=None)
    assert labels(right) == ["XGBoost", "LightGBM", "as requested", "no rule"]
    assert len(left.get_lines()) == 5  # the diagonal, and two for each library


def test_requested_draws_into_the_axes_given():
    _, axes = plt.subplots(1, 2)
    ruled = requests().dropna()
    assert list(plot_requested(ruled, axes)) == list(axes)
    assert len(plt.get_fignums()) == 1
    assert [text.get_text() for text in axes[0].get_xticklabels()] == ["2", "5"]
    assert "no rule" not in labels(axes[1])


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_threshold_curve([0, 1, 1], [0.1, 0.2]), "inconsistent numbers"),
        (lambda: TradeoffDisplay(requests()).plot(x="valeu"), "x='valeu' is not a column"),
        (lambda: TradeoffDisplay(requests()).plot(x="test", bound="b"), "bound='b' is not a"),
        (lambda: plot_requested(requests().drop(columns="rule")), "series='rule' is not a col"),
        (lambda: plot_requested(requests(), ["one"]), "axes must be two axes of mat"),
        (lambda: GroupConfusionDisplay(np.ones((1, 2, 2)), ["g"]).plot(cmap="none"), "none"),
    ],
)
def test_what_cannot_be_drawn_leaves_no_figure(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
    assert not plt.get_fignums()


def test_requested_needs_a_bound():
    with pytest.raises(ValueError, match="'requested' holds nothing"):
        plot_requested(requests().assign(requested=np.nan))


# --- groups -------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def decided():
    """Labels, decisions, groups and weights of rows; small groups are none."""
    rng = np.random.default_rng(0)
    n = 600
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b", "c"], n, p=[0.5, 0.3, 0.2])
    predicted = np.where(rng.random(n) < 0.7, y, 1 - y)
    return y, predicted, {"g": group}, rng.choice([1.0, 2.0], n)


def points_of(display):
    """Rates, and ends of the bars, as they are drawn."""
    (line,) = [line for line in display.ax_.get_lines() if line.get_gid() == "group_rates"][-1:]
    segments = display.bars_.lines[2][0].get_segments()
    return line.get_xdata(), line.get_ydata(), np.array([s[:, 0] for s in segments])


def test_group_rates_have_exact_intervals(decided):
    y, predicted, columns, _ = decided
    display = GroupRatesDisplay.from_predictions(
        y, predicted, each(fpr(), by="g"), sensitive_features=columns, level=0.9, name="model"
    )
    rates, at, bars = points_of(display)
    counts = [
        ((predicted == 1)[inside].sum(), inside.sum())
        for inside in ((columns["g"] == g) & (y == 0) for g in "abc")
    ]
    events, n = np.array(counts).T
    np.testing.assert_allclose(rates, events / n)
    np.testing.assert_allclose(bars.T, clopper_pearson(events, n, 0.9))
    assert at.tolist() == [0, 1, 2]
    ticks = [text.get_text() for text in display.ax_.get_yticklabels()]
    assert ticks == [f"g={g} (n={size})" for g, size in zip("abc", n, strict=True)]
    assert display.ax_.get_xlabel() == "fpr (fraction)"
    assert labels(display.ax_) == ["model, 90% intervals"]
    assert display.allowed is None
    bottom, top = display.ax_.get_ylim()
    assert bottom > top  # the first group is above


class Fixed:
    """A model of which the decisions are known."""

    constraints: tuple = ()

    def __init__(self, decisions, constraints=()):
        self.decisions, self.constraints = decisions, constraints

    def predict(self, X):
        return self.decisions


def test_group_rates_of_an_estimator_are_those_of_its_decisions(decided):
    y, predicted, columns, weight = decided
    X = pd.DataFrame({"g": columns["g"], "x": 0.0})
    rule = gap(fpr(), by="g") <= 0.1
    of_model = GroupRatesDisplay.from_estimator(Fixed(predicted), X, y, rule, sample_weight=weight)
    of_decisions = GroupRatesDisplay.from_predictions(
        y, predicted, rule, sensitive_features=columns, sample_weight=weight
    )
    pd.testing.assert_frame_equal(of_model.rates, of_decisions.rates)
    assert of_model.name == "Fixed"
    own = Fixed(predicted, [fnr() <= 0.1, rule])
    by_itself = GroupRatesDisplay.from_estimator(own, X, y, sample_weight=weight)
    pd.testing.assert_frame_equal(of_model.rates, by_itself.rates)
    assert by_itself.rule == rule
    for several in ([], [rule, rule]):
        with pytest.raises(ValueError, match="rules that compare groups"):
            GroupRatesDisplay.from_estimator(Fixed(predicted, several), X, y)
    with pytest.raises(TypeError, match="rule must compare groups"):
        GroupRatesDisplay.from_estimator(own, X, y, fpr() <= 0.1)


@pytest.mark.parametrize(
    "rule",
    [
        each(fpr(), by="g") <= 0.25,
        each(fpr(), by="g") >= 0.25,
        gap(fpr(), by="g") <= 0.05,
        gap(fpr(), by="g", reference="b") <= 0.05,
        gap(fpr(), by="g", reference=overall) <= 0.05,
        ratio(fpr(), by="g") >= 0.9,
        ratio(fpr(), by="g", reference="b", slack=0.01) >= 0.9,
        ratio(fpr(), by="g", reference=overall) >= 0.9,
    ],
)
@pytest.mark.parametrize("seed", range(6))
def test_a_rule_holds_where_all_rates_are_in_its_band(rule, seed):
    """The band says the same as the rule's own value, whatever the decisions."""
    rng = np.random.default_rng(seed)
    n = 900
    group = rng.choice(["a", "b", "c"], n)
    apart = rng.choice([0.0, 0.02, 0.2]) * (group == "c")
    predicted = (rng.random(n) < 0.25 + apart).astype(int)
    y = np.zeros(n, dtype=int)
    y[::30] = 1
    given = {"sensitive_features": {"g": group}}
    display = GroupRatesDisplay.from_predictions(y, predicted, rule, **given)
    low, high = display.allowed
    inside = display.rates["rate"].between(low - 1e-12, high + 1e-12).all()
    from gbm_constrained.reporting.audit import audit

    found = audit(Fixed(predicted), np.zeros((n, 1)), y, [rule], **given)
    assert inside == bool(found.frame["satisfied"].iloc[0])
    drawn = {round(x, 9) for line in display.ax_.get_lines() for x in line.get_xdata()}
    assert {round(end, 9) for end in (low, high) if np.isfinite(end)} <= drawn
    assert labels(display.ax_)[0] == str(rule)


def test_rates_of_several_models_share_axes(decided):
    y, predicted, columns, _ = decided
    given = {"sensitive_features": columns}
    first = GroupRatesDisplay.from_predictions(
        y, predicted, gap(selection_rate(), by="g") <= 0.1, **given, name="one"
    )
    second = GroupRatesDisplay.from_predictions(
        y, y, gap(selection_rate(), by="g"), **given, name="two", ax=first.ax_
    )
    assert second.ax_ is first.ax_
    one, two = (x for x in first.ax_.get_lines() if x.get_gid() == "group_rates")
    assert (two.get_ydata() - one.get_ydata() > 0).all()
    assert (two.get_ydata() - one.get_ydata() < 0.5).all()
    assert one.get_color() != two.get_color()
    assert len(first.ax_.get_yticklabels()) == 3
    assert second.allowed is None
    assert labels(first.ax_)[1:] == ["one, 95% intervals", "two, 95% intervals"]


@pytest.mark.parametrize(
    "rule",
    [
        gap(fpr(), by="g"),
        ratio(fpr(), by="g"),
        gap(log_loss(), by="g"),
        each(log_loss(on=label(1)), by="g"),
    ],
)
def test_comparisons_without_a_bound(rule, decided):
    y, _, columns, _ = decided

    class Sure(Fixed):
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.column_stack([np.where(columns["g"] == "a", 0.5, 0.25)] * 2) * [1, 1]

    display = GroupRatesDisplay.from_estimator(
        Sure(y), np.zeros((y.size, 1)), y, rule, sensitive_features=columns
    )
    assert display.allowed is None
    if "log_loss" in str(rule):
        np.testing.assert_allclose(display.rates["rate"], -np.log([0.5, 0.25, 0.25]))
        assert display.ax_.get_xlabel().endswith("(nats)")


def test_group_rates_need_their_columns():
    with pytest.raises(ValueError, match=r"it lacks \['low', 'high'\]"):
        GroupRatesDisplay(pd.DataFrame({"group": ["a"], "rows": [3], "rate": [0.1]}))


@pytest.mark.parametrize("normalize", ["true", "pred", "all", None])
@pytest.mark.parametrize("weighted", [False, True])
def test_confusion_of_each_group_is_scikit_learns(decided, normalize, weighted):
    y, predicted, columns, weight = decided
    names = np.array(["no", "yes"])
    given = {"sample_weight": weight} if weighted else {}
    display = GroupConfusionDisplay.from_predictions(
        names[y], names[predicted], sensitive_features=columns, normalize=normalize, **given
    )
    for i, g in enumerate("abc"):
        inside = columns["g"] == g
        part = {"sample_weight": weight[inside]} if weighted else {}
        expected = confusion_matrix(y[inside], predicted[inside], normalize=normalize, **part)
        np.testing.assert_allclose(display.shown_[i], expected)
        shown = "{:,.6g}" if normalize is None else "{:.3f}"
        for (k, j), value in np.ndenumerate(expected):
            text = display.text_[i, k, j]
            assert text.get_text() == shown.format(value)
            assert text.get_position()[0] == j
        assert display.groups[i] == f"g={g} (n={inside.sum()})"
    assert [t.get_text() for t in display.ax_.get_yticklabels()] == ["no", "yes"] * 3
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["no", "yes"]
    meshes = display.ax_.collections
    np.testing.assert_array_equal([m.get_array() for m in meshes], display.shown_)
    assert len({m.norm for m in meshes}) == 1  # colours can be compared between groups
    assert display.ax_.get_ylabel() == "true class"
    assert display.ax_.get_xlabel() == "predicted class"


def test_numbers_of_rows_are_whole():
    """As scikit-learn's, which take values_format="d"; of millions, all digits."""
    y, columns = [0, 1, 1, 0], {"sensitive_features": {"g": ["a", "a", "b", "b"]}}
    display = GroupConfusionDisplay.from_predictions(
        y, y, **columns, normalize=None, values_format="d"
    )
    assert display.text_[0, 0, 0].get_text() == "1"
    display.confusion_matrix = 1_234_567 * display.confusion_matrix
    assert display.plot(normalize=None).text_[1, 0, 0].get_text() == "1,234,567"
    weighted = GroupConfusionDisplay.from_predictions(
        y, y, **columns, normalize=None, sample_weight=[0.5, 1.0, 1.0, 1.0]
    )
    assert weighted.text_[0, 0, 0].get_text() == "0.5"


def test_confusion_of_drawn_decisions_is_drawn_alike(data):
    X, y, *_ = data
    model = ConstrainedXGBClassifier(
        constraints=[fnr() <= 0.1], iterate="randomized", n_estimators=20, n_jobs=1
    ).fit(X, y)
    model.prefixes_ = pd.DataFrame({"rounds": [1, 20], "probability": [0.5, 0.5]})
    assert (model.predict(X, random_state=0) != model.predict(X, random_state=1)).any()
    group = {"g": X[:, 0] > 0.0}
    shown = [
        GroupConfusionDisplay.from_estimator(model, X, y, sensitive_features=group)
        for _ in range(3)
    ]
    for display in shown[1:]:
        np.testing.assert_array_equal(display.confusion_matrix, shown[0].confusion_matrix)


def test_confusion_of_an_estimator(decided):
    y, predicted, columns, _ = decided
    X = pd.DataFrame({"g": columns["g"], "x": 0.0})
    display = GroupConfusionDisplay.from_estimator(
        Fixed(predicted), X, y, by="g", display_labels=["-", "+"], include_values=False,
        colorbar=False,
    )  # fmt: skip
    same = GroupConfusionDisplay.from_predictions(y, predicted, sensitive_features=columns)
    np.testing.assert_array_equal(display.confusion_matrix, same.confusion_matrix)
    assert display.groups == same.groups
    assert display.text_ is None
    assert display.colorbar_ is None
    assert len(display.figure_.axes) == 1
    assert same.colorbar_.ax.get_ylabel() == "fraction of the true class"
    assert [t.get_text() for t in display.ax_.get_xticklabels()] == ["-", "+"]
    again = display.plot(values_format=".1f", normalize=None)
    assert again is display
    assert display.text_[0, 0, 0].get_text() == f"{display.confusion_matrix[0, 0, 0]:.1f}"


def test_confusion_of_intersections_missing_values_and_absent_classes():
    y = np.array([0, 1, 2, 0, 1, 1])
    predicted = np.array([0, 2, 2, 0, 1, 0])
    columns = {"s": ["f", "f", "m", "m", "f", None], "r": [1, 1, 1, 2, 2, 2]}
    display = GroupConfusionDisplay.from_predictions(
        y, predicted, ["s", "r"], sensitive_features=columns, labels=[2, 0]
    )
    assert display.groups == (  # with the rows that the matrices are of
        "s=f, r=1 (n=1)", "s=f, r=2 (n=0)", "s=m, r=1 (n=1)", "s=m, r=2 (n=1)",
        "s=missing, r=2 (n=0)",
    )  # fmt: skip
    expected = np.zeros((5, 2, 2))
    expected[0, 1, 1] = expected[2, 0, 0] = expected[3, 1, 1] = 1
    np.testing.assert_array_equal(display.confusion_matrix, expected)
    assert np.isnan(display.shown_[1]).all()
    assert display.text_[1, 0, 0].get_text() == "\N{EN DASH}"
    assert display.text_[1, 0, 0].get_color() == "black"  # on no colour
    display.figure_.canvas.draw()


def test_groups_of_confusion_by_a_column_that_is_named_by_a_number():
    """As gap(fpr(), by=0) takes it."""
    y, columns = [0, 1, 1, 0], pd.DataFrame([["a", "u"], ["a", "u"], ["b", "u"], ["b", "u"]])
    display = GroupConfusionDisplay.from_predictions(y, y, by=0, sensitive_features=columns)
    assert display.groups == ("0=a (n=2)", "0=b (n=2)")


def test_confusion_that_does_not_fit(decided):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match="600 labels and 3 decisions"):
        GroupConfusionDisplay.from_predictions(y, predicted[:3], sensitive_features=columns)
    with pytest.raises(ValueError, match="groups are made by no column"):
        GroupConfusionDisplay.from_estimator(Fixed(predicted), np.zeros((600, 1)), y)
    with pytest.raises(ValueError, match="column 'race' is neither"):
        GroupConfusionDisplay.from_predictions(y, predicted, "race", sensitive_features=columns)
    with pytest.raises(ValueError, match="normalize must be one of"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, normalize="rows"
        )
    with pytest.raises(ValueError, match="must be of shape"):
        GroupConfusionDisplay(np.zeros((2, 2)), ["a", "b"])


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1] * 50, [0, 1], "There are 100 labels and 2 decisions: .* as y_true and y_pred"),
        ([0, 1] * 50, [0.2, 0.7] * 50, "y_pred holds 0.2, which is no label: give decisions"),
        ([0, 1] * 50, [0, None] * 50, "y_pred has 50 missing labels"),
        ([0, np.nan] * 50, [0, 1] * 50, "y_true has 50 missing labels"),
        ([0, 1] * 50, [[0, 1]] * 100, "y_pred must be one-dimensional"),
    ],
)
def test_decisions_that_are_none(y_true, y_pred, message):
    """The messages speak of what was given."""
    given = {"sensitive_features": {"g": ["a", "a", "b", "b"] * 25}}
    with pytest.raises(ValueError, match=message):
        GroupConfusionDisplay.from_predictions(y_true, y_pred, **given)
    with pytest.raises(ValueError, match=message):
        GroupRatesDisplay.from_predictions(y_true, y_pred, each(fpr(), by="g"), **given)


def test_decisions_tell_no_losses(decided):
    y, predicted, columns, _ = decided
    rule = each(log_loss(), by="g") <= 0.5
    message = r"each\(log_loss, by='g'\) needs probabilities, which decisions do not tell: use "
    with pytest.raises(TypeError, match=message + "GroupRatesDisplay.from_estimator"):
        GroupRatesDisplay.from_predictions(y, predicted, rule, sensitive_features=columns)


def test_display_labels_are_one_for_each_class(decided):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match=r"display_labels must name each of the 2 classes, got"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, display_labels=["no"]
        )


@pytest.mark.parametrize("labels", [["x"], [0, 0], []])
def test_labels_of_confusion_matrices_are_different_and_known(decided, labels):
    y, predicted, columns, _ = decided
    with pytest.raises(ValueError, match="labels must be different ones, some of which are here"):
        GroupConfusionDisplay.from_predictions(
            y, predicted, sensitive_features=columns, labels=labels
        )


@pytest.mark.parametrize("background", ["white", "black"])
def test_colours_are_seen_on_any_background(background):
    """Their contrast, by relative luminance as in WCAG 2."""
    rgb = np.array([to_rgb(colour) for colour in (*COLOURS, background)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    assert np.maximum(light[:-1] / light[-1], light[-1] / light[:-1]).min() > 2.0


def test_axes_are_one():
    """plt.subplots(1, 2) gives an array of them."""
    axes = plt.subplots(1, 2)[1]
    with pytest.raises(TypeError, match="ax must be one Axes of matplotlib, got a ndarray: of an"):
        GroupConfusionDisplay.from_predictions(
            [0, 1] * 50, [0, 1] * 50, sensitive_features={"g": ["a"] * 100}, ax=axes
        )


def test_group_displays_draw_into_the_axes_given(decided):
    y, predicted, columns, _ = decided
    figure, axes = plt.subplots(1, 2)
    before = dict(matplotlib.rcParams)
    given = {"sensitive_features": columns}
    rates = GroupRatesDisplay.from_predictions(
        y, predicted, each(fpr(), by="g"), **given, ax=axes[0]
    )
    confusion = GroupConfusionDisplay.from_predictions(y, predicted, "g", **given, ax=axes[1])
    assert [rates.ax_, confusion.ax_] == list(axes)
    assert rates.figure_ is confusion.figure_ is figure
    assert len(plt.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


def test_nothing_overlaps_in_a_figure_of_its_own(adult):
    """Legends, names and labels of real groups are inside the figure and apart."""
    _, _, X, y = adult
    columns = X[["sex", "race"]].astype(str)
    predicted = (X["education-num"] > 12).astype(int).to_numpy()
    rule = gap(fpr(), by=["sex", "race"], min_group_size=1) <= 0.05
    display = GroupRatesDisplay.from_predictions(y, predicted, rule, sensitive_features=columns)
    inside = display.figure_.bbox
    display.figure_.canvas.draw()
    renderer = display.figure_.canvas.get_renderer()
    ax = display.ax_
    shown = [ax.get_legend(), ax.xaxis.label, *ax.get_yticklabels()]
    boxes = [artist.get_window_extent(renderer) for artist in shown]
    for i, box in enumerate(boxes):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in boxes[:i])
    axes_box = ax.get_window_extent(renderer)
    assert not axes_box.overlaps(boxes[0])
    assert axes_box.width > 0.4 * inside.width


def written(ax):
    """Texts of a figure as its readers see them: one element each, of what is no mathematics."""
    file = io.BytesIO()
    with plt.rc_context({"svg.fonttype": "none"}):
        ax.figure.savefig(file, format="svg")
    return [element.text for element in ET.fromstring(file.getvalue()).iter() if element.text]


def brightness(colour):
    return np.mean(matplotlib.colors.to_rgb(colour))


@pytest.mark.parametrize(("style", "sign"), [("default", 1), ("dark_background", -1)])
def test_what_has_no_colour_of_its_own_is_seen_on_any_background(style, sign):
    with plt.style.context(style):
        ax = plot_tradeoff(curve(), plain=(0.3, 0.91), label="bound")
        *_, cross = ax.get_lines()
        display = GroupConfusionDisplay.from_predictions(
            [0, 0], [0, 0], sensitive_features={"g": ["a", "a"]}, labels=[0, 1]
        )
        display.figure_.canvas.draw()
    nothing = display.text_[0, 1, 0]
    assert nothing.get_text() == "\N{EN DASH}"
    for drawn, axes in ((cross, ax), (nothing, display.ax_)):
        behind = brightness(axes.get_facecolor())
        assert sign * (behind - brightness(drawn.get_color())) == 1.0


PRICES = "$50_ to $100"  # no mathematics, and as mathematics an error


def test_names_in_data_are_no_mathematics(data):
    X, y, *_ = data
    column = {"paid in $": np.where(X[:, 0] > 0, PRICES, "free")}
    group = f"paid in $={PRICES}"
    rate = f"fpr[{group}]"
    rule = fpr(on={"paid in $": PRICES}) <= 0.4
    model = ConstrainedXGBClassifier(
        constraints=[rule], n_estimators=4, n_jobs=1, measure_on="train"
    ).fit(X, y, sensitive_features=column, verbose=False)
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        assert f"{rate} <= 0.4" in written(display.from_estimator(model).ax_)
    assert f"{rate} (fraction)" in written(ConstraintHistoryDisplay.from_estimator(model).ax_)
    given = {"sensitive_features": {**column, "g": ["a", "b"] * 150}}
    compared = each(fpr(on={"paid in $": PRICES}), by="g") <= 0.4
    drawn = written(GroupRatesDisplay.from_predictions(y, y, compared, **given).ax_)
    assert {str(compared), f"{rate} (fraction)"} <= set(drawn)
    drawn = written(
        GroupRatesDisplay.from_predictions(y, y, each(fpr(), by="paid in $"), **given).ax_
    )
    n = (y[column["paid in $"] == PRICES] == 0).sum()
    assert f"{group} (n={n})" in drawn
    of_class = np.array(["free", PRICES])[y]
    display = GroupConfusionDisplay.from_predictions(
        of_class, of_class, "paid in $", sensitive_features=column
    )
    drawn = written(display.ax_)
    assert drawn.count(PRICES) == 3  # across, and down in both groups
    assert f"{group} (n={(column['paid in $'] == PRICES).sum()})" in drawn
    points = curve().assign(constraint=[f"{rate} <= {bound}" for bound in (0.2, 0.1)], at=PRICES)
    ax = plot_tradeoff(points, label="at")
    plt.setp(ax.texts, path_effects=[])  # with these, letters are shapes
    drawn = written(ax)
    assert drawn.count(PRICES) == 2
    assert f"{rate} (fraction)" in drawn
    assert PRICES in written(plot_tradeoff(points, series="at"))
    table = requests().replace({"gap": PRICES, "XGBoost": f"{PRICES}!"})
    both = plot_requested(table, variant="library")
    assert {PRICES, f"{PRICES}!"} <= set(written(both[1]))


@pytest.mark.parametrize(
    "classes",
    [["no", "yes"], ["acute", "chronic kidney disease, stage 3", "healthy"], [*"abcdef"]],
)
@pytest.mark.parametrize("name", ["b", "region of Extremadura and the islands of the west, other"])
@pytest.mark.parametrize("colorbar", [True, False])
def test_names_in_confusion_matrices_are_apart(classes, name, colorbar):
    rng = np.random.default_rng(0)
    true, decided = np.array(classes)[rng.integers(0, len(classes), (2, 300))]
    given = {"sensitive_features": {"g": np.array(["a", name])[rng.integers(0, 2, 300)]}}
    display = GroupConfusionDisplay.from_predictions(true, decided, colorbar=colorbar, **given)
    display.figure_.canvas.draw()
    ax, inside = display.ax_, display.figure_.bbox
    shown = [*ax.get_xticklabels(), *ax.get_yticklabels(), *ax.texts, ax.xaxis.label]
    boxes = [artist.get_window_extent() for artist in shown]
    boxes += [other.get_tightbbox() for other in display.figure_.axes if other is not ax]
    for i, box in enumerate(boxes):
        assert inside.x0 <= box.x0 < box.x1 <= inside.x1
        assert inside.y0 <= box.y0 < box.y1 <= inside.y1
        assert not any(box.overlaps(other) for other in boxes[:i])


def test_the_scale_beside_many_confusion_matrices_has_room_for_its_label():
    rng = np.random.default_rng(0)
    true, decided = rng.integers(0, 5, (2, 900))
    names = np.array([f"{'x' * 80}{i}" for i in range(12)])
    given = {"sensitive_features": {"g": names[rng.integers(0, 12, 900)]}}
    display = GroupConfusionDisplay.from_predictions(true, decided, **given)
    display.figure_.canvas.draw()
    box, inside = display.colorbar_.ax.get_tightbbox(), display.figure_.bbox
    assert display.ax_.get_window_extent().x1 < box.x0 < box.x1 <= inside.x1


@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_rules_of_many_classes_are_told_apart(display):
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


def test_many_series_and_models_are_told_apart(decided):
    points = pd.concat([curve().assign(series=f"s{i}") for i in range(20)])
    lines = plot_tradeoff(points, bound=None, series="series").get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 20
    y, predicted, columns, _ = decided
    given = {"sensitive_features": columns, "ax": plt.subplots()[1]}
    for _ in range(9):
        display = GroupRatesDisplay.from_predictions(y, predicted, each(fpr(), by="g"), **given)
    models = [line for line in display.ax_.get_lines() if line.get_gid() == "group_rates"]
    assert len({(line.get_color(), line.get_marker()) for line in models}) == 9


@pytest.mark.parametrize("n_rules", [1, 2, 7, 28])
@pytest.mark.parametrize("display", [ConstraintHistoryDisplay, MultipliersDisplay])
def test_legends_of_histories_hide_nothing_in_figures_of_their_own(display, n_rules):
    """Lines that go everywhere leave no corner for a legend."""
    rules = [gap(fpr(), by=["sex", f"column {j}"]) <= 0.1 for j in range(n_rules)]
    values = np.random.default_rng(0).random((20, n_rules))
    columns = {"rounds": range(20)}
    for rule, column in zip(rules, values.T, strict=True):
        columns |= {f"{kind}[{rule}]": column for kind in ("value", "held_out", "multiplier")}
        columns[f"bound[{rule}]"] = rule.bound
    ax = display(pd.DataFrame(columns)).plot().ax_
    ax.figure.canvas.draw()
    legend, axes, inside = (
        ax.get_legend().get_window_extent(), ax.get_window_extent(), ax.figure.bbox
    )  # fmt: skip
    assert not legend.overlaps(axes)
    assert inside.x0 <= legend.x0 < legend.x1 <= inside.x1
    assert inside.y0 <= legend.y0 < legend.y1 <= inside.y1
    assert axes.width > 0.5 * inside.width


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, two_rules, points):
    for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.lines", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, module, None)
    remedy = r'pip install "gbm_constrained\[plot\]"'
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        with pytest.raises(ImportError, match=remedy):
            display.from_estimator(two_rules)
    given = {"sensitive_features": {"g": [0, 1]}}
    with pytest.raises(ImportError, match=remedy):
        GroupRatesDisplay.from_predictions([0, 1], [0, 1], each(fpr(), by="g"), **given)
    with pytest.raises(ImportError, match=remedy):
        GroupRatesDisplay.from_estimator(two_rules, None, None)
    with pytest.raises(ImportError, match=remedy):
        GroupConfusionDisplay.from_predictions([0, 1], [0, 1], **given)
    with pytest.raises(ImportError, match=remedy):
        GroupConfusionDisplay.from_estimator(two_rules, None, None)
    with pytest.raises(ImportError, match=remedy):
        TradeoffDisplay.from_estimator(two_rules, None, None, [0.1])
    with pytest.raises(ImportError, match=remedy):
        plot_threshold_curve([0, 1], [0.2, 0.8])
    with pytest.raises(ImportError, match=remedy):
        plot_tradeoff(points, x="misses", y="alarms", bound=None)
    with pytest.raises(ImportError, match=remedy):
        plot_requested(requests())


def test_module_is_importable_without_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import gbm_constrained.plotting"
    subprocess.run([sys.executable, "-c", code], check=True)
