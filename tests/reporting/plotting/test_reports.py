"""Figures of what a fit for a metric, a black box or ramp rates reports show its numbers."""

import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest
from black_box_fits import draw, make
from drawing import assert_line, labels
from scipy.optimize import linprog

import gbm_constrained as gc
from gbm_constrained.metrics import f1_micro, g_mean
from gbm_constrained.plotting import (
    AchievableRatesDisplay,
    BlackBoxHistoryDisplay,
    CertificateDisplay,
    MetricHistoryDisplay,
    ModelParametersDisplay,
    SurrogateTargetsDisplay,
)


@pytest.fixture(scope="module")
def fit(data):
    X, y, *_ = data
    model = gc.ConstrainedLGBMClassifier(
        maximize=g_mean(), constraints=[gc.fpr() <= 0.2], n_estimators=10, num_leaves=4,
        verbose=-1, measure_on="crossfit",
    )  # fmt: skip
    return model.fit(X, y)


def table(points, returned=(0.5, 0.5)):
    rows = [("pool", *point) for point in points]
    rows += [("argmax", 0.9, 0.1), ("prior", 0.6, 0.6), ("returned", *returned)]
    return pd.DataFrame(rows, columns=["decisions", "a", "b"])


def is_achievable(point, rules):
    """Whether a point is a mixture of rules, by a linear programme."""
    A = np.vstack([rules.T, np.ones(len(rules))])
    return linprog(np.zeros(len(rules)), A_eq=A, b_eq=[*point, 1.0]).status == 0


def test_hull_holds_the_mixtures_of_all_rules():
    rng = np.random.default_rng(0)
    rates = table(rng.random((12, 2)) * 0.5)
    display = AchievableRatesDisplay(rates).plot()
    rules = rates.loc[rates["decisions"] != "returned", ["a", "b"]].to_numpy()
    assert all(is_achievable(point, rules) for point in display.hull_)
    for i, vertex in enumerate(display.hull_):  # No vertex is a mixture of the others.
        assert not is_achievable(vertex, np.delete(display.hull_, i, axis=0))
    assert all(is_achievable(point, display.hull_) for point in rules)


def test_rules_on_one_line_are_their_own_hull():
    rates = pd.DataFrame(
        [("pool", 0.1, 0.2), ("pool", 0.2, 0.4), ("returned", 0.1, 0.2)],
        columns=["decisions", "a", "b"],
    )
    display = AchievableRatesDisplay(rates).plot()
    np.testing.assert_array_equal(display.hull_, [[0.1, 0.2], [0.2, 0.4]])


def test_line_of_the_bound_is_where_the_metric_has_that_value():
    rates = table([[0.0, 0.9], [0.9, 0.0]])
    display = AchievableRatesDisplay(rates, metric=lambda u: u[0] + u[1], bound=0.75).plot()
    (path,) = [p for c in display.ax_.collections for p in c.get_paths() if len(p.vertices) > 4]
    np.testing.assert_allclose(path.vertices.sum(axis=1), 0.75, atol=1e-9)
    assert "bound of the metric" in labels(display.ax_)
    beyond = AchievableRatesDisplay(rates, metric=lambda u: u[0] + u[1], bound=9.0).plot()
    assert "bound of the metric" not in labels(beyond.ax_)


def test_rates_are_those_of_the_fit(fit):
    display = AchievableRatesDisplay.from_estimator(fit)
    assert display.names == ["recall(0)", "recall(1)"]
    rates, report = fit.achieved_rates_, fit.metric_report_
    lines = {line.get_label(): line for line in display.ax_.get_lines()}
    returned = rates[rates["decisions"] == "returned"]
    assert_line(lines["returned"], returned["recall(0)"], returned["recall(1)"])
    pool = rates[rates["decisions"] == "pool"]
    assert_line(lines["rules found"], pool["recall(0)"], pool["recall(1)"])
    candidates = rates.set_index("decisions").loc[report["decisions"]]
    values = np.sqrt(candidates["recall(0)"] * candidates["recall(1)"])
    # The report on what is returned is that of the one rule in the place of the mixture.
    of_mixture = report["held_out"].where(~report["is_returned"], report["mixture"])
    # Reports are without the optimism of decisions that the rows have chosen.
    np.testing.assert_allclose(values, of_mixture, atol=2e-3)
    np.testing.assert_allclose(candidates["recall(0)"], 1.0 - candidates["fpr"])
    other = AchievableRatesDisplay.from_estimator(fit, x="fpr", y="recall(1)")
    assert other.ax_.get_xlabel() == "fpr"


def test_rates_of_a_ratio_are_its_two_parts(data):
    X, y, *_ = data
    model = gc.ConstrainedLGBMClassifier(
        maximize=f1_micro(), n_estimators=5, num_leaves=4, verbose=-1
    ).fit(X, y)
    display = AchievableRatesDisplay.from_estimator(model)
    rates = display.rates.set_index("decisions")
    values = rates[display.names[0]] / rates[display.names[1]]
    report = model.metric_report_.set_index("decisions")["held_out"]
    np.testing.assert_allclose(values[report.index], report, atol=2e-3)


def test_history_has_bounds_of_the_model(fit):
    history = fit.history_
    axes = plt.subplots()[1]
    display = MetricHistoryDisplay.from_estimator(fit, ax=axes)
    assert display.ax_ is axes
    lines = {line.get_label(): line for line in axes.get_lines()}
    for name in ("probabilities", "labels"):
        part = history[history["counted_by"] == name]
        assert_line(lines[f"value by {name}"], part["call"], part["value"])
    exact = history[history["counted_by"] == "probabilities"]
    bounds = exact[np.isfinite(exact["bound"])]
    assert_line(lines["bound"], bounds["call"], bounds["bound"])
    feasible = exact[exact["violation"] <= 1e-9]
    assert (feasible["value"] <= exact["bound"].min() + 1e-9).all()
    report = fit.metric_report_
    assert exact["bound"].iloc[-1] == report.loc[report["is_returned"], "bound"].iloc[0]
    low, high = axes.get_ylim()
    assert low < history["value"].min() < high


@pytest.mark.parametrize("display", [AchievableRatesDisplay, MetricHistoryDisplay])
def test_a_fit_without_a_metric_is_refused(display, two_constraints):
    with pytest.raises(TypeError, match=r"no metric_report_.*maximize="):
        display.from_estimator(two_constraints)


def test_missing_columns_are_named(fit):
    with pytest.raises(ValueError, match="x='nothing' is not a column"):
        AchievableRatesDisplay.from_estimator(fit, x="nothing")
    with pytest.raises(ValueError, match="'decisions' is not a column"):
        AchievableRatesDisplay(pd.DataFrame({"a": [1.0]}))
    with pytest.raises(ValueError, match="'bound' is not a column"):
        MetricHistoryDisplay(fit.history_.drop(columns="bound"))


DISPLAYS = [BlackBoxHistoryDisplay, SurrogateTargetsDisplay, ModelParametersDisplay]


@pytest.fixture(scope="module")
def black_box_fit():
    X, y, g = draw(0, 1000, 0.8)
    return make("lightgbm").fit(X, y, sensitive_features=g, validation=draw(1, 450))


def labels_of(ax):
    return ax.get_legend_handles_labels()[1]


def test_the_metric_of_each_iterate_beside_thresholds(black_box_fit):
    ax = BlackBoxHistoryDisplay.from_estimator(black_box_fit).ax_
    iterates = ax.get_lines()[0]
    np.testing.assert_array_equal(iterates.get_ydata(), black_box_fit.history_.metric)
    lines = {line.get_label(): line.get_ydata()[0] for line in ax.get_lines()[1:]}
    report = black_box_fit.blackbox_report_.set_index("model").validation
    assert {"threshold", "this model"} <= lines.keys() <= set(report.index)
    for name, value in lines.items():
        assert value == report[name]


def test_surrogates_and_their_targets(black_box_fit):
    ax = SurrogateTargetsDisplay.from_estimator(black_box_fit).ax_
    history = black_box_fit.history_
    names = [name for name in history if name.startswith("surrogate[")]
    assert len(names) == 4
    assert len(labels_of(ax)) == 5
    for k, name in enumerate(names):
        values, targets = ax.get_lines()[2 * k : 2 * k + 2]
        np.testing.assert_array_equal(values.get_ydata(), history[name])
        expected = history[name.replace("surrogate", "target", 1)].iloc[1:]
        np.testing.assert_array_equal(targets.get_ydata(), expected)


def test_parameters_before_and_after(black_box_fit):
    ax = ModelParametersDisplay.from_estimator(black_box_fit).ax_
    before, after = (line.get_ydata() for line in ax.get_lines())
    np.testing.assert_array_equal(before, [1.0] * 10 + [0.0] * 3)
    np.testing.assert_array_equal(after, black_box_fit.blackbox_parameters_.after)
    shown = [label.get_text() for label in ax.get_xticklabels()]
    assert shown == black_box_fit.blackbox_parameters_.index.tolist()


def test_some_of_many_parameters_are_named(black_box_fit):
    table = black_box_fit.blackbox_parameters_
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


@pytest.fixture(scope="module")
def svm_fit(data):
    X, y, *_ = data
    constraints = [gc.fnr() <= 0.3, gc.selection_rate() <= 0.4]
    return gc.ConstrainedLinearSVC(constraints=constraints, n_iterations=4).fit(X, y)


@pytest.mark.parametrize("over", ["steps", "cuts"])
def test_objective_and_bounds_are_those_of_the_certificate(svm_fit, over):
    certificate = svm_fit.certificate_
    axes = plt.subplots()[1]
    display = CertificateDisplay.from_estimator(svm_fit, over=over, ax=axes)
    assert display.ax_ is axes
    assert display.figure_ is axes.figure
    x = np.arange(5) if over == "steps" else certificate["n_cuts"].cumsum().to_numpy()
    (objective,) = (line for line in axes.get_lines() if line.get_label() == "ramp objective")
    assert_line(objective, x, certificate["objective"])
    (bars,) = axes.collections
    drawn = np.array(bars.get_segments())
    np.testing.assert_array_equal(drawn[:, :, 0], np.column_stack([x[1:], x[1:]]))
    np.testing.assert_allclose(
        drawn[:, :, 1], certificate.loc[1:, ["lower", "upper"]], rtol=0, atol=1e-15
    )
    assert (drawn[:, 1, 1] >= objective.get_ydata()[1:] - 1e-12).all()
    assert axes.get_xlabel() == over
    assert labels(axes) == ["ramp objective", "bounds of the convex optimum"]


def test_cuts_place_later_steps_further_apart(svm_fit):
    """The two axes differ, for steps need unequal numbers of cuts."""
    assert svm_fit.certificate_["n_cuts"].nunique() > 2


def test_figures_of_their_own_are_not_shown(svm_fit):
    before = plt.get_fignums()
    display = CertificateDisplay(svm_fit.certificate_).plot()
    assert display.figure_.number in set(plt.get_fignums()) - set(before)


def test_refusals_name_the_parameter_and_the_remedy(svm_fit, two_constraints):
    with pytest.raises(TypeError, match=r"no certificate_.*fitted with constraints"):
        CertificateDisplay.from_estimator(two_constraints)
    with pytest.raises(TypeError, match=r"ConstrainedLinearSVC has no certificate_"):
        CertificateDisplay.from_estimator(gc.ConstrainedLinearSVC())
    with pytest.raises(ValueError, match="over"):
        CertificateDisplay.from_estimator(svm_fit, over="seconds")
    with pytest.raises(ValueError, match="'lower' is not a column"):
        CertificateDisplay(svm_fit.certificate_.drop(columns="lower"))
