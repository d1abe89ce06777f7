"""Curves of scores and thresholds show what these reach, and nothing better."""

from __future__ import annotations

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import Fixed, assert_line, curve, labels
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.colors import to_rgb
from sklearn.linear_model import LogisticRegression
from sklearn.metrics import roc_auc_score, roc_curve

import gbm_constrained as gc
from gbm_constrained.plotting import (
    COLOURS,
    GroupROCDisplay,
    plot_np_roc,
    plot_threshold_curve,
    plot_tradeoff,
)


@pytest.fixture(scope="module")
def scored():
    """Labels, scores with ties, groups of which the last is small, and weights of rows."""
    rng = np.random.default_rng(0)
    n = 500
    y, group = rng.integers(0, 2, n), rng.choice(["a", "b", "$c$"], n, p=[0.5, 0.4, 0.1])
    scores = (rng.normal(size=n) + y * (1 + (group == "b"))).round(1)
    return y, scores, {"g": group}, rng.choice([1.0, 2.0], n)


def inside(y, group, name, kind):
    """Rows of a curve: the group's positives, and the negatives of the group or of others."""
    own = group == name
    return own if kind == "within" else np.where(y == 1, own, ~own)


@pytest.mark.parametrize("kind", ["within", "cross"])
@pytest.mark.parametrize("weighted", [False, True])
def test_curves_and_aucs_are_those_of_the_rows_of_each_group(scored, kind, weighted):
    y, scores, columns, weight = scored
    weight = weight if weighted else None
    display = GroupROCDisplay.from_predictions(
        y, scores, by="g", kind=kind, sensitive_features=columns, sample_weight=weight
    )
    assert display.aucs["group"].tolist() == ["g=$c$", "g=a", "g=b"]
    for record, line, colour in zip(
        display.aucs.to_dict("records"), display.lines_, COLOURS[:3], strict=True
    ):
        rows = inside(y, columns["g"], record["group"][2:], kind)
        weights = None if weight is None else weight[rows]
        fpr, tpr, _ = roc_curve(y[rows], scores[rows], sample_weight=weights)
        np.testing.assert_array_equal(line.get_xdata(), fpr)
        np.testing.assert_array_equal(line.get_ydata(), tpr)
        assert line.get_color() == colour
        auc = roc_auc_score(y[rows], scores[rows], sample_weight=weights)
        assert record["auc"] == pytest.approx(auc, abs=1e-12)
        assert (record["positives"], record["negatives"]) == (y[rows].sum(), (1 - y[rows]).sum())
        assert record["low"] < auc < record["high"]
    texts = labels(display.ax_)
    assert ("against others" in texts[0]) == (kind == "cross")
    first = display.aucs.iloc[0]
    assert texts[0].startswith(r"g=\$c\$")
    assert f"{first['auc']:.3f} [{first['low']:.3f}, {first['high']:.3f}]" in texts[0]
    assert display.auc_ax_ is None


def test_higher_levels_have_wider_intervals(scored):
    y, scores, columns, _ = scored
    wide, narrow = (
        GroupROCDisplay.from_predictions(y, scores, sensitive_features=columns, level=level).aucs
        for level in (0.99, 0.8)
    )
    assert (wide["low"] < narrow["low"]).all()
    assert (wide["high"] > narrow["high"]).all()


def test_band_is_what_the_constraint_allows(scored):
    y, scores, columns, _ = scored

    def band(constraint, kind="within"):
        display = GroupROCDisplay.from_predictions(
            y, scores, by="g", kind=kind, constraint=constraint, sensitive_features=columns
        )
        assert display.auc_ax_.get_title().startswith(str(constraint)[:20])
        return display.allowed, display.aucs["auc"].to_numpy()

    rate = gc.recall()
    (low, high), aucs = band(gc.gap(rate, by="g") <= 0.1)
    assert high - low == pytest.approx(0.1)
    assert (low + high) / 2 == pytest.approx((aucs.min() + aucs.max()) / 2)
    assert band(gc.each(rate, by="g") >= 0.8)[0] == (0.8, np.inf)
    (low, high), aucs = band(gc.gap(rate, by="g", reference="a") <= 0.1)
    assert (low + high) / 2 == pytest.approx(aucs[1])
    for kind in ("within", "cross"):
        (low, high), _ = band(gc.gap(rate, by="g", reference=gc.overall) <= 0.1, kind)
        assert (low + high) / 2 == pytest.approx(roc_auc_score(y, scores))
    with pytest.raises(ValueError, match=r"reference .*'z'.* none of the groups"):
        band(gc.gap(rate, by="g", reference="z") <= 0.1)
    with pytest.raises(TypeError, match="compares no groups"):
        band(rate >= 0.5)


def test_scores_of_an_estimator_are_of_its_positive_class(scored):
    y, scores, columns, weight = scored
    X = pd.DataFrame({"x": scores})
    names = np.array(["no", "yes"])
    model = LogisticRegression().fit(X, names[y])
    display = GroupROCDisplay.from_estimator(
        model, X, names[y], sensitive_features=columns, sample_weight=weight
    )
    given = GroupROCDisplay.from_predictions(
        y, scores, sensitive_features=columns, sample_weight=weight
    )
    pd.testing.assert_frame_equal(display.aucs, given.aucs)
    turned = GroupROCDisplay.from_estimator(
        model, X, names[y], positive="no", sensitive_features=columns, sample_weight=weight
    )
    np.testing.assert_allclose(turned.aucs["auc"], given.aucs["auc"], rtol=1e-12)
    assert turned.aucs["positives"].tolist() == given.aucs["negatives"].tolist()
    with pytest.raises(TypeError, match="neither decision_function nor predict_proba"):
        GroupROCDisplay.from_estimator(Fixed(y), X, y, sensitive_features=columns)


def test_groups_without_a_curve_are_named(scored):
    y, scores, columns, _ = scored
    only = np.where(columns["g"] == "b", 1, y)
    display = GroupROCDisplay.from_predictions(only, scores, by="g", sensitive_features=columns)
    assert len(display.lines_) == 2
    assert labels(display.ax_)[2].startswith("g=b\nno curve")
    assert display.aucs["auc"].isna().tolist() == [False, False, True]
    cross = GroupROCDisplay.from_predictions(
        only, scores, by="g", kind="cross", sensitive_features=columns
    )
    assert len(cross.lines_) == 3
    with pytest.raises(ValueError, match="none has positives and negatives"):
        GroupROCDisplay.from_predictions(y, scores, sensitive_features={"g": y})


def test_both_kinds_share_axes(scored):
    y, scores, columns, _ = scored
    _, ax = plt.subplots()
    for kind in ("within", "cross"):
        GroupROCDisplay.from_predictions(
            y, scores, by="g", kind=kind, sensitive_features=columns, ax=ax
        )
    assert len(labels(ax)) == 7
    assert labels(ax).count("chance") == 1
    assert {line.get_linestyle() for line in ax.get_lines()} == {"-", "--", ":"}


@pytest.mark.parametrize(
    ("change", "message"),
    [
        ({"kind": "between"}, "kind"),
        ({"level": 95}, "level"),
        ({"y_true": np.zeros(500)}, "two classes"),
        ({"positive": 7}, "positive is 7"),
        ({"y_score": np.zeros((500, 3))}, "one score of the positive class"),
        ({"y_score": np.full(500, np.nan)}, "500 are NaN"),
        ({"by": "age"}, "age"),
    ],
)
def test_what_does_not_fit_is_refused(scored, change, message):
    y, scores, columns, _ = scored
    given = {"y_true": y, "y_score": scores, "sensitive_features": columns}
    with pytest.raises(ValueError, match=message):
        GroupROCDisplay.from_predictions(**given | change)


@pytest.mark.parametrize("style", ["default", "dark_background"])
def test_grids_are_faint_on_any_background(style):
    with plt.style.context(style):
        ax = plot_threshold_curve([0, 1, 0, 1], [0.1, 0.2, 0.3, 0.4])
        ax.figure.canvas.draw()
    back = np.array(to_rgb(ax.get_facecolor()))
    for line in (*ax.get_xgridlines(), *ax.get_ygridlines()):
        alpha = 1.0 if line.get_alpha() is None else line.get_alpha()
        assert 0.05 < alpha * np.abs(to_rgb(line.get_color()) - back).max() < 0.15


def test_threshold_curve_is_the_roc_curve(two_constraints, data):
    _, _, X, y = data
    score = two_constraints.predict_proba(X)[:, 1]
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
