"""Fits on folds of splitters and of times: the same models, rows of guarantees, refusals."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import BOTH
from measured_fits import make
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold
from gbm_constrained.fit.cross_fit import _find_compared
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import FitProblem, LibrarySettings
from gbm_constrained.solvers import Reduction

RULES = [gc.fpr() <= 0.1]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    return X, y


def bind(X, y, time=None, **options):
    options = SolverOptions.of(make("lightgbm", RULES, **options))
    return FitProblem.of(options, FitArguments(X, y, time=time), LibrarySettings(0.1, 5))[1]


@BOTH
def test_own_folds_given_as_pairs_make_the_same_model(library, rows):
    X, y = rows
    problem = bind(X, y)
    parts = problem.data.split(np.arange(y.size), problem.cells, 0.25, 4)
    pairs = [(np.setdiff1d(np.arange(y.size), part), part) for part in parts]
    own = make(library, RULES, measure_on="crossfit", random_state=None).fit(X, y)
    given = make(library, RULES, measure_on=pairs, random_state=None).fit(X, y)
    np.testing.assert_array_equal(own.predict_proba(X), given.predict_proba(X))
    pd.testing.assert_frame_equal(own.constraint_report_, given.constraint_report_)


@BOTH
def test_windows_by_time_are_those_of_the_splitter_of_rows_in_order(library, rows):
    """A bound that never binds leaves the decisions to the boosters, whatever periods weigh."""
    X, y = rows
    rules = [gc.fpr() <= 0.9]
    by_splitter = make(library, rules, measure_on=TimeSeriesSplit(3)).fit(X, y)
    by_time = make(library, rules, measure_on=gc.Forward(3)).fit(X, y, time=np.arange(600))
    np.testing.assert_array_equal(by_splitter.predict_proba(X), by_time.predict_proba(X))
    assert by_time.constraint_report_["rows"].tolist() == ["later periods"]
    assert by_splitter.constraint_report_["rows"].tolist() == ["out of fold of TimeSeriesSplit"]
    report = by_time.period_report_
    assert report["period"].tolist() == [1, 2, 3]
    assert report["last"].tolist() == [299, 449, 599]
    assert [(y[i : i + 150] == 0).sum() for i in (150, 300, 450)] == report["rows"].tolist()
    assert not hasattr(by_splitter, "period_report_")
    # A period counts half as much as the next one.
    weight = report["rows"] * [0.25, 0.5, 1.0]
    held_out = np.average(report["value"], weights=weight)
    assert by_time.constraint_report_["held_out"][0] == pytest.approx(held_out, abs=1e-12)
    plain = np.average(report["value"], weights=report["rows"])
    assert by_splitter.constraint_report_["held_out"][0] == pytest.approx(plain, abs=1e-12)


@BOTH
@pytest.mark.parametrize(
    ("rule", "objective"),
    [
        (gc.fnr() <= 0.15, {}),
        (gc.fnr() <= 0.15, {"maximize": "g_mean", "solver": Reduction(deterministic=True)}),
        (gc.log_loss() <= 0.2, {}),
    ],
)
def test_a_report_is_the_mean_of_its_periods(library, rule, objective):
    """Also where other periods choose the threshold, and where labels drift."""
    rng = np.random.default_rng(0)
    X, month = rng.normal(size=(900, 2)), np.arange(900) // 180
    y = (X[:, 0] + month * (X[:, 1] - 0.3) / 3 + rng.normal(size=900) > 0.7).astype(int)
    model = make(library, [rule], measure_on=gc.Forward(4), **objective)
    model.fit(X, y, time=month)
    report = model.period_report_.iloc[:4]
    held_out = np.average(report["value"], weights=report["rows"] * [1, 2, 4, 8])
    assert model.constraint_report_["held_out"][0] == pytest.approx(held_out, abs=1e-12)


@BOTH
def test_a_column_of_x_is_the_time(library, rows):
    X, y = rows
    table = pd.DataFrame(X).rename(columns=str).assign(day=np.arange(600) // 10)
    by_name = make(library, RULES, measure_on="forward").fit(table, y, time="day")
    by_values = make(library, RULES, measure_on="forward").fit(table, y, time=table["day"])
    np.testing.assert_array_equal(by_name.predict_proba(table), by_values.predict_proba(table))


def test_rows_of_a_guarantee_are_the_latest(rows):
    X, y = rows
    time = np.random.default_rng(1).permutation(600)
    problem = bind(X, y, time, measure_on="forward", guarantee=gc.HighProbability(fraction=0.25))
    assert set(time[problem.data.certification]) == set(range(450, 600))
    for fold in problem.data.given_folds.folds:
        times = time[problem.data.training]
        assert times[fold.training].max() < times[fold.held].min()


def test_rows_of_a_guarantee_are_in_no_fold_of_a_splitter(rows):
    X, y = rows
    problem = bind(X, y, guarantee="expected", measure_on=KFold(3))
    data = problem.data
    assert data.given_folds.held.size == data.training.size == 600 - data.certification.size
    for i, fold in enumerate(data.given_folds.folds):
        held = data.training[fold.held]
        assert (held // 200 == i).all()


@BOTH
def test_a_metric_is_optimised_on_given_folds(library, rows):
    X, y = rows
    pairs = list(TimeSeriesSplit(3).split(X))
    options = {"maximize": "g_mean", "random_state": 0}
    given = make(library, [], measure_on=TimeSeriesSplit(3), **options).fit(X, y)
    as_pairs = make(library, [], measure_on=pairs, **options).fit(X, y)
    pd.testing.assert_frame_equal(
        given.metric_report_.drop(columns="rows"), as_pairs.metric_report_.drop(columns="rows")
    )


@BOTH
def test_the_rules_of_a_metric_are_measured_on_periods_by_their_weights(library, rows):
    X, y = rows
    options = {"maximize": "accuracy", "solver": Reduction(oracle="plug_in")}
    model = make(library, [], measure_on=gc.Forward(3), **options)
    table = model.fit(X, y, time=np.arange(600)).metric_report_
    values = [
        make(library, []).fit(X[:end], y[:end]).score(X[end : end + 150], y[end : end + 150])
        for end in (150, 300, 450)
    ]
    expected = np.average(values, weights=[0.25, 0.5, 1.0])
    argmax = table.loc[table["decisions"] == "argmax"].iloc[0]
    assert argmax["held_out"] == pytest.approx(expected, abs=1e-12)


@BOTH
def test_groups_of_fit_are_those_of_the_splitter(library, rows):
    X, y = rows
    groups = np.arange(600) // 6
    by_splitter = make(library, RULES, measure_on=GroupKFold(3)).fit(X, y, groups=groups)
    pairs = list(GroupKFold(3).split(X, y, groups))
    by_pairs = make(library, RULES, measure_on=pairs).fit(X, y)
    np.testing.assert_array_equal(by_splitter.predict_proba(X), by_pairs.predict_proba(X))


def test_rates_are_compared_on_the_same_rows_where_some_are_never_held_out():
    windows = [Fold(np.arange(2 * k), np.arange(2 * k, 2 * k + 2)) for k in (1, 2, 3)]
    held = np.arange(2, 8)
    assert [part.tolist() for part in _find_compared(windows, held)] == [[], [2, 3], [2, 3, 4, 5]]
    halves = [Fold(np.arange(4), np.arange(4, 8)), Fold(np.arange(4, 8), np.arange(4))]
    assert _find_compared(halves, np.arange(8)) == []
    assert _find_compared(halves[:1], np.arange(4, 8)) == []


@BOTH
def test_parameters_are_cloned_and_a_checkpoint_knows_the_folds(library, rows, tmp_path):
    X, y = rows
    model = make(library, RULES, measure_on=ShuffleSplit(1, test_size=0.3))
    assert clone(model).measure_on.test_size == 0.3

    def stop(state):
        if state.phase == "training":
            raise KeyboardInterrupt

    path = tmp_path / "fit.checkpoint"
    with pytest.raises(KeyboardInterrupt):
        model.fit(X, y, checkpoint=path, constraint_callbacks=[stop])
    with pytest.raises(ValueError, match=r"is of another fit: .*folds"):
        model.fit(X, y, checkpoint=path, constraint_callbacks=[stop])


TIME = {"time": np.arange(600)}
CASES = {
    "a number": ({"measure_on": 5}, {}, TypeError, r"such as CrossFit\(n_folds=3\), .* got 5"),
    "no time": ({"measure_on": "forward"}, {}, ValueError, "give fit time="),
    "time alone": ({}, TIME, ValueError, "use measure_on='forward'"),
    "few times": (
        {"measure_on": "forward"}, {"time": np.arange(600) % 3}, ValueError,
        r"time has 3 different values.*Forward\(n_folds=4\) asks",
    ),
    "groups": (
        {"measure_on": "forward"}, {**TIME, "groups": np.arange(600) // 2}, ValueError,
        "leave groups out",
    ),
    "data sets": (
        {"measure_on": KFold(3)}, {"datasets": {"more": np.zeros((5, 4))}}, ValueError,
        "divides the training rows",
    ),
    "a class": (
        {"measure_on": [(np.arange(300), np.arange(300, 600))]}, {"sorted": True}, ValueError,
        "trains on no row of class 1",
    ),
    "a group": (
        {
            "measure_on": [(np.arange(300), np.arange(300, 600))],
            "constraints": [gc.gap(gc.fpr(), by="g") <= 0.1],
        },
        {"sensitive_features": {"g": np.arange(600) < 200}},
        ValueError,
        "holds out no row that a rate of gap",
    ),
    "black box": (
        {"measure_on": KFold(3), "constraints": [],
         "minimize": gc.metrics.BlackBox(lambda y, scores: 0.5)},
        {}, ValueError, "has no meaning",
    ),
}  # fmt: skip


@BOTH
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:.*some groups have fewer")
def test_what_does_not_go_together_is_refused_before_training(library, case, rows):
    options, given, error, message = CASES[case]
    X, y = rows
    given = dict(given)
    if given.pop("sorted", False):
        y = np.sort(y)
    with pytest.raises(error, match=message):
        make(library, **{"constraints": RULES, **options}).fit(X, y, **given)
