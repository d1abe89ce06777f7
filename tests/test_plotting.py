"""The figures show what the history holds, and ask for matplotlib only when it is needed."""

import subprocess
import sys

import numpy as np
import pandas as pd
import pytest
from sklearn.datasets import make_classification
from sklearn.metrics import roc_curve

from gbm_constrained import ConstrainedXGBClassifier, fnr, fpr
from gbm_constrained.plotting import (
    plot_history,
    plot_requested,
    plot_threshold_curve,
    plot_tradeoff,
)

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
    model = fitted(data, [fnr() <= 0.05], held_out=False, measure_on="train")
    top, _ = plot_history(model)
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


def test_requested_needs_a_bound():
    with pytest.raises(ValueError, match="'requested' holds nothing"):
        plot_requested(requests().assign(requested=np.nan))


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, two_rules, points):
    for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.lines"):
        monkeypatch.setitem(sys.modules, module, None)
    remedy = r'pip install "gbm_constrained\[plot\]"'
    with pytest.raises(ImportError, match=remedy):
        plot_history(two_rules)
    with pytest.raises(ImportError, match=remedy):
        plot_threshold_curve([0, 1], [0.2, 0.8])
    with pytest.raises(ImportError, match=remedy):
        plot_tradeoff(points, x="misses", y="alarms", bound=None)
    with pytest.raises(ImportError, match=remedy):
        plot_requested(requests())


def test_module_is_importable_without_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import gbm_constrained.plotting"
    subprocess.run([sys.executable, "-c", code], check=True)
