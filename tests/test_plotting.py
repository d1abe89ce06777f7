"""The figures show what the history holds, and ask for matplotlib only when it is needed."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import roc_curve

from gbm_constrained import ConstrainedXGBClassifier, fnr, fpr
from gbm_constrained.plotting import plot_history, plot_threshold_curve, plot_trade_off

matplotlib = pytest.importorskip("matplotlib")
matplotlib.use("Agg")

import matplotlib.pyplot as plt  # noqa: E402


@pytest.fixture(autouse=True)
def _close_figures():
    yield
    plt.close("all")


@pytest.fixture(scope="module")
def data():
    X, y = make_classification(400, 6, n_informative=4, weights=[0.8], random_state=0)
    return X[:300], y[:300], X[300:], y[300:]


def fitted(data, constraints, held_out=True):
    X, y, X_held, y_held = data
    model = ConstrainedXGBClassifier(
        constraints=constraints, n_estimators=12, max_depth=2, n_jobs=1, random_state=0
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
    top, bottom = plot_history(two_rules)
    above, below = iter(top.get_lines()), iter(bottom.get_lines())
    for rule, colour in (("fnr <= 0.05", "#0072B2"), ("fpr <= 0.2", "#D55E00")):
        for column, style in (("value", "-"), ("held_out", "--"), ("bound", ":")):
            line = next(above)
            assert_line(line, history["rounds"], history[f"{column}[{rule}]"])
            assert line.get_linestyle() == style
            assert line.get_color() == colour
        line = next(below)
        assert_line(line, history["rounds"], history[f"multiplier[{rule}]"])
        assert line.get_color() == colour
        assert line.get_label() == rule
    assert list(above) == list(below) == []


def test_history_labels(two_rules):
    top, bottom = plot_history(two_rules)
    assert labels(top) == ["fnr <= 0.05", "fpr <= 0.2", "training rows", "held-out rows", "bound"]
    assert top.get_ylabel() == "constrained values (fraction)"
    assert bottom.get_ylabel() == "multiplier"
    assert bottom.get_xlabel() == "boosting rounds"
    top, _ = plot_history(
        two_rules,
        train_name="train",
        held_out_name="test",
        names={"fnr <= 0.05": "missed frauds"},
    )
    assert labels(top) == ["missed frauds", "fpr <= 0.2", "train", "test", "bound"]


def test_one_rule_names_the_axis(data):
    top, _ = plot_history(fitted(data, [fnr() <= 0.05]))
    assert top.get_ylabel() == "fnr (fraction)"


def test_violation_is_the_part_above_the_bound(two_rules):
    history = two_rules.history_
    top, _ = plot_history(two_rules, violation=True)
    lines = iter(top.get_lines())
    for rule in ("fnr <= 0.05", "fpr <= 0.2"):
        for column in ("value", "held_out"):
            above = history[f"{column}[{rule}]"] - history[f"bound[{rule}]"]
            assert_line(next(lines), history["rounds"], above.clip(lower=0.0))
    assert list(lines) == []
    assert "bound" not in labels(top)
    assert top.get_ylabel() == "violation (fraction)"


def test_without_held_out_rows_there_is_no_dashed_line(data):
    top, _ = plot_history(fitted(data, [fnr() <= 0.05], held_out=False))
    assert [line.get_linestyle() for line in top.get_lines()] == ["-", ":"]
    assert labels(top) == ["fnr <= 0.05", "training rows", "bound"]


def test_losses_are_in_nats():
    history = pd.DataFrame(
        {
            "rounds": [0, 1],
            "value[log_loss[y=1] <= 0.2]": [0.7, 0.3],
            "bound[log_loss[y=1] <= 0.2]": [0.2, 0.2],
            "multiplier[log_loss[y=1] <= 0.2]": [0.1, 0.2],
        }
    )
    assert plot_history(history)[0].get_ylabel() == "log_loss[y=1] (nats)"


def test_history_draws_into_the_axes_given(two_rules):
    _, axes = plt.subplots(1, 2)
    before = dict(matplotlib.rcParams)
    assert list(plot_history(two_rules.history_, axes)) == list(axes)
    assert len(plt.get_fignums()) == 1
    assert dict(matplotlib.rcParams) == before


@pytest.mark.parametrize("bound", [0.0, 1e-6, 1.0])
def test_scale_is_sensible_for_any_bound(data, bound):
    top, _ = plot_history(fitted(data, [fnr() <= bound, fpr() <= 1.0]))
    ticks = top.get_yticks()
    assert ticks[0] == 0.0
    assert 2 <= ticks.size <= 12
    assert top.get_ylim()[0] < 0.0 < 1.0 <= top.get_ylim()[1]
    top.figure.canvas.draw()


def test_history_of_nothing(data):
    with pytest.raises(TypeError, match="ConstrainedXGBClassifier has no history_"):
        plot_history(ConstrainedXGBClassifier(constraints=[fnr() <= 0.1]))
    with pytest.raises(TypeError, match="fitted with constraints"):
        plot_history(fitted(data, []))
    with pytest.raises(ValueError, match="holds no constraint"):
        plot_history(pd.DataFrame({"rounds": [0]}))


def test_threshold_curve_is_the_roc_curve(two_rules, data):
    _, _, X, y = data
    score = two_rules.predict_proba(X)[:, 1]
    ax = plot_threshold_curve(y, score, label="plain", linestyle="--")
    false_alarms, hits, _ = roc_curve(y, score, drop_intermediate=False)
    (line,) = ax.get_lines()
    assert_line(line, 1.0 - hits, false_alarms)
    assert line.get_label() == "plain"
    assert line.get_linestyle() == "--"


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
    returned = plot_trade_off(
        points, ax, x="misses", y="alarms", series="rows", label="bound", styles=styles
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


def test_trade_off_of_one_series_needs_no_legend(points):
    ax = plot_trade_off(points, x="misses", y="alarms")
    assert_line(ax.get_lines()[0], points["misses"], points["alarms"])
    assert ax.get_legend() is None
    assert not ax.texts


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, two_rules, points):
    for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.lines"):
        monkeypatch.setitem(sys.modules, module, None)
    remedy = r'pip install "gbm_constrained\[plot\]"'
    with pytest.raises(ImportError, match=remedy):
        plot_history(two_rules)
    with pytest.raises(ImportError, match=remedy):
        plot_threshold_curve([0, 1], [0.2, 0.8])
    with pytest.raises(ImportError, match=remedy):
        plot_trade_off(points, x="misses", y="alarms")


def test_module_is_importable_without_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import gbm_constrained.plotting"
    subprocess.run([sys.executable, "-c", code], check=True)
