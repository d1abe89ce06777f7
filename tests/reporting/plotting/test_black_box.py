"""Figures of a fit for a black-box metric draw its tables."""

import numpy as np
import pytest
from black_box_fits import draw, make

import gbm_constrained as gc
from gbm_constrained.plotting import (
    BlackBoxHistoryDisplay,
    ModelParametersDisplay,
    SurrogateTargetsDisplay,
)

DISPLAYS = [BlackBoxHistoryDisplay, SurrogateTargetsDisplay, ModelParametersDisplay]


@pytest.fixture(scope="module")
def fitted():
    X, y, g = draw(0, 1000, 0.8)
    return make("lightgbm").fit(X, y, sensitive_features=g, validation=draw(1, 450))


def labels_of(ax):
    return ax.get_legend_handles_labels()[1]


def test_the_metric_of_each_iterate_beside_thresholds(fitted):
    ax = BlackBoxHistoryDisplay.from_estimator(fitted).ax_
    iterates = ax.get_lines()[0]
    np.testing.assert_array_equal(iterates.get_ydata(), fitted.history_.metric)
    lines = {line.get_label(): line.get_ydata()[0] for line in ax.get_lines()[1:]}
    report = fitted.blackbox_report_.set_index("model").validation
    assert {"threshold", "this model"} <= lines.keys() <= set(report.index)
    for name, value in lines.items():
        assert value == report[name]


def test_surrogates_and_their_targets(fitted):
    ax = SurrogateTargetsDisplay.from_estimator(fitted).ax_
    history = fitted.history_
    names = [name for name in history if name.startswith("surrogate[")]
    assert len(names) == 4
    assert len(labels_of(ax)) == 5
    for k, name in enumerate(names):
        values, targets = ax.get_lines()[2 * k : 2 * k + 2]
        np.testing.assert_array_equal(values.get_ydata(), history[name])
        expected = history[name.replace("surrogate", "target", 1)].iloc[1:]
        np.testing.assert_array_equal(targets.get_ydata(), expected)


def test_parameters_before_and_after(fitted):
    ax = ModelParametersDisplay.from_estimator(fitted).ax_
    before, after = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_array_equal(before, [1.0] * 10 + [0.0] * 3)
    np.testing.assert_array_equal(after, fitted.blackbox_parameters_.after)
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown == fitted.blackbox_parameters_.index.tolist()


def test_some_of_many_parameters_are_named(fitted):
    table = fitted.blackbox_parameters_
    many = table.loc[["tree[0]"] * 40 + [*table.index[-3:]]]
    shown = [
        label.get_text() for label in ModelParametersDisplay(many).plot().ax_.get_xticklabels()
    ]
    assert shown[-3:] == ["offset[0]", "offset[1]", "intercept"]
    assert len(shown) < 12


@pytest.mark.parametrize("display", DISPLAYS)
def test_other_fits_are_refused(display):
    with pytest.raises(TypeError, match=r"fitted with minimize=BlackBox"):
        display.from_estimator(gc.ConstrainedLGBMClassifier())
