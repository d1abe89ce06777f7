"""Oracles of a metric: weights of costs, the boosters that have them, and which one auto takes."""

from __future__ import annotations

from dataclasses import replace
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pytest
import xgboost as xgb
from helpers import CLASSIFIERS, EITHER, PARENTS, fit_linear, margins_of, quiet
from scipy.special import softmax
from sklearn.base import clone

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import folds_of
from gbm_constrained.decision.rules import OTHER_DATA, calibrate_scores
from gbm_constrained.fit.callbacks import CallbackNotifier
from gbm_constrained.fit.metric_problem import MetricProblem
from gbm_constrained.fit.metric_search import MAX_ROWS_OF_AUTO, MetricSearch, search_oracles
from gbm_constrained.fit.native_models import HeldOutBoosters, NativeGrowth
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import LibrarySettings
from gbm_constrained.metrics import cost, g_mean, h_mean
from gbm_constrained.problem.compiler import Coefficients, JointCells
from gbm_constrained.reductions.plug_in import PlugIn, move_weights, weigh_cells
from gbm_constrained.solvers import Reduction

OPTIONS = {
    "xgboost": {"max_depth": 2, "n_estimators": 12, "n_jobs": 1},
    "lightgbm": {"num_leaves": 4, "n_estimators": 12, "n_jobs": 1, "verbose": -1},
}
# Costs whose optimum has costs of its own: these.
COSTS = np.array([[0.0, 1, 1], [3, 0, 3], [9, 9, 0]])


@pytest.fixture(scope="module")
def data():
    rng = np.random.default_rng(0)
    y = rng.choice(3, 1500, p=[0.75, 0.18, 0.07])
    X = rng.normal(size=(1500, 3)) + 0.9 * y[:, None]
    return X, y, rng.choice(["a", "b"], 1500)


def _make(library, **options):
    return CLASSIFIERS[library](**{**OPTIONS[library], **options})


# -- weights -------------------------------------------------------------------------------------


def test_weights_are_the_ranges_of_costs():
    mass = np.array([80.0, 15.0, 5.0])
    costs = -np.diag([0.2, 1.0, 4.0])
    weights = weigh_cells(costs, mass)
    assert mass @ weights == pytest.approx(mass.sum(), abs=1e-12)
    np.testing.assert_allclose(weights / weights[0], [1.0, 5.0, 20.0], atol=1e-12)
    # A constant on a row of the costs changes no decision, and no weight.
    np.testing.assert_allclose(
        weigh_cells(costs + np.array([[3.0], [-1.0], [0.5]]), mass), weights
    )
    # Costs of several decisions count by their range.
    ordinal = np.abs(np.subtract.outer(np.arange(3.0), np.arange(3.0)))
    relative = weigh_cells(ordinal, np.ones(3))
    np.testing.assert_allclose(relative / relative[1], [2.0, 1.0, 2.0])


def test_costs_without_decisions_weigh_all_alike():
    np.testing.assert_array_equal(weigh_cells(np.ones((3, 3)), np.array([2.0, 1.0, 5.0])), 1.0)


def _oracle(probabilities, y):
    joint = JointCells(y, np.arange(2)[:, None], np.arange(2), 2)
    table = np.eye(4).reshape(4, 2, 2) / len(y)
    return PlugIn(probabilities, joint, np.arange(len(y)), None, Coefficients(table, np.zeros(4)))


def test_boosters_grown_at_costs_beat_wrong_probabilities():
    # Atoms 0, 1, 2 with P(1 | atom) = .1, .3, .6. The model without weights sees no difference
    # between the first two; grown with a larger weight of class 1, it does.
    atoms = np.repeat([0, 1, 2], 100)
    y = np.concatenate([np.arange(100) < 100 * p for p in (0.1, 0.3, 0.6)]).astype(int)
    truth, seen = np.array([0.1, 0.3, 0.6]), []

    def grow(weights):
        seen.append(weights)
        at = truth if weights[1] > 2 * weights[0] else np.array([0.2, 0.2, 0.6])
        return np.column_stack([1 - at, at])[atoms]

    plain = _oracle(grow(np.ones(2)), y)
    cost_of = np.array([0.0, 1.0, 4.0, 0.0])  # a false negative costs four times a false positive
    costs, _ = plain.minimise(cost_of)
    oracle = replace(plain, probabilities=grow(weigh_cells(costs, plain.mass)))
    values = [rule.minimise(cost_of)[1] @ cost_of for rule in (plain, oracle)]
    # Brute force over the eight decisions on atoms.
    best = min(
        np.mean(np.where(decision[atoms] == 1, 1.0 - y, 4.0 * y))
        for decision in np.array(np.meshgrid(*[[0, 1]] * 3)).reshape(3, 8).T
    )
    assert values[1] == pytest.approx(best, abs=1e-12)
    assert values[0] > best + 0.01
    np.testing.assert_allclose(seen[-1][1] / seen[-1][0], 4.0, atol=1e-9)


def test_weights_move_by_their_geometric_mean():
    mass = np.array([3.0, 1.0])
    costs = np.array([[0.0, 1.0], [16.0, 0.0]])
    moved = move_weights(np.ones(2), costs, mass, 0.5)
    assert moved[1] / moved[0] == pytest.approx(4.0)
    assert mass @ moved == pytest.approx(4.0)
    again = move_weights(moved, costs, mass, 0.5)
    assert again[1] / again[0] == pytest.approx(8.0)
    # Weights under the costs are at rest.
    rest = weigh_cells(costs, mass)
    np.testing.assert_allclose(move_weights(rest, costs, mass, 0.5), rest, atol=1e-12)


# -- fits ----------------------------------------------------------------------------------------


@EITHER
def test_refit_is_the_parents_with_the_weights_and_decides_by_the_rules(data, library):
    X, y, _ = data
    # Of fixed costs, a refit has the weights of these.
    model = _make(library, minimize=cost(COSTS), solver=Reduction(oracle="refit")).fit(X, y)
    report = model.metric_report_
    assert set(report["oracle"]) == {"refit", "plug_in"}
    assert list(report.loc[report["is_returned"], "oracle"]) == ["refit"]
    assert -model.score(X, y) == pytest.approx(report["train"].max(), abs=1e-9)
    factor = np.array([1.0, 3.0, 9.0])[y]
    factor *= len(y) / factor.sum()
    plain = PARENTS[library](**OPTIONS[library]).fit(X, y, sample_weight=factor)
    shift = margins_of(model, X) - margins_of(plain, X)
    np.testing.assert_allclose(shift, shift[:1].repeat(len(X), 0), atol=2e-4)


def test_auto_takes_the_plug_in_where_nothing_is_better(data):
    X, y, _ = data
    auto = _make("lightgbm", maximize=h_mean(), solver=Reduction(oracle="auto")).fit(X, y)
    plug_in = _make("lightgbm", maximize=h_mean(), solver=Reduction(oracle="plug_in")).fit(X, y)
    report = auto.metric_report_
    assert set(report["oracle"]) == {"plug_in", "in_training"}
    assert list(report.loc[report["is_returned"], "oracle"]) == ["plug_in"]
    np.testing.assert_array_equal(auto.predict(X), plug_in.predict(X))


def _blurred(share):
    """Probabilities of a label that atoms decide nearly, mixed with equal ones in some atoms."""
    random = np.random.default_rng(1)
    atoms = random.integers(0, 4, 2000)
    truth = np.array([0.02, 0.1, 0.3, 0.8])
    y = (random.uniform(size=2000) < truth[atoms]).astype(int)
    seen = (1 - share) * truth + share * np.array([0.25, 0.3, 0.2, 0.15])
    return np.column_stack([1 - seen, seen])[atoms], y


class _Boosters:
    """Boosters of known probabilities, those without weights and all others."""

    def __init__(self, plain, weighted):
        self.plain, self.weighted, self.asked = plain, weighted, []

    def grow(self, weights=None):
        self.asked.append("refit" if weights is not None else "plug_in")
        return self.plain if weights is None else self.weighted

    def grow_in_step(self, n_stages, move):
        self.asked.append("in_training")
        return np.ones((n_stages, 2)), self.weighted


def _search(y):
    options = SolverOptions.of(_make("lightgbm", maximize=h_mean()))
    arguments = FitArguments(np.zeros((len(y), 1)), y)
    problem = MetricProblem.of(options, arguments, LibrarySettings(0.1, 1))
    held = problem.on(np.arange(len(y)))
    return MetricSearch(held, held.oracle(np.empty((0, 2))))


@pytest.mark.parametrize(("has_stages", "other"), [(True, "in_training"), (False, "refit")])
def test_auto_takes_boosters_that_are_better_by_more_than_an_error(has_stages, other):
    wrong, y = _blurred(1.0)
    right, _ = _blurred(0.0)
    boosters = _Boosters(wrong, right)
    found = search_oracles("auto", _search(y), boosters, has_stages=has_stages)
    assert [one.chosen.oracle for one in found] == [other, "plug_in"]
    assert found[0].chosen.value > found[1].chosen.value + 0.05
    assert boosters.asked == ["plug_in", other]
    alike = search_oracles("auto", _search(y), _Boosters(right, right), has_stages=has_stages)
    assert [one.chosen.oracle for one in alike] == ["plug_in", other]


def test_rules_decide_rows_as_they_were_counted():
    """All rows of an atom turn together where both decisions about them cost the same."""
    wrong, y = _blurred(0.5)
    search = replace(_search(y), oracle=_search(y).held.oracle(wrong))
    exact = search.oracle.by_probabilities()
    for negative, positive in np.unique(exact.probabilities, axis=0):
        ties = np.array([[0.0, positive], [negative, 0.0]])
        decided = search.oracle.decide(search.oracle.restate([ties])[0])
        np.testing.assert_array_equal(decided, exact.decide(ties))


def test_auto_tries_no_other_on_many_rows():
    wrong, y = _blurred(1.0)
    right, _ = _blurred(0.0)
    many = 1 + MAX_ROWS_OF_AUTO // len(y)
    boosters = _Boosters(np.tile(wrong, (many, 1)), np.tile(right, (many, 1)))
    found = search_oracles("auto", _search(np.tile(y, many)), boosters, has_stages=True)
    assert [one.chosen.oracle for one in found] == boosters.asked == ["plug_in"]


def test_weights_of_groups_are_those_of_joint_cells(data):
    X, y, group = data
    rules = [gc.gap(gc.tpr(), by="g") <= 0.03]
    model = _make(
        "lightgbm", maximize=g_mean(), constraints=rules, solver=Reduction(oracle="refit")
    )
    model.fit(X, y > 0, sensitive_features={"g": group})
    weights = model._rules["cell_scores"]["cell_factors"]
    assert weights.shape == (4,)
    assert np.ptp(weights) > 0.1
    report = model.metric_report_.query("is_returned")
    assert report["violation"].iloc[0] <= 1e-6
    # The booster of the labels has the mean weight of each label.
    of_row = weights[2 * (y > 0) + (group == "b")]
    mean = np.array([of_row[y == 0].mean(), of_row[y > 0].mean()])
    np.testing.assert_allclose(model._rules["cell_scores"]["label_factors"], mean, rtol=1e-12)
    alone = _make("lightgbm").fit(X, y > 0, sample_weight=mean[(y > 0).astype(int)])
    np.testing.assert_array_equal(model.predict_proba(X), alone.predict_proba(X))


def test_unknown_oracle(data):
    X, y, _ = data
    with pytest.raises(ValueError, match=r"oracle of Reduction must be one of .*'best'"):
        _make("lightgbm", maximize=h_mean(), solver=Reduction(oracle="best")).fit(X, y)


# -- with what else decides the model ------------------------------------------------------------


@EITHER
def test_merged_boosters_of_the_folds_have_the_weights(data, library):
    """Groups of rows that stay together are the folds, so that their boosters are known."""
    X, y, _ = data
    groups = np.arange(len(y)) % 3
    options = {
        "minimize": cost(COSTS),
        "measure_on": gc.CrossFit(3),
        "probabilities": "calibrated",
    }
    model = _make(library, **options, solver=Reduction(oracle="refit", ensemble="folds")).fit(
        X, y, groups=groups
    )
    factor = np.array([1.0, 3.0, 9.0])[y]
    factor *= len(y) / factor.sum()
    alone = [
        _make(library).fit(X[groups != k], y[groups != k], sample_weight=factor[groups != k])
        for k in range(3)
    ]
    expected = np.mean([margins_of(one, X).astype(float) for one in alone], axis=0)
    np.testing.assert_allclose(margins_of(model, X), expected, rtol=0, atol=2e-6)


@pytest.mark.parametrize(
    ("library", "own"),
    [("xgboost", {"booster": "dart"}), ("lightgbm", {"boosting_type": "dart"})],
)
def test_weighted_scores_that_are_no_log_odds_are_calibrated(data, library, own):
    X, y, _ = data
    model = _make(
        library, **own, minimize=cost(COSTS), solver=Reduction(oracle="refit"), random_state=0
    ).fit(X, y)
    report = model.metric_report_
    assert list(report.loc[report["is_returned"], "oracle"]) == ["refit"]
    assert -model.score(X, y) == pytest.approx(report["train"].max(), abs=1e-9)
    # Weights of a calibrated model do not bias its decisions: nearly the plug-in rules' cost.
    values = report.set_index(["oracle", "decisions"])["held_out"]
    plug_in = values.loc["plug_in"].iloc[0]
    assert values["refit", "model"] == pytest.approx(plug_in, rel=0.15)


def test_constraints_without_a_metric_take_the_plug_in(data):
    X, y, _ = data
    model = _make("lightgbm", boosting_type="dart", random_state=0)
    model.set_params(constraints=[gc.fnr(2) <= 0.2]).fit(X, y)
    assert set(model.metric_report_["oracle"]) == {"plug_in"}


# -- boosters that are grown in stages, with weights that follow the costs of a metric ------------

CONTINUED = {"xgboost": "xgb_model", "lightgbm": "init_model"}
STAGES = (4, 4, 4)  # of twelve rounds


@pytest.fixture(scope="module")
def fewer(data):
    return tuple(part[:1200] for part in data)


def _make_in_stages(library, **options):
    return _make(library, **{"solver": Reduction(oracle="in_training"), **options})


def _grow_natively(library, X, y, path, of_rows):
    """Grow the parent in stages by hand, with the weights of each."""
    model = None
    for weights, rounds in zip(path, STAGES, strict=True):
        stage = PARENTS[library](**{**OPTIONS[library], "n_estimators": rounds})
        stage.fit(X, y, sample_weight=weights[of_rows], **{CONTINUED[library]: model})
        model = stage
    return model


def _path_to(relative, y):
    """Weights that go three quarters of the way to fixed ones in each stage, in logarithms."""
    share = np.bincount(y) / len(y)
    path = np.asarray(relative) ** (1 - 0.25 ** np.arange(len(STAGES)))[:, None]
    return path / (path @ share)[:, None]


def _assert_equal_but_for_a_shift(found, expected):
    shift = found - expected
    np.testing.assert_allclose(shift, np.broadcast_to(shift[:1], shift.shape), atol=2e-6)


@EITHER
def test_weights_go_to_fixed_costs(fewer, library):
    X, y, _ = fewer
    model = _make_in_stages(library, minimize=cost(COSTS)).fit(X, y)
    expected = _grow_natively(library, X, y, _path_to([1.0, 3.0, 9.0], y), y)
    _assert_equal_but_for_a_shift(margins_of(model, X), margins_of(expected, X))
    report = model.metric_report_
    assert set(report["oracle"]) == {"in_training"}
    assert -model.score(X, y) == pytest.approx(report["train"].max(), abs=1e-9)


@EITHER
def test_stages_of_equal_weights_are_one_fit(fewer, library):
    X, y, _ = fewer
    given = {"eval_set": [(X[:300], y[:300])], **quiet(library)}
    model = _make_in_stages(library, minimize=cost(1 - np.eye(3))).fit(X, y, **given)
    plain = PARENTS[library](**OPTIONS[library]).fit(X, y, **given)
    _assert_equal_but_for_a_shift(margins_of(model, X), margins_of(plain, X))
    # The values of all stages are recorded.
    for name, values in plain.evals_result_.items():
        assert set(model.evals_result_[name]) == set(values)
        for metric, of_rounds in values.items():
            np.testing.assert_allclose(model.evals_result_[name][metric], of_rounds, atol=1e-6)


@EITHER
def test_same_seed_same_model(fewer, library):
    X, y, _ = fewer
    drawn = {"subsample": 0.7, "random_state": 3}
    if library == "lightgbm":
        drawn["subsample_freq"] = 1
    model = _make_in_stages(library, maximize=h_mean(), **drawn)
    first = clone(model).fit(X[:500], y[:500])
    # Random numbers that another training has left behind are not taken up.
    PARENTS[library](**OPTIONS[library], **drawn).fit(X[:77], y[:77])
    second = clone(model).fit(X[:500], y[:500])
    np.testing.assert_array_equal(margins_of(first, X), margins_of(second, X))
    np.testing.assert_array_equal(first.predict(X), second.predict(X))


@EITHER
def test_merged_boosters_of_the_folds_are_grown_along_the_path(fewer, library):
    X, y, _ = fewer
    groups = np.arange(len(y)) % 3
    options = {
        "measure_on": gc.CrossFit(3),
        "probabilities": "calibrated",
        "solver": Reduction(oracle="in_training", ensemble="folds"),
    }
    model = _make_in_stages(library, minimize=cost(COSTS), **options).fit(X, y, groups=groups)
    path = _path_to([1.0, 3.0, 9.0], y)
    alone = []
    for k in range(3):
        rest = groups != k
        grown = _grow_natively(library, X[rest], y[rest], path, y[rest])
        alone.append(margins_of(grown, X).astype(float))
    np.testing.assert_allclose(margins_of(model, X), np.mean(alone, axis=0), rtol=0, atol=2e-6)


def test_rounds_are_divided_by_whichever_name_they_have(fewer):
    X, y, _ = fewer
    model = _make_in_stages("lightgbm", maximize=h_mean(), num_iterations=7).fit(X, y)
    assert model.booster_.num_trees() == 7 * 3


# -- what cannot be grown in stages --------------------------------------------------------------


@pytest.mark.parametrize(
    ("library", "options", "arguments", "named"),
    [
        ("lightgbm", {"boosting_type": "dart"}, {}, "boosting_type='dart'"),
        ("lightgbm", {"early_stopping_round": 3}, {}, "early stopping"),
        ("lightgbm", {}, {"callbacks": [lgb.early_stopping(3)]}, "early stopping"),
        ("lightgbm", {}, {"callbacks": [lgb.log_evaluation(0)]}, "callbacks"),
        ("lightgbm", {}, {"init_score": np.zeros((1200, 3))}, "init_score"),
        ("xgboost", {"booster": "gblinear"}, {}, "booster='gblinear'"),
        ("xgboost", {"early_stopping_rounds": 3}, {}, "early stopping"),
        (
            "xgboost",
            {"callbacks": [xgb.callback.LearningRateScheduler(lambda _: 0.1)]},
            {},
            "callbacks",
        ),
    ],
)
def test_what_stages_do_not_allow_is_named(fewer, library, options, arguments, named):
    X, y, _ = fewer
    model = _make_in_stages(library, maximize=h_mean(), **options)
    with pytest.raises(ValueError, match=f"in stages, .*{named} does not allow .*'refit'"):
        model.fit(X, y, **arguments)


def test_a_linear_model_has_no_stages(fewer):
    X, y, _ = fewer
    with pytest.raises(ValueError, match="a linear model, which has no rounds, does not allow"):
        fit_linear(X, y, maximize=h_mean(), constraint_solver=Reduction(oracle="in_training"))
    assert (
        fit_linear(X, y, maximize=h_mean(), constraint_solver=Reduction(oracle="auto")).score(X, y)
        > 0.5
    )


# -- boosters of the labels and of the joint cells, which hold out the same rows ------------------

N = 600
GAP = gc.gap(gc.tpr(), by="g") <= 0.03


@pytest.fixture(scope="module")
def grouped():
    rng = np.random.default_rng(0)
    y = (rng.uniform(size=N) < 0.3).astype(int)
    group = np.where(rng.uniform(size=N) < 0.4, "b", "a")
    X = rng.normal(size=(N, 3)) + 0.9 * y[:, None] + 0.5 * (group == "b")[:, None]
    return X, y, group


class _Scores:
    """A model of fixed scores, one of them for the labels, and one for each cell."""

    def __init__(self, part):
        self.model = part

    def margin(self, X, rows):
        if not self.model.is_joint:
            return np.asarray(X)[:, 1]
        return score_cells(X, np.unique(self.model.target[self.model.rows]).size)

    def to_bytes(self):
        return b""


def score_cells(X, n_cells):
    return np.asarray(X) @ np.random.default_rng(5).normal(size=(3, n_cells))


def make_boosters(parameters, given, trained, *, n_rounds=6, are_log_odds=True):
    """Make boosters of two folds, each of which remembers what it was trained on."""
    options = SolverOptions.of(CLASSIFIERS["lightgbm"](**parameters))
    problem = MetricProblem.of(options, given, LibrarySettings(0.1, n_rounds))

    def fit_part(part):
        trained.append(part)
        return _Scores(part)

    n = len(problem.data.rows)
    folds = folds_of([np.arange(0, n, 2), np.arange(1, n, 2)], n)
    adapter = SimpleNamespace(fit_part=fit_part)
    growth = NativeGrowth(adapter, CallbackNotifier([], n_rounds, 1), None)
    return HeldOutBoosters(problem, growth, folds, are_log_odds=are_log_odds)


def hold_out(grouped, trained, *, datasets=None, constraint=GAP, **options):
    X, y, group = grouped
    given = FitArguments(X, y, sensitive_features={"g": group}, datasets=datasets)
    parameters = {"maximize": g_mean(), "constraints": [constraint]}
    return make_boosters(parameters, given, trained, **options)


def code_cells(y, group):
    return 2 * y + (group == "b")


def join(P, Q):
    """Compute P(label) Q(group | label) for the cells of two labels and two groups."""
    Q = Q.reshape(-1, 2, 2)
    return (P[:, :, None] * Q / Q.sum(axis=2, keepdims=True)).reshape(-1, 4)


def test_probabilities_are_of_the_label_times_the_group_given_the_label(grouped):
    X, _, _ = grouped
    trained = []
    boosters = hold_out(grouped, trained)
    found = boosters.grow()
    assert [part.is_joint for part in trained] == [False, False, True, True]
    P = softmax(np.column_stack([np.zeros(N), X[:, 1]]), axis=1)
    Q = softmax(score_cells(X, 4), axis=1)
    np.testing.assert_allclose(found, join(P, Q), rtol=1e-12)
    assert boosters.grow() is not None
    assert len(trained) == 4  # Boosters are grown once.


def test_both_boosters_are_calibrated_where_scores_are_no_log_odds(grouped):
    X, y, group = grouped
    boosters = hold_out(grouped, [], are_log_odds=False)
    scores = score_cells(X, 4)
    label_factors, label_scale = calibrate_scores(X[:, 1], y, 2, None)
    cell_factors, cell_scale = calibrate_scores(scores, code_cells(y, group), 4, None)
    of_labels = np.column_stack([np.zeros(N), label_scale * X[:, 1]])
    P = softmax(of_labels - np.log(label_factors), axis=1)
    Q = softmax(cell_scale * scores - np.log(cell_factors), axis=1)
    np.testing.assert_allclose(boosters.grow(), join(P, Q), rtol=1e-9)


def test_labels_have_the_mean_weight_of_their_cells(grouped):
    X, y, group = grouped
    weights, trained = np.array([0.5, 1.0, 2.0, 4.0]), []
    boosters = hold_out(grouped, trained)
    found = boosters.grow(weights)
    of_row = weights[code_cells(y, group)]
    mean = np.array([of_row[y == k].mean() for k in (0, 1)])
    for part in trained:
        np.testing.assert_allclose(part.factor, of_row if part.is_joint else mean[y], rtol=1e-12)
    np.testing.assert_allclose(boosters.row_factor(weights), mean[y], rtol=1e-12)
    P = softmax(np.column_stack([np.zeros(N), X[:, 1]]) - np.log(mean), axis=1)
    Q = softmax(score_cells(X, 4) - np.log(weights), axis=1)
    np.testing.assert_allclose(found, join(P, Q), rtol=1e-12)


def test_both_boosters_grow_in_step(grouped):
    X, y, group = grouped
    trained, seen = [], []
    boosters = hold_out(grouped, trained)

    def move(weights, probabilities):
        seen.append(probabilities)
        return weights * [1.0, 1.0, 1.0, 3.0]

    path, last = boosters.grow_in_step(3, move)
    assert [part.is_joint for part in trained] == [False, False, True, True] * 3
    assert {part.rounds for part in trained} == {2}
    for i, part in enumerate(trained):
        of_row = path[i // 4][code_cells(y, group)]
        mean = np.array([of_row[y == k].mean() for k in (0, 1)])
        np.testing.assert_allclose(part.factor, of_row if part.is_joint else mean[y], rtol=1e-12)
        if i >= 4:
            assert part.start.model is trained[i - 4]
    np.testing.assert_array_equal(boosters.grow(path), last)
    assert len(trained) == 12
    factors, scale, cells = boosters.link(path)
    assert ((factors == 1.0).all(), scale) == (True, 1.0)
    label_factors, label_scale = calibrate_scores(X[:, 1], y, 2, None)
    np.testing.assert_array_equal(cells.label_factors, label_factors)
    assert cells.label_scale == label_scale
    boosters.label_model(path)
    boosters.cell_model(path)
    assert [part.rounds for part in trained[12:]] == [2] * 6
    assert [part.is_joint for part in trained[12:]] == [False] * 3 + [True] * 3


def test_rows_of_further_data_are_no_labels(grouped):
    X, y, _ = grouped
    later = np.random.default_rng(1).normal(size=(60, 3))
    constraint = gc.selection_rate(on=gc.dataset("later")) <= 0.3
    trained = []
    boosters = hold_out(
        grouped, trained, datasets={"later": later}, constraint=constraint, are_log_odds=False
    )
    _, _, cells = boosters.link()
    assert (np.sort(cells.labels) == [OTHER_DATA, 0, 1]).all()
    np.testing.assert_array_equal(cells.label_factors, calibrate_scores(X[:, 1], y, 2, None)[0])
    for part in trained:
        assert (part.rows >= N).any() == part.is_joint
    found = boosters.grow()
    assert found.shape == (N + 60, 3)
    np.testing.assert_allclose(found.sum(axis=1), 1.0, rtol=1e-12)


# -- boosters of the labels alone, which grow in step --------------------------------------------


def test_boosters_of_the_folds_grow_in_step_and_move_by_calibrated_probabilities():
    rng = np.random.default_rng(0)
    y = np.tile([0, 0, 0, 1], 50)
    X = np.tile((rng.normal(size=200) + y)[:, None], 2)
    trained, seen = [], []
    boosters = make_boosters({"maximize": h_mean()}, FitArguments(X, y), trained, n_rounds=5)

    def move(weights, probabilities):
        seen.append((weights, probabilities))
        return weights * [1.0, 2.0]

    path, last = boosters.grow_in_step(3, move)
    np.testing.assert_array_equal(path, [[1.0, 1.0], [1.0, 2.0], [1.0, 4.0]])
    assert [part.rounds for part in trained] == [2, 2, 2, 2, 1, 1]
    for i, part in enumerate(trained):
        np.testing.assert_array_equal(part.rows, np.arange(1 - i % 2, 200, 2))
        np.testing.assert_array_equal(part.factor, path[i // 2][y])
        assert (part.start is None) == (i < 2)
        if i >= 2:
            assert part.start.model is trained[i - 2]
    # Scores are made probabilities by likelihood, whatever the weights were.
    factors, scale = calibrate_scores(X[:, 0], y, 2, None)
    odds = np.exp(scale * X[:, 0]) * factors[0] / factors[1]
    for probabilities in (*(p for _, p in seen), last):
        np.testing.assert_allclose(probabilities[:, 1], odds / (1 + odds), rtol=1e-9)
    assert last[:, 1].mean() == pytest.approx(0.25, abs=1e-4)
    # The same path is not grown again.
    np.testing.assert_array_equal(boosters.grow(path), last)
    assert len(trained) == 6


@pytest.mark.parametrize("n_rounds", [1, 2])
def test_stages_are_no_more_than_rounds(n_rounds):
    y = np.tile([0, 0, 0, 1], 20)
    trained = []
    given = FitArguments(np.tile(y[:, None] * 1.0, 2), y)
    boosters = make_boosters({"maximize": h_mean()}, given, trained, n_rounds=n_rounds)
    path, _ = boosters.grow_in_step(3, lambda weights, _: weights)
    assert len(path) == n_rounds
    assert [part.rounds for part in trained] == [1] * 2 * n_rounds
