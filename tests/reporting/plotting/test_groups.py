"""Rates of groups and recalls of classes are those of their rows, with intervals."""

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import Fixed, assert_line, labels
from scipy.stats import binomtest
from sklearn.metrics import recall_score, roc_auc_score

import gbm_constrained as gc
from gbm_constrained.plotting import ClassRecallsDisplay, GroupConfusionDisplay, GroupRatesDisplay
from gbm_constrained.statistics.binomial import clopper_pearson


def points_of(display):
    """Rates, and ends of the bars, as they are drawn."""
    (line,) = [line for line in display.ax_.get_lines() if line.get_gid() == "group_rates"][-1:]
    segments = display.bars_.lines[2][0].get_segments()
    return line.get_xdata(), line.get_ydata(), np.array([s[:, 0] for s in segments])


def test_group_rates_have_exact_intervals(decided):
    y, predicted, columns, _ = decided
    display = GroupRatesDisplay.from_predictions(
        y,
        predicted,
        gc.each(gc.fpr(), by="g"),
        sensitive_features=columns,
        level=0.9,
        name="model",
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


def test_group_rates_of_an_estimator_are_those_of_its_decisions(decided):
    y, predicted, columns, weight = decided
    X = pd.DataFrame({"g": columns["g"], "x": 0.0})
    constraint = gc.gap(gc.fpr(), by="g") <= 0.1
    of_model = GroupRatesDisplay.from_estimator(
        Fixed(predicted), X, y, constraint, sample_weight=weight
    )
    of_decisions = GroupRatesDisplay.from_predictions(
        y, predicted, constraint, sensitive_features=columns, sample_weight=weight
    )
    pd.testing.assert_frame_equal(of_model.rates, of_decisions.rates)
    assert of_model.name == "Fixed"
    own = Fixed(predicted, [gc.fnr() <= 0.1, constraint])
    by_itself = GroupRatesDisplay.from_estimator(own, X, y, sample_weight=weight)
    pd.testing.assert_frame_equal(of_model.rates, by_itself.rates)
    assert by_itself.constraint == constraint
    for several in ([], [constraint, constraint]):
        with pytest.raises(ValueError, match="constraints that compare groups"):
            GroupRatesDisplay.from_estimator(Fixed(predicted, several), X, y)
    with pytest.raises(TypeError, match="constraint must compare groups"):
        GroupRatesDisplay.from_estimator(own, X, y, gc.fpr() <= 0.1)


@pytest.mark.parametrize(
    "constraint",
    [
        gc.each(gc.fpr(), by="g") <= 0.25,
        gc.each(gc.fpr(), by="g") >= 0.25,
        gc.gap(gc.fpr(), by="g") <= 0.05,
        gc.gap(gc.fpr(), by="g", reference="b") <= 0.05,
        gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.05,
        gc.ratio(gc.fpr(), by="g") >= 0.9,
        gc.ratio(gc.fpr(), by="g", reference="b", slack=0.01) >= 0.9,
        gc.ratio(gc.fpr(), by="g", reference=gc.overall) >= 0.9,
    ],
)
@pytest.mark.parametrize("seed", range(2))
def test_a_constraint_holds_where_all_rates_are_in_its_band(constraint, seed):
    """The band says the same as the constraint's own value, whatever the decisions."""
    rng = np.random.default_rng(seed)
    n = 900
    group = rng.choice(["a", "b", "c"], n)
    apart = rng.choice([0.0, 0.02, 0.2]) * (group == "c")
    predicted = (rng.random(n) < 0.25 + apart).astype(int)
    y = np.zeros(n, dtype=int)
    y[::30] = 1
    given = {"sensitive_features": {"g": group}}
    display = GroupRatesDisplay.from_predictions(y, predicted, constraint, **given)
    low, high = display.allowed
    inside = display.rates["rate"].between(low - 1e-12, high + 1e-12).all()
    from gbm_constrained.reporting.audit import audit

    found = audit(Fixed(predicted), np.zeros((n, 1)), y, [constraint], **given)
    assert inside == bool(found.frame["satisfied"].iloc[0])
    drawn = {round(x, 9) for line in display.ax_.get_lines() for x in line.get_xdata()}
    assert {round(end, 9) for end in (low, high) if np.isfinite(end)} <= drawn
    assert labels(display.ax_)[0] == str(constraint)


def test_rates_of_several_models_share_axes(decided):
    y, predicted, columns, _ = decided
    given = {"sensitive_features": columns}
    first = GroupRatesDisplay.from_predictions(
        y, predicted, gc.gap(gc.selection_rate(), by="g") <= 0.1, **given, name="one"
    )
    second = GroupRatesDisplay.from_predictions(
        y, y, gc.gap(gc.selection_rate(), by="g"), **given, name="two", ax=first.ax_
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
    "constraint",
    [
        gc.gap(gc.fpr(), by="g"),
        gc.ratio(gc.fpr(), by="g"),
        gc.gap(gc.log_loss(), by="g"),
        gc.each(gc.log_loss(on=gc.label(1)), by="g"),
    ],
)
def test_comparisons_without_a_bound(constraint, decided):
    y, _, columns, _ = decided

    class Sure(Fixed):
        classes_ = np.array([0, 1])

        def predict_proba(self, X):
            return np.column_stack([np.where(columns["g"] == "a", 0.5, 0.25)] * 2) * [1, 1]

    display = GroupRatesDisplay.from_estimator(
        Sure(y), np.zeros((y.size, 1)), y, constraint, sensitive_features=columns
    )
    assert display.allowed is None
    if "log_loss" in str(constraint):
        np.testing.assert_allclose(display.rates["rate"], -np.log([0.5, 0.25, 0.25]))
        assert display.ax_.get_xlabel().endswith("(nats)")


def test_group_rates_need_their_columns():
    with pytest.raises(ValueError, match="'low' is not a column of the table"):
        GroupRatesDisplay(pd.DataFrame({"group": ["a"], "rows": [3], "rate": [0.1]}))


@pytest.mark.parametrize(
    ("y_true", "y_pred", "message"),
    [
        ([0, 1] * 50, [0, 1], "There are 100 labels and 2 decisions: .* as y_true and y_pred"),
        ([0, 1] * 50, [0.2, 0.7] * 50, "y_pred holds 0.2, which is no label: give decisions"),
        ([0, 1] * 50, [0, None] * 50, "y_pred has 50 missing values"),
        ([0, np.nan] * 50, [0, 1] * 50, "y_true has 50 missing values"),
        ([0, 1] * 50, [[0, 1]] * 100, "y_pred must be one-dimensional"),
    ],
)
def test_decisions_that_are_none(y_true, y_pred, message):
    """The messages speak of what was given."""
    given = {"sensitive_features": {"g": ["a", "a", "b", "b"] * 25}}
    with pytest.raises(ValueError, match=message):
        GroupConfusionDisplay.from_predictions(y_true, y_pred, **given)
    with pytest.raises(ValueError, match=message):
        GroupRatesDisplay.from_predictions(y_true, y_pred, gc.each(gc.fpr(), by="g"), **given)


def test_decisions_have_no_losses(decided):
    y, predicted, columns, _ = decided
    constraint = gc.each(gc.log_loss(), by="g") <= 0.5
    message = r"needs probabilities or scores, which decisions do not have: use "
    message = rf"each\({{}}, by='g'\) {message}GroupRatesDisplay.from_estimator"
    with pytest.raises(TypeError, match=message.format("log_loss")):
        GroupRatesDisplay.from_predictions(y, predicted, constraint, sensitive_features=columns)
    constraint = gc.each(gc.auc(), by="g") >= 0.5
    with pytest.raises(TypeError, match=message.format("auc")):
        GroupRatesDisplay.from_predictions(y, predicted, constraint, sensitive_features=columns)


def test_groups_have_pair_rates_of_scores(decided):
    y, _, columns, _ = decided

    class Ranked(Fixed):
        classes_ = np.array([0, 1])

        def decision_function(self, X):
            return X[:, 0]

    scores = (np.random.default_rng(0).normal(size=y.size) + y)[:, None]
    display = GroupRatesDisplay.from_estimator(
        Ranked(y), scores, y, gc.gap(gc.auc(), by="g") <= 0.1, sensitive_features=columns
    )
    groups = display.rates["group"].str.removeprefix("g=")
    own = [np.asarray(columns["g"]) == name for name in groups]
    expected = [roc_auc_score(y[of_group], scores[of_group, 0]) for of_group in own]
    np.testing.assert_allclose(display.rates["rate"], expected, rtol=1e-12)
    middle = (min(expected) + max(expected)) / 2
    np.testing.assert_allclose(display.allowed, [middle - 0.05, middle + 0.05])
    assert display.ax_.get_xlabel() == "auc (fraction)"


def test_group_displays_draw_into_the_axes_given(decided):
    y, predicted, columns, _ = decided
    figure, axes = plt.subplots(1, 2)
    before = dict(matplotlib.rcParams)
    given = {"sensitive_features": columns}
    rates = GroupRatesDisplay.from_predictions(
        y, predicted, gc.each(gc.fpr(), by="g"), **given, ax=axes[0]
    )
    confusion = GroupConfusionDisplay.from_predictions(y, predicted, by="g", **given, ax=axes[1])
    assert [rates.ax_, confusion.ax_] == list(axes)
    assert rates.figure_ is confusion.figure_ is figure
    assert len(plt.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


def test_nothing_overlaps_in_a_figure_of_its_own(adult):
    """Legends, names and labels of real groups are inside the figure and apart."""
    _, _, X, y = adult
    columns = X[["sex", "race"]].astype(str)
    predicted = (X["education-num"] > 12).astype(int).to_numpy()
    constraint = gc.gap(gc.fpr(), by=["sex", "race"], min_group_size=1) <= 0.05
    display = GroupRatesDisplay.from_predictions(
        y, predicted, constraint, sensitive_features=columns
    )
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
