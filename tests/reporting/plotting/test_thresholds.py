"""Curves of thresholds show what thresholds reach, and nothing better."""

import matplotlib.pyplot as plt
import numpy as np
import pytest
from drawing import assert_line, curve
from matplotlib.cbook import STEP_LOOKUP_MAP
from matplotlib.colors import to_rgb
from sklearn.metrics import roc_curve

from gbm_constrained.plotting import plot_np_roc, plot_threshold_curve, plot_tradeoff


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
