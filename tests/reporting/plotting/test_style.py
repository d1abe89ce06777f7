"""Figures on any background, with any names, and without matplotlib."""

import subprocess
import sys

import matplotlib
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from drawing import curve, written
from matplotlib.colors import to_rgb

import gbm_constrained as gc
from gbm_constrained.plotting import (
    COLOURS,
    CertificateDisplay,
    ConstraintHistoryDisplay,
    ConstraintIntervalsDisplay,
    GroupConfusionDisplay,
    GroupRatesDisplay,
    GroupROCDisplay,
    MultipliersDisplay,
    TradeoffDisplay,
    plot_np_roc,
    plot_threshold_curve,
    plot_tradeoff,
)
from gbm_constrained.reporting.plotting.style import TEXT_COLOURS


@pytest.mark.parametrize(
    ("draw", "message"),
    [
        (lambda: plot_threshold_curve([0, 1, 1], [0.1, 0.2]), "inconsistent numbers"),
        (lambda: TradeoffDisplay(curve()).plot(x="valeu"), "x='valeu' is not a column"),
        (lambda: TradeoffDisplay(curve()).plot(x="value", bound="b"), "bound='b' is not a"),
        (lambda: GroupConfusionDisplay(np.ones((1, 2, 2)), ["g"]).plot(cmap="none"), "none"),
    ],
)
def test_what_cannot_be_drawn_leaves_no_figure(draw, message):
    with pytest.raises(ValueError, match=message):
        draw()
    assert not plt.get_fignums()


def contrasts(colours, background):
    """Contrasts with a background, by relative luminance as in WCAG 2."""
    rgb = np.array([to_rgb(colour) for colour in (*colours, background)])
    linear = np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4)
    light = linear @ [0.2126, 0.7152, 0.0722] + 0.05
    return np.maximum(light[:-1] / light[-1], light[-1] / light[:-1])


@pytest.mark.parametrize("background", ["white", "black"])
def test_colours_are_seen_on_any_background(background):
    assert contrasts(COLOURS, background).min() > 2.0


@pytest.mark.parametrize("background", ["white", "black"])
def test_texts_are_read_on_any_background(background):
    assert set(TEXT_COLOURS) == set(COLOURS)
    assert contrasts(TEXT_COLOURS.values(), background).min() >= 4.5


def legends():
    """Axes of each kind with a legend, drawn into given axes and into new ones."""
    history = pd.DataFrame({"rounds": range(5), "value[fnr <= 0.1]": np.linspace(1.0, 0.0, 5)})
    history["bound[fnr <= 0.1]"], history["multiplier[fnr <= 0.1]"] = 0.1, 0.5
    y, scores = np.resize([0, 1, 1], 300), np.random.default_rng(0).random(300)
    certificate = pd.DataFrame(
        {"objective": [3.0, 1.0], "lower": [2.0, 0.9], "upper": [2.5, 1.0], "n_cuts": [1, 2]}
    )
    frame = pd.DataFrame({
        "constraint": ["fnr <= 0.1"], "sense": "<=", "bound": 0.1, "value": 0.2, "low": 0.1,
        "high": 0.3, "verdict": "missed",
    })  # fmt: skip
    groups = {"g": np.resize(["a", "b"], 300)}
    return {
        "history": ConstraintHistoryDisplay(history).plot,
        "multipliers": MultipliersDisplay(history).plot,
        "tradeoff": lambda ax: TradeoffDisplay(curve()).plot(ax, plain=(0.3, 0.9)),
        "thresholds": lambda ax: plot_threshold_curve(y, scores, ax),
        "np_roc": lambda ax: plot_np_roc(scores, None, y, ax=ax),
        "certificate": CertificateDisplay(certificate).plot,
        "intervals": ConstraintIntervalsDisplay(frame).plot,
        "roc": lambda ax: GroupROCDisplay.from_predictions(
            y, scores, sensitive_features=groups, ax=ax
        ),
    }


@pytest.mark.parametrize("is_new", [True, False])
@pytest.mark.parametrize("kind", list(legends()))
def test_legends_lie_outside_of_the_axes(kind, is_new):
    ax = None if is_new else plt.subplots(layout="constrained")[1]
    drawn = legends()[kind](ax)
    ax = getattr(drawn, "ax_", drawn)
    ax.figure.canvas.draw()
    legend, inside = ax.get_legend().get_window_extent(), ax.get_window_extent()
    assert not inside.padded(-1.0).overlaps(legend)
    assert ax.figure.bbox.padded(1.0).count_contains(legend.corners()) == 4  # nothing is cut


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
    constraint = gc.fpr(on={"paid in $": PRICES}) <= 0.4
    model = gc.ConstrainedXGBClassifier(
        constraints=[constraint], n_estimators=4, n_jobs=1, measure_on="train"
    ).fit(X, y, sensitive_features=column, verbose=False)
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        assert f"{rate} <= 0.4" in written(display.from_estimator(model).ax_)
    assert f"{rate} (fraction)" in written(ConstraintHistoryDisplay.from_estimator(model).ax_)
    given = {"sensitive_features": {**column, "g": ["a", "b"] * 150}}
    compared = gc.each(gc.fpr(on={"paid in $": PRICES}), by="g") <= 0.4
    drawn = written(GroupRatesDisplay.from_predictions(y, y, compared, **given).ax_)
    assert {str(compared), f"{rate} (fraction)"} <= set(drawn)
    drawn = written(
        GroupRatesDisplay.from_predictions(y, y, gc.each(gc.fpr(), by="paid in $"), **given).ax_
    )
    n = (y[column["paid in $"] == PRICES] == 0).sum()
    assert f"{group} (n={n})" in drawn
    of_class = np.array(["free", PRICES])[y]
    display = GroupConfusionDisplay.from_predictions(
        of_class, of_class, by="paid in $", sensitive_features=column
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


def test_many_series_and_models_are_told_apart(decided):
    points = pd.concat([curve().assign(series=f"s{i}") for i in range(20)])
    lines = plot_tradeoff(points, bound=None, series="series").get_lines()
    assert len({(line.get_color(), line.get_marker()) for line in lines}) == 20
    y, predicted, columns, _ = decided
    given = {"sensitive_features": columns, "ax": plt.subplots()[1]}
    for _ in range(9):
        display = GroupRatesDisplay.from_predictions(
            y, predicted, gc.each(gc.fpr(), by="g"), **given
        )
    models = [line for line in display.ax_.get_lines() if line.get_gid() == "group_rates"]
    assert len({(line.get_color(), line.get_marker()) for line in models}) == 9


def test_without_matplotlib_the_error_says_what_to_install(monkeypatch, two_constraints):
    for module in ("matplotlib", "matplotlib.pyplot", "matplotlib.lines", "matplotlib.axes"):
        monkeypatch.setitem(sys.modules, module, None)
    remedy = r'pip install "gbm_constrained\[plot\]"'
    for display in (ConstraintHistoryDisplay, MultipliersDisplay):
        with pytest.raises(ImportError, match=remedy):
            display.from_estimator(two_constraints)
    given = {"sensitive_features": {"g": [0, 1]}}
    with pytest.raises(ImportError, match=remedy):
        GroupRatesDisplay.from_predictions([0, 1], [0, 1], gc.each(gc.fpr(), by="g"), **given)
    with pytest.raises(ImportError, match=remedy):
        GroupRatesDisplay.from_estimator(two_constraints, None, None)
    with pytest.raises(ImportError, match=remedy):
        GroupConfusionDisplay.from_predictions([0, 1], [0, 1], **given)
    with pytest.raises(ImportError, match=remedy):
        GroupConfusionDisplay.from_estimator(two_constraints, None, None)
    with pytest.raises(ImportError, match=remedy):
        TradeoffDisplay.from_estimator(two_constraints, None, None, [0.1])
    with pytest.raises(ImportError, match=remedy):
        plot_threshold_curve([0, 1], [0.2, 0.8])
    with pytest.raises(ImportError, match=remedy):
        plot_tradeoff(curve())
    with pytest.raises(ImportError, match=remedy):
        ConstraintIntervalsDisplay.from_estimator(two_constraints, None, None, None)


def test_module_is_importable_without_matplotlib():
    code = "import sys; sys.modules['matplotlib'] = None; import gbm_constrained.plotting"
    subprocess.run([sys.executable, "-c", code], check=True)
