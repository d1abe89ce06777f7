"""Folds of a fit: its own, those of splitters and of times, and what is refused."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER, RULES
from measured_fits import draw_table, make
from sklearn.base import clone
from sklearn.model_selection import GroupKFold, KFold, ShuffleSplit, TimeSeriesSplit

import gbm_constrained as gc
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.data.splits import Fold
from gbm_constrained.fit.cross_fit import _find_compared
from gbm_constrained.fit.fit import ConstrainedFit
from gbm_constrained.fit.options import SolverOptions
from gbm_constrained.fit.problem import MIN_ROWS_FOR_HOLDOUT, FitProblem, LibrarySettings
from gbm_constrained.solvers import Reduction


@pytest.fixture(scope="module")
def table():
    return draw_table()


@EITHER
def test_fewer_rows_than_folds(library, conclusions):
    """Each row is a fold then."""
    X = np.arange(12.0).reshape(6, 2)
    y = np.array([0, 1, 0, 1, 1, 0])
    make(library, [gc.fnr() <= 0.5], measure_on=gc.CrossFit(10), n_estimators=2).fit(X, y)
    assert [fold.held.size for fold in conclusions[0].fit.measured.boosters.folds] == [1] * 6


@EITHER
def test_no_seed_is_seed_zero(library, table, conclusions):
    X, y = table
    seeds = [None, 0, np.random.RandomState(0), 1]
    for seed in seeds:
        make(library, RULES["binary"], random_state=seed, n_estimators=2).fit(X, y["binary"])
    held = [
        [fold.held for fold in fit.measured.boosters.folds]
        for fit in (found.fit for found in conclusions)
    ]
    for other in held[1:3]:
        for one, two in zip(held[0], other, strict=True):
            np.testing.assert_array_equal(one, two)
    assert any(
        (one.size, *one) != (two.size, *two) for one, two in zip(held[0], held[3], strict=True)
    )


@EITHER
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_groups_of_a_fit(library, measure_on, table, conclusions):
    X, y = table
    groups = np.array([f"patient {i}" for i in np.arange(600) // 5])
    model = make(library, RULES["binary"], measure_on=measure_on, n_estimators=3)
    model.fit(X, y["binary"], groups=groups)
    folds = conclusions[0].fit.measured.boosters.folds
    assert len(folds) == (4 if measure_on == "crossfit" else 1)
    for fold in folds:
        assert not np.intersect1d(groups[fold.training], groups[fold.held]).size
        np.testing.assert_array_equal(
            np.sort(np.concatenate([fold.training, fold.held])), np.arange(600)
        )
    with pytest.raises(ValueError, match=r"groups.*600 training rows.*599"):
        model.fit(X, y["binary"], groups=groups[:-1])


@pytest.mark.parametrize(
    ("sizes", "constraints", "where"),
    [
        ((60_000, 25_000), [gc.fnr() <= 0.1, gc.error_rate() <= 0.5], "holdout"),
        ((60_000, 24_999), [gc.fnr() <= 0.1, gc.error_rate() <= 0.5], "crossfit"),
        ((60_000, 24_999), [gc.error_rate() <= 0.5], "holdout"),
        ((60_000, 24_999), [gc.fpr() <= 0.5], "holdout"),
        ((60_000, 60_000), [gc.gap(gc.selection_rate(), by="s") <= 0.5], "crossfit"),
        ((60_000, 60_000), [gc.log_loss() <= 0.5], "crossfit"),
    ],
)
def test_holdout_is_chosen_where_every_rate_has_many_rows(sizes, constraints, where):
    assert MIN_ROWS_FOR_HOLDOUT == 25_000
    y = np.repeat([0, 1], sizes)
    s = np.arange(y.size) >= 22_500  # one group is too small
    options = SolverOptions.of(gc.ConstrainedXGBClassifier(constraints=constraints))
    X = np.zeros((y.size, 1))
    arguments = FitArguments(X, y, sensitive_features={"s": s})
    fit = ConstrainedFit(options, arguments, LibrarySettings(0.1, 1))
    for is_divisible, expected in ((True, where), (False, "train")):
        for evaluation_sets in ([], [fit.data]):
            fit.is_divisible, fit.evaluation_sets = is_divisible, evaluation_sets
            assert fit.resolve_measurement() == expected


@EITHER
def test_many_rows_of_each_rate_grow_one_booster_more(library, conclusions, grown):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * MIN_ROWS_FOR_HOLDOUT, 2))
    y = np.arange(len(X)) % 2
    X[:, 0] += y
    model = make(library, [gc.fnr() <= 0.5], n_estimators=2).fit(X, y)
    assert len(conclusions[0].fit.measured.boosters.members) == 1
    assert model.constraint_report_["rows"][0] == "holdout"
    assert grown == [False], "the plain booster meets the bound"


@EITHER
def test_the_share_held_out_is_stratified(library, table, conclusions):
    X, y = table[0], table[1]["binary"]
    model = make(library, [gc.fnr() <= 0.1], measure_on=gc.Holdout(0.4))
    model.fit(X, y)
    held = conclusions[0].fit.measured.boosters.folds[0].held
    assert abs(held.size - 0.4 * 600) <= 1
    assert abs(y[held].sum() - 0.4 * y.sum()) <= 1


def earlier(library, X, y):
    model = make(library, [], n_estimators=3).fit(X, y)
    if library == "xgboost":
        return {"xgb_model": model.get_booster()}
    return {"init_model": model.booster_}


@EITHER
def test_continued_training_is_measured_on_training_rows(library, table, conclusions):
    """By default; asked for explicitly it is refused, unless there is an evaluation set."""
    X, y = table[0], table[1]["binary"]
    begin = earlier(library, X, y)
    model = make(library, [gc.fnr() <= 0.1]).fit(X, y, **begin)
    assert conclusions[-1].fit.measured.boosters is None
    report = model.constraint_report_
    assert report[["held_out", "low", "high"]].isna().all(axis=None)
    assert (report["rows"] == "training rows").all()
    assert not model.shift_.any()
    for measure_on in ("holdout", "crossfit"):
        with pytest.raises(ValueError, match=rf"measure_on='{measure_on}'.*continue.*'train'"):
            make(library, [gc.fnr() <= 0.1], measure_on=measure_on).fit(X, y, **begin)
    given = {"eval_set": [(X[:200], y[:200])], **begin}
    if library == "xgboost":
        given["verbose"] = False
    model = make(library, [gc.fnr() <= 0.1], measure_on="holdout")
    model.fit(X[200:], y[200:], **given)
    missed = np.mean(model.predict(X[:200])[y[:200] == 1] == 0)
    assert model.constraint_report_.held_out[0] == pytest.approx(missed)


@pytest.mark.parametrize(("share", "size"), [(0.04, 1), (0.25, 7), (0.6, 7), (0.97, 1)])
def test_the_share_held_out_is_that_of_whole_groups(share, size, table, conclusions):
    X, y = table[0], table[1]["binary"]
    groups = np.arange(y.size) // size
    make("lightgbm", [gc.fnr() <= 0.3], measure_on=gc.Holdout(share), n_estimators=2).fit(
        X, y, groups=groups
    )
    (fold,) = conclusions[0].fit.measured.boosters.folds
    assert abs(fold.held.size / y.size - share) < 0.02
    assert abs(y[fold.held].mean() - y.mean()) < 0.05
    assert not np.intersect1d(groups[fold.training], groups[fold.held]).size


@pytest.mark.parametrize("share", [1e-4, 0.9999])
def test_a_part_without_rows_is_refused(share, table):
    X, y = table[0], table[1]["binary"]
    model = make("lightgbm", [gc.fnr() <= 0.3], measure_on=gc.Holdout(share))
    with pytest.raises(ValueError, match=rf"fraction={share}\) of n_samples={y.size} leaves none"):
        model.fit(X, y)


def test_fewer_groups_than_parts_are_refused():
    """Before training, naming what asks for the parts."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    clf = gc.ConstrainedLGBMClassifier(constraints=[gc.fpr() <= 0.1], n_estimators=2, verbose=-1)
    clf.set_params(measure_on="crossfit")
    with pytest.raises(ValueError, match=r"groups has 3 different values.*4 parts.*n_folds"):
        clf.fit(X, y, groups=np.arange(90) % 3)


@EITHER
def test_rows_of_datasets_make_up_for_no_training_rows(library):
    """A fold of theirs alone would leave a booster nothing to learn from."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    constraints = [gc.fpr() <= 0.1, gc.selection_rate(on=gc.dataset("more")) <= 0.5]
    clf = make(library, constraints, measure_on="crossfit")
    with pytest.raises(ValueError, match=r"groups has 1 different values.*4 parts"):
        clf.fit(X, y, groups=np.zeros(90), datasets={"more": X[:20]})
    weight = np.where(np.arange(90) < 2, 1.0, 0.0)
    clf.set_params(measure_on=gc.Holdout(0.95))
    with pytest.raises(ValueError, match="only 2 of 90 rows have weight"):
        clf.fit(X, y, sample_weight=weight, datasets={"more": X[:20]})


def test_negative_seeds_of_xgboost_are_taken():
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    clf = gc.ConstrainedXGBClassifier(
        constraints=[gc.fpr() <= 0.1], n_estimators=2, random_state=-1
    )
    first, second = (clf.fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_that_belong_to_no_group_are_refused(missing):
    """They would all be of one."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    groups = np.array([*range(80), *[missing] * 10], dtype=object)
    clf = gc.ConstrainedLGBMClassifier(constraints=[gc.fpr() <= 0.1], n_estimators=2, verbose=-1)
    with pytest.raises(ValueError, match=r"groups has 10 missing values.*the first in row 80"):
        clf.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=r"groups must hold one value.*shape \(90, 1\)"):
        clf.fit(X, y, groups=groups[:, None])


@EITHER
@pytest.mark.parametrize("options", [{"measure_on": gc.CrossFit(4)}, {"measure_on": "holdout"}])
def test_parts_without_weight_are_refused_by_name(library, options):
    """A booster of a fold would have nothing to learn, or to be measured by."""
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(400, 2)), np.repeat(list("ABCD"), 100)
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    model = make(
        library, [gc.fnr() <= 0.1], **{"measure_on": "crossfit", **options}, n_estimators=2
    )
    weight = (site == "A").astype(float)
    with pytest.raises(ValueError, match=r"sample_weight is zero on all rows .* only 100 of 400"):
        model.fit(X, y, sample_weight=weight, groups=site)
    model.fit(X, y, sample_weight=weight + (site == "B") + (site == "C") + 1e-3, groups=site)


FALSE_ALARMS = [gc.fpr() <= 0.1]


@pytest.fixture(scope="module")
def rows():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 4))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    return X, y


def bind(X, y, time=None, **options):
    options = SolverOptions.of(make("lightgbm", FALSE_ALARMS, **options))
    return FitProblem.of(options, FitArguments(X, y, time=time), LibrarySettings(0.1, 5))[1]


@EITHER
def test_own_folds_given_as_pairs_make_the_same_model(library, rows):
    X, y = rows
    problem = bind(X, y)
    parts = problem.data.split(np.arange(y.size), problem.cells, 0.25, 4)
    pairs = [(np.setdiff1d(np.arange(y.size), part), part) for part in parts]
    own = make(library, FALSE_ALARMS, measure_on="crossfit", random_state=None).fit(X, y)
    given = make(library, FALSE_ALARMS, measure_on=pairs, random_state=None).fit(X, y)
    np.testing.assert_array_equal(own.predict_proba(X), given.predict_proba(X))
    pd.testing.assert_frame_equal(own.constraint_report_, given.constraint_report_)


@EITHER
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


@EITHER
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


@EITHER
def test_a_column_of_x_is_the_time(library, rows):
    X, y = rows
    table = pd.DataFrame(X).rename(columns=str).assign(day=np.arange(600) // 10)
    by_name = make(library, FALSE_ALARMS, measure_on="forward").fit(table, y, time="day")
    by_values = make(library, FALSE_ALARMS, measure_on="forward").fit(table, y, time=table["day"])
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


@EITHER
def test_a_metric_is_optimised_on_given_folds(library, rows):
    X, y = rows
    pairs = list(TimeSeriesSplit(3).split(X))
    options = {"maximize": "g_mean", "random_state": 0}
    given = make(library, [], measure_on=TimeSeriesSplit(3), **options).fit(X, y)
    as_pairs = make(library, [], measure_on=pairs, **options).fit(X, y)
    pd.testing.assert_frame_equal(
        given.metric_report_.drop(columns="rows"), as_pairs.metric_report_.drop(columns="rows")
    )


@EITHER
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


@EITHER
def test_groups_of_fit_are_those_of_the_splitter(library, rows):
    X, y = rows
    groups = np.arange(600) // 6
    by_splitter = make(library, FALSE_ALARMS, measure_on=GroupKFold(3)).fit(X, y, groups=groups)
    pairs = list(GroupKFold(3).split(X, y, groups))
    by_pairs = make(library, FALSE_ALARMS, measure_on=pairs).fit(X, y)
    np.testing.assert_array_equal(by_splitter.predict_proba(X), by_pairs.predict_proba(X))


def test_rates_are_compared_on_the_same_rows_where_some_are_never_held_out():
    windows = [Fold(np.arange(2 * k), np.arange(2 * k, 2 * k + 2)) for k in (1, 2, 3)]
    held = np.arange(2, 8)
    assert [part.tolist() for part in _find_compared(windows, held)] == [[], [2, 3], [2, 3, 4, 5]]
    halves = [Fold(np.arange(4), np.arange(4, 8)), Fold(np.arange(4, 8), np.arange(4))]
    assert _find_compared(halves, np.arange(8)) == []
    assert _find_compared(halves[:1], np.arange(4, 8)) == []


@EITHER
def test_parameters_are_cloned_and_a_checkpoint_knows_the_folds(library, rows, tmp_path):
    X, y = rows
    model = make(library, FALSE_ALARMS, measure_on=ShuffleSplit(1, test_size=0.3))
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


@EITHER
@pytest.mark.parametrize("case", CASES)
@pytest.mark.filterwarnings("ignore:.*some groups have fewer")
def test_what_does_not_go_together_is_refused_before_training(library, case, rows):
    options, given, error, message = CASES[case]
    X, y = rows
    given = dict(given)
    if given.pop("sorted", False):
        y = np.sort(y)
    with pytest.raises(error, match=message):
        make(library, **{"constraints": FALSE_ALARMS, **options}).fit(X, y, **given)
