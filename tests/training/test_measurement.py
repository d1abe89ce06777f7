"""Rows that the trees have not seen: splits, boosters grown in step, what the model follows."""

from __future__ import annotations

import json
import warnings
from types import SimpleNamespace

import lightgbm as lgb
import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from helpers import BOTH, CLASSIFIERS, KINDS, PARENTS, RULES, margins_of, quiet
from scipy import sparse
from sklearn.datasets import load_digits
from sklearn.model_selection import cross_val_predict
from sklearn.utils import _safe_indexing

from gbm_constrained import (
    ConstrainedLGBMClassifier,
    ConstrainedXGBClassifier,
    class_error,
    dataset,
    error_rate,
    fnr,
    fpr,
    gap,
    log_loss,
    precision,
    ratio,
    recall,
    selection_rate,
)
from gbm_constrained.boosters.lightgbm import folds as lightgbm_scouts
from gbm_constrained.boosters.xgboost import folds as xgboost_scouts
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.fit_data import FitArguments, FitData
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.splits import parts_by_cell, parts_by_group
from gbm_constrained.training import finalize
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.measurement import Measured, resolve_measurement
from gbm_constrained.training.options import SolverOptions
from gbm_constrained.training.problem import MIN_ROWS_FOR_HOLDOUT, LibrarySettings
from gbm_constrained.training.training_evidence import TrainingEvidence, find_refit_violation

ROUNDS = 9
OPTIONS = {
    "xgboost": {"max_depth": 3, "n_jobs": 1, "enable_categorical": True},
    "lightgbm": {"num_leaves": 7, "n_jobs": 1, "verbose": -1, "min_data_in_bin": 1},
}
TOLERANCE = {"xgboost": 2e-7, "lightgbm": 1e-12}


def make(library, rules, **options):
    options = {"n_estimators": ROUNDS, **OPTIONS[library], **options}
    return CLASSIFIERS[library](constraints=rules, **options)


@pytest.fixture(scope="module")
def table():
    """Features of few values, so that all parts are cut at the same; labels by number of classes.

    A third of the labels are drawn, so that rules cost errors.
    """
    rng = np.random.default_rng(0)
    X = np.round(2 * rng.normal(size=(600, 5)).clip(-2, 2)) / 2
    score = X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=600)
    y = {"binary": (score > 0.7).astype(int), "several": np.digitize(score, [-0.3, 1.0])}
    noise = rng.random(600) < 0.3
    return X, {k: np.where(noise, rng.permutation(v), v) for k, v in y.items()}


# --- splits -------------------------------------------------------------------------------------


def cells_of(n, n_classes=3, n_groups=2, seed=0):
    rng = np.random.default_rng(seed)
    y = rng.choice(n_classes, size=n, p=rng.dirichlet(np.ones(n_classes) * 2)).astype(np.intp)
    y[:n_classes] = range(n_classes)
    s = rng.integers(0, n_groups, n)
    return Cells(Rows(y, np.arange(n_classes), columns={"s": s}), [["label", ("s",)]])


@pytest.mark.parametrize(
    "shares", [[0.5, 0.5], [0.25] * 4, [0.1] * 10, [0.2, 0.8], [0.25, 0.75], [0.37, 0.63]]
)
@pytest.mark.parametrize("n", [40, 999, 20_000])
def test_each_part_has_its_share_of_each_cell_within_a_row(shares, n):
    for seed in range(3):
        cells = cells_of(n, seed=seed)
        rows = np.sort(np.random.default_rng(seed).permutation(n)[: n - n // 7])
        parts = parts_by_cell(rows, cells, shares, np.random.RandomState(seed))
        np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
        assert all((np.diff(part) > 0).all() for part in parts)
        counts = [np.bincount(cells.codes[part], minlength=len(cells)) for part in parts]
        whole = np.bincount(cells.codes[rows], minlength=len(cells))
        for share, count in zip(shares, counts, strict=True):
            assert abs(count - share * whole).max() <= 1.0 + 1e-9
            assert abs(count.sum() - share * rows.size) <= 1.0 + 1e-9


def test_parts_are_random_and_reproducible():
    cells = cells_of(500)
    rows = np.arange(500)
    first, again, other = (
        parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(seed))[0]
        for seed in (0, 0, 1)
    )
    np.testing.assert_array_equal(first, again)
    assert np.intersect1d(first, other).size < 0.5 * first.size
    # Every row may be in every part.
    drawn = np.concatenate(
        [parts_by_cell(rows, cells, [0.2, 0.8], np.random.RandomState(s))[0] for s in range(300)]
    )
    share = np.bincount(drawn, minlength=500) / 300
    assert abs(share - 0.2).max() < 5 * np.sqrt(0.16 / 300)


@pytest.mark.parametrize("share", [0.2, 0.25, 0.3, 1 / 3])
def test_rows_of_small_cells_may_be_in_every_part(share):
    """Of the first cell and of the last as well, though they have fewer rows than parts fit in."""
    cells = cells_of(40, n_classes=5, n_groups=4)
    sizes = np.bincount(cells.codes)
    assert max(sizes[0], sizes[-1]) < 1 / share
    shares = [share, 1.0 - share]
    draws = range(1000)
    drawn = np.zeros(40)
    for seed in draws:
        drawn[parts_by_cell(np.arange(40), cells, shares, np.random.RandomState(seed))[0]] += 1
    chance = np.sqrt(share * (1.0 - share) / len(draws))
    assert abs(drawn / len(draws) - share).max() < 5 * chance


def test_groups_are_not_split():
    cells = cells_of(900, n_classes=2)
    groups = np.random.default_rng(1).integers(0, 60, 900)
    rows = np.arange(30, 900)
    parts = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    np.testing.assert_array_equal(np.sort(np.concatenate(parts)), rows)
    for i, part in enumerate(parts):
        others = np.concatenate(parts[:i] + parts[i + 1 :])
        assert not np.intersect1d(groups[part], groups[others]).size
        assert abs(part.size - rows.size / 4) < 60
    again = parts_by_group(rows, cells, 4, groups, 900, np.random.RandomState(0))
    for one, two in zip(parts, again, strict=True):
        np.testing.assert_array_equal(one, two)


@BOTH
def test_fewer_rows_than_folds(library, conclusions):
    """Each row is a fold then."""
    X = np.arange(12.0).reshape(6, 2)
    y = np.array([0, 1, 0, 1, 1, 0])
    make(library, [fnr() <= 0.5], n_folds=10, n_estimators=2).fit(X, y)
    assert [fold.held.size for fold in conclusions[0].fit.measured.boosters.folds] == [1] * 6


def test_cells_smaller_than_the_number_of_parts():
    """They are no stratum where groups are kept together, and scikit-learn does not warn."""
    cells = cells_of(200, n_classes=4, n_groups=8)
    groups = np.arange(200) // 3
    parts = parts_by_group(np.arange(200), cells, 5, groups, 200, np.random.RandomState(0))
    assert sum(part.size for part in parts) == 200


@BOTH
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


@BOTH
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


# --- boosters grown in step ---------------------------------------------------------------------


def variant(name, X, n_classes):
    """A kind of input: features, and arguments of fit."""
    rng = np.random.default_rng(5)
    if name == "categories":
        kind = np.array(["a", "b", "c"])[(np.abs(X[:, 3]) * 2).astype(int) % 3]
        return pd.DataFrame(X, columns=list("abcde")).assign(kind=pd.Categorical(kind)), {}
    if name == "missing":
        return np.where(rng.random(X.shape) < 0.2, np.nan, X), {}
    if name == "sparse":
        return sparse.csr_matrix(np.where(np.abs(X) < 0.7, 0.0, X)), {}
    if name == "weights":
        return X, {"sample_weight": rng.exponential(size=len(X)).round(3)}
    if name == "start":
        shape = len(X) if n_classes == 2 else (len(X), n_classes)
        return X, {"start": rng.normal(size=shape).astype(np.float32).astype(float)}
    return X, {}


def intercept_of(library, parent, X, y, weight):
    """What the library's own fit on all rows begins with; the boosters on parts do, too."""
    if library == "xgboost":
        booster = parent.fit(X, y, sample_weight=weight).get_booster()
        config = json.loads(booster.save_config())["learner"]["learner_model_param"]
        values = json.loads(config["base_score"])
        return values[0] if np.size(values) == 1 else list(values)
    weight = np.ones(y.size) if weight is None else weight.astype(np.float32).astype(float)
    share = np.bincount(y, weight) / weight.sum()
    logs = np.log(share) if share.size > 2 else np.log(share[1] / share[0])
    return np.broadcast_to(logs, (y.size, share.size) if share.size > 2 else y.size)


NAMES = ["numpy", "categories", "missing", "sparse", "weights", "start"]


@KINDS
@pytest.mark.parametrize(
    ("library", "name"),
    [
        *((library, name) for library in CLASSIFIERS for name in NAMES),
        ("lightgbm", "subsample"),  # XGBoost's boosters take turns at one source of randomness
    ],
)
def test_scouts_are_plain_fits_on_the_other_folds(library, kind, name, table, conclusions):
    """Without multipliers: to rounding, after each number of rounds, pooled by row."""
    X, y = table[0], table[1][kind]
    n_classes = y.max() + 1
    X, given = variant(name, X, n_classes)
    start, weight = given.pop("start", None), given.get("sample_weight")
    options = {}
    if name == "subsample":
        options = {"subsample": 0.6, "subsample_freq": 1, "random_state": 4}
    own = dict(given)
    if start is not None:
        own["base_margin" if library == "xgboost" else "init_score"] = start
    make(library, [error_rate() <= 1.0], measure_on="crossfit", n_folds=3, **options).fit(
        X, y, **own
    )
    (fit,) = (found.fit for found in conclusions)
    assert not any(multipliers.any() for multipliers in fit.measured.controller.path)
    parent = PARENTS[library](n_estimators=ROUNDS, **OPTIONS[library], **options)
    begin = start
    if start is None:
        begin = intercept_of(library, parent, X, y, weight)
    expected = {}
    for fold in fit.measured.boosters.folds:
        part = {} if weight is None else {"sample_weight": weight[fold.training]}
        if library == "lightgbm":
            part["init_score"] = begin[fold.training]
        elif start is None:
            parent.set_params(base_score=begin)
        else:
            part["base_margin"] = start[fold.training]
        parent.fit(_safe_indexing(X, fold.training), y[fold.training], **part)
        held = _safe_indexing(X, fold.held)
        # Scores are those of predict: LightGBM's adds none of the user's, and XGBoost's does.
        begin_held = begin[fold.held] if (library == "xgboost") == (start is not None) else None
        for rounds in (1, 4, ROUNDS):
            found = margins_of(parent, held, rounds, begin_held)
            pooled = expected.setdefault(rounds, np.full((y.size, *found.shape[1:]), np.nan))
            pooled[fold.held] = found
    for rounds, pooled in expected.items():
        found = fit.measured.boosters.held_margin(rounds)
        assert found.shape == pooled.shape
        scale = max(1.0, abs(pooled).max())
        np.testing.assert_allclose(found, pooled, rtol=0, atol=2 * scale * TOLERANCE[library])
    np.testing.assert_array_equal(
        fit.measured.boosters.held_margin(), fit.measured.boosters.held_margin(ROUNDS)
    )


@BOTH
def test_boosters_on_parts_have_the_same_bins(library, conclusions):
    """Of features of many values: 8 bins are cut 7 times, and 4 boosters have the same cuts."""
    X = np.random.default_rng(0).normal(size=(600, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] > 0.3).astype(int)
    options = {"max_bin": 8, "n_estimators": 12, "n_folds": 4}
    make(library, [error_rate() <= 1.0], measure_on="crossfit", **options).fit(X, y)
    cuts, alone = {}, {}
    for i, member in enumerate(conclusions[0].fit.measured.boosters.members):
        trees = member.booster.trees_to_dataframe()
        if library == "xgboost":
            feature, cut = trees["Feature"].replace("Leaf", None), trees["Split"]
        else:
            feature, cut = trees["split_feature"], trees["threshold"]
        for name, value in zip(feature[feature.notna()], cut[feature.notna()], strict=True):
            cuts.setdefault(name, set()).add(value)
            alone.setdefault((name, i), set()).add(value)
    assert max(map(len, alone.values())) > 4
    assert max(map(len, cuts.values())) <= 7


@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_rounds_that_grow_no_tree(measure_on, table, conclusions):
    """LightGBM keeps none where no split pays: prefixes are those of the rounds asked for."""
    X, y = table[0], table[1]["binary"]
    options = {"min_split_gain": 6.0, "n_estimators": 40, "learning_rate": 0.5}
    make("lightgbm", [fnr() <= 0.1], measure_on=measure_on, **options).fit(X, y)
    (fit,) = (found.fit for found in conclusions)
    grown = [member.booster.current_iteration() for member in fit.measured.boosters.members]
    assert min(grown) < 38, "every round grew a tree, so that nothing is proved"
    for record in fit.measured.controller.solver.history[1:]:
        margin = fit.measured.boosters.held_margin(record.rounds)
        missed = np.mean(margin[y[fit.measured.controller.rows] == 1] <= 0)
        assert record.functionals[0] == pytest.approx(missed, abs=1e-12)


# --- what the multipliers move by, and what follows them ----------------------------------------


def scored(library, member, X, rounds):
    """Scores of rows by one of the boosters, by the library itself."""
    if library == "xgboost":
        booster = member.booster
        base = booster.predict(xgb.DMatrix(X), output_margin=True, iteration_range=(0, rounds))
        return base
    held = member.booster.predict(X, raw_score=True, num_iteration=rounds)
    return held + member.held_start


@BOTH
@pytest.mark.filterwarnings("ignore:.*Too few rows", "ignore:.*some groups have fewer")
def test_a_group_that_is_not_among_the_unseen_rows_is_not_taken_to_miss_all(
    library, table, monkeypatch
):
    """To catch a share and to miss the others are one rule, and other rules hold beside it."""
    X, y = table[0], table[1]["binary"]
    group = np.where(np.random.default_rng(1).random(y.size) < 0.5, "a", "b").astype(object)
    few = np.flatnonzero(y == 1)[:3]
    group[few] = "few"
    group[np.flatnonzero(y == 0)[:6]] = "few"
    others = np.setdiff1d(np.arange(y.size), few)
    parts = [others[::4], np.setdiff1d(np.arange(y.size), others[::4])]
    monkeypatch.setattr(FitData, "split", lambda self, *given: parts)
    models = [
        make(library, [gap(rate, by="group") <= 0.1, fpr() <= 0.2], measure_on="holdout").fit(
            X, y, sensitive_features={"group": group}
        )
        for rate in (recall(), fnr())
    ]
    held, was = (model.group_report_.held_out for model in models)
    np.testing.assert_allclose(held, 1.0 - was, atol=1e-12)
    np.testing.assert_array_equal(models[0].predict(X), models[1].predict(X))
    for model in models:
        assert model.constraint_report_.satisfied.all()
        assert (model.history_.filter(like="held_out[gap").to_numpy() < 0.5).all()
    assert np.isnan(held).tolist() == [False, False, True]
    assert held.min() > 0.1


@BOTH
@KINDS
@pytest.mark.parametrize("options", [{}, {"subsample": 0.6, "learning_rate": 0.3}], ids=str)
def test_scores_that_are_kept_are_those_of_the_prefixes(
    library, kind, options, table, conclusions
):
    """Scores are kept while boosters grow; to score prefixes again takes longer."""
    X, y = table[0], table[1][kind]
    rules = [fnr() <= 0.1] if kind == "binary" else [class_error(0) <= 0.1]
    make(library, rules, n_estimators=20, **options).fit(X, y)
    boosters = conclusions[-1].fit.measured.boosters
    kept = dict(boosters._held)
    assert len(kept) >= 3
    boosters._held.clear()
    for rounds, scores in kept.items():
        assert np.array_equal(scores, boosters.held_margin(rounds))


def test_lightgbm_scores_tables_and_their_numbers_alike(conclusions):
    rng = np.random.default_rng(0)
    n = 600
    frame = pd.DataFrame({0: rng.normal(size=n), "kind": rng.choice(list("abc"), n)})
    frame["kind"] = frame["kind"].where(frame.index % 7 > 0).astype("category")
    frame["few"] = pd.Categorical(rng.integers(5, 8, n), categories=[7, 6, 5, 4], ordered=True)
    frame["count"] = pd.array(np.where(frame.index % 5, 3, None), dtype="Int64")
    frame["flag"] = rng.random(n) < 0.5
    frame["single"] = rng.normal(size=n).astype(np.float32)
    frame = frame.iloc[rng.permutation(n)]
    score = frame[0] + 2 * (frame["kind"] == "a") + frame["flag"] + rng.normal(size=n)
    make("lightgbm", [fnr() <= 0.1], min_child_samples=5).fit(frame, score > 1.5)
    boosters = conclusions[-1].fit.measured.boosters
    for rounds in (4, 6):
        for member, fold in zip(boosters.members, boosters.folds, strict=True):
            scored = member.booster.predict(
                frame.iloc[fold.held], raw_score=True, num_iteration=rounds
            )
            found = member.held_margin(rounds) - member.held_start
            np.testing.assert_allclose(found, scored, rtol=0, atol=1e-14)
    assert np.ptp(scored) > 0.1


@BOTH
@KINDS
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
@pytest.mark.usefixtures("one_pass")
def test_multipliers_move_by_rates_of_unseen_rows(library, kind, measure_on, table, conclusions):
    """Each booster's own predictions on its held rows, counted with weights; history has them."""
    X, y = table[0], table[1][kind]
    weight = np.random.default_rng(3).exponential(size=y.size)
    model = make(
        library, RULES[kind], measure_on=measure_on, probabilities="calibrated", solver="abpp"
    )
    model.fit(X, y, sample_weight=weight)
    (conclusion,) = conclusions
    fit, choice = conclusion.fit, conclusion.choice
    folds = fit.measured.boosters.folds
    rows = np.sort(np.concatenate([fold.held for fold in folds]))
    assert rows.size == (600 if measure_on == "crossfit" else 150)
    records = fit.measured.controller.solver.history
    assert [r.rounds for r in records] == [0, 2, 4, 6, 8]
    assert any(r.multipliers.any() for r in records)
    target = 1 if kind == "binary" else 2
    name = f"held_out[{RULES[kind][0]}]"
    for record in records[1:]:
        wrong = np.zeros(y.size, dtype=bool)
        for fold, member in zip(folds, fit.measured.boosters.members, strict=True):
            scores = scored(library, member, X[fold.held], record.rounds)
            decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
            wrong[fold.held] = decided != y[fold.held]
        inside = rows[y[rows] == target]
        rate = np.average(wrong[inside], weights=weight[inside])
        history = model.history_.set_index("rounds")
        # Weighted sums are taken in the library's precision.
        assert record.functionals[0] == pytest.approx(rate, abs=1e-7)
        if record.rounds < choice.rounds:  # the row of the returned model has its shift
            assert history.loc[record.rounds, name] == pytest.approx(rate, abs=1e-7)
    assert model.constraint_report_["rows"][0] == (
        "out of fold" if measure_on == "crossfit" else "holdout"
    )


@BOTH
@KINDS
@pytest.mark.usefixtures("one_pass")
def test_the_model_follows_the_schedule(library, kind, table, conclusions, monkeypatch):
    """It is the fit on all rows whose multipliers are given, measured nowhere."""
    X, y = table[0], table[1][kind]
    model = make(
        library, RULES[kind], measure_on="crossfit", probabilities="calibrated", solver="abpp"
    )
    model.fit(X, y)
    schedule = [np.array(m) for m in conclusions[0].fit.measured.controller.path]
    assert len(schedule) == 5
    assert schedule[-1].any()

    def follow(self, *args, is_divisible=True, has_offset=False):
        self.is_divisible = is_divisible
        lagrangian = self.problem.lagrangian()
        self.measured = Measured(self.run.make_solver(lagrangian, schedule=schedule))

    monkeypatch.setattr(ConstrainedFit, "measure", follow)
    same = make(library, RULES[kind]).fit(X, y)
    rounds = conclusions[0].choice.rounds  # of the prefix that is returned
    np.testing.assert_array_equal(margins_of(model, X), margins_of(same, X, rounds))
    for fit in (found.fit for found in conclusions):
        np.testing.assert_array_equal([r.multipliers for r in fit.solver.history], schedule)
    for name in ("value", "multiplier"):
        column = f"{name}[{RULES[kind][0]}]"
        before = model.history_[column].iloc[:-1]
        np.testing.assert_array_equal(before, same.history_[column].iloc[: before.size])


@BOTH
@pytest.mark.parametrize("measure_on", ["crossfit", "holdout"])
def test_optimism_is_what_boosters_lose_and_more_rows_leave(
    library, measure_on, table, conclusions
):
    """Gaps of error rates out of fold, less the mean of those that each booster grows on."""
    X, y = table[0], table[1]["binary"]
    group = np.random.default_rng(2).integers(0, 2, y.size)

    def margins(member, rows, rounds):
        if library == "xgboost":
            return scored(library, member, X[rows], rounds)
        raw = member.booster.predict(X[rows], raw_score=True, num_iteration=rounds)
        return raw + np.unique(member.held_start)  # one value

    def difference(margin, rows):
        wrong = (margin > 0) != (y[rows] == np.unique(y)[1])
        return wrong[group[rows] == 0].mean() - wrong[group[rows] == 1].mean()

    rules = [gap(error_rate(), by="g") <= 0.01]
    model = make(library, rules, measure_on=measure_on)
    model.fit(X, y, sensitive_features={"g": group})
    boosters = conclusions[0].fit.measured.boosters
    rows = boosters.controller.rows
    history = boosters.controller.solver.history
    for k in range(1, len(history)):
        seen = [
            difference(margins(member, fold.training, 2 * k), fold.training)
            for member, fold in zip(boosters.members, boosters.folds, strict=True)
        ]
        lost = difference(boosters.held_margin(2 * k), rows) - np.mean(seen)
        higher, bounds = boosters.optimism(k)
        # Of all rows there are a third more. Shares of cells are those of all rows: parts that
        # are a row off differ by that.
        np.testing.assert_allclose(higher, [0.75 * lost, -0.75 * lost], atol=0.01)
        np.testing.assert_array_equal(bounds, history[k].bounds)
    np.testing.assert_array_equal(boosters.optimism(99)[0], higher)


def rare(rng, n):
    """Two per cent of positives."""
    X = rng.normal(size=(n, 5))
    return X, (X[:, 0] + 0.7 * X[:, 1] + 0.8 * rng.normal(size=n) > 3.0).astype(int)


@BOTH
@pytest.mark.parametrize("guarantee", [None, "high_probability"])
def test_thresholds_are_chosen_by_what_errors_cost_in_the_objective(library, guarantee):
    """Where frauds count forty times, no threshold undoes it as far as the rule leaves room."""
    X, y = rare(np.random.default_rng(0), 6000)
    X_new, y_new = rare(np.random.default_rng(1), 60_000)
    model = CLASSIFIERS[library](
        constraints=[fpr() <= 0.05], n_estimators=40, scale_pos_weight=(y == 0).sum() / y.sum(),
        measure_on="crossfit", guarantee=guarantee, max_depth=3, n_jobs=1,
    )  # fmt: skip
    decided = model.fit(X, y).predict(X_new)
    assert decided[y_new == 0].mean() <= 0.06
    assert decided[y_new == 1].mean() >= 0.6  # .29 where all errors count alike


@BOTH
@pytest.mark.usefixtures("one_pass")
def test_thresholds_stay_where_the_rule_is_met_with_room(library, table):
    """The constant model that a fit begins with misses all: the rule has been at work."""
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.95], measure_on="crossfit", solver="abpp")
    model.fit(X, y)
    assert model.history_["multiplier[fnr <= 0.95]"].any()
    assert not model.history_["multiplier[fnr <= 0.95]"].iloc[-1]
    assert not model.shift_.any()


def population(rng, n):
    """Labels that the second group's features say less of."""
    group, X = rng.integers(0, 2, n), rng.normal(size=(n, 6))
    score = 2.5 * X[:, 0] * np.where(group == 1, 0.4, 1.6) - 0.8 * X[:, 1] + 0.3
    y = (rng.random(n) < 1.0 / (1.0 + np.exp(-score))).astype(int)
    return np.column_stack([X, group]), y, group


@BOTH
def test_gaps_of_error_rates_hold_in_the_population(library):
    """By multipliers alone, a model of all rows makes fewer of the errors that are asked for.

    Within what the sample can tell; without the correction the mean is 0.032 and 0.039.
    """
    gaps = []
    for seed in range(4):
        rng = np.random.default_rng(seed)
        X, y, group = population(rng, 10_000)
        model = CLASSIFIERS[library](
            constraints=[gap(error_rate(), by="g") <= 0.02], n_estimators=100, learning_rate=0.1,
            measure_on="crossfit", n_jobs=1,
        )  # fmt: skip
        model.fit(X, y, sensitive_features={"g": group})
        X, y, group = population(rng, 100_000)
        wrong = model.predict(X) != y
        gaps.append(wrong[group == 0].mean() - wrong[group == 1].mean())
    variance = wrong.mean() * (1.0 - wrong.mean())
    assert np.abs(gaps).mean() <= 0.02 + np.sqrt(variance * 4 / 10_000)


@pytest.mark.parametrize(("n", "corrected"), [(2000, [False] * 3), (12_000, [True, True, False])])
def test_rates_that_few_rows_tell_correct_nothing(n, corrected, conclusions):
    """Of those that reward all errors, which two of the rows do."""
    X, y, group = population(np.random.default_rng(0), n)
    rules = [gap(error_rate(), by="g") <= 0.02, fpr() <= 0.4]
    make("lightgbm", rules, measure_on="crossfit").fit(X, y, sensitive_features={"g": group})
    assert conclusions[0].fit.solver.corrected.tolist() == corrected


@BOTH
def test_how_far_the_model_strays_is_told_by_its_training_rows(library, conclusions, monkeypatch):
    """By its gap of error rates there at any threshold, and what the folds' boosters lose."""
    X, y, group = population(np.random.default_rng(0), 12_000)
    rules, given = [gap(error_rate(), by="g") <= 0.02], {"sensitive_features": {"g": group}}
    options = {"measure_on": "crossfit", "iterate": "best", "n_estimators": 24}
    model = make(library, rules, probabilities="calibrated", **options).fit(X, y, **given)
    (conclusion,) = conclusions
    k = conclusion.choice.rounds // 2
    lost = conclusion.fit.measured.boosters.optimism(k)[0][0]
    strays = []
    for shift in np.linspace(-6.0, 6.0, 25):
        wrong = (margins_of(model, X) + shift > 0) != (y == 1)
        own = wrong[group == 0].mean() - wrong[group == 1].mean() + lost
        spread = np.sqrt(sum(np.var(wrong[group == g]) / (group == g).sum() for g in (0, 1)))
        beyond = abs(own) - 0.02
        strays.append(beyond if beyond > 1.96 * spread else 0.0)
        scores = SimpleNamespace(training=lambda rounds: margins_of(model, X))
        evidence = TrainingEvidence(conclusion.fit.run, conclusion.fit.measured)
        found = find_refit_violation(evidence, scores, 2 * k, np.array([shift]))
        assert found == pytest.approx(strays[-1], abs=1e-3)
    assert min(strays) == 0.0 < max(strays)
    monkeypatch.setattr(
        finalize, "find_refit_violation", lambda evidence, scores, r, shift: float(r != 14)
    )
    model = make(library, rules, **options).fit(X, y, **given)
    assert conclusions[1].choice.rounds == 14
    assert model.history_["rounds"].iloc[-1] == 14


@BOTH
def test_schedules_of_the_learning_rate_are_followed_by_all(library, table, conclusions):
    """With a rate that falls to nothing, later rounds of the boosters on parts add nothing."""
    X, y = table[0], table[1]["binary"]
    rates = [0.3] * 4 + [1e-12] * 5
    model = make(library, [fnr() <= 0.1], measure_on="crossfit")
    if library == "xgboost":
        model.set_params(callbacks=[xgb.callback.LearningRateScheduler(rates)])
        model.fit(X, y)
    else:
        model.fit(X, y, callbacks=[lgb.reset_parameter(learning_rate=rates)])
    boosters = conclusions[0].fit.measured.boosters
    # XGBoost's scheduler sets the rate after a round, for the next one.
    assert abs(boosters.held_margin(4) - boosters.held_margin(2)).max() > 0.05
    np.testing.assert_allclose(boosters.held_margin(ROUNDS), boosters.held_margin(5), atol=1e-6)


# --- where --------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("sizes", "rules", "where"),
    [
        ((60_000, 50_000), [fnr() <= 0.1, error_rate() <= 0.5], "holdout"),
        ((60_000, 49_999), [fnr() <= 0.1, error_rate() <= 0.5], "crossfit"),
        ((60_000, 49_999), [error_rate() <= 0.5], "holdout"),
        ((60_000, 49_999), [fpr() <= 0.5], "holdout"),
        ((60_000, 60_000), [gap(selection_rate(), by="s") <= 0.5], "crossfit"),
        ((60_000, 60_000), [log_loss() <= 0.5], "crossfit"),
    ],
)
def test_holdout_is_chosen_where_every_rate_has_plenty_of_rows(sizes, rules, where):
    assert MIN_ROWS_FOR_HOLDOUT == 50_000
    y = np.repeat([0, 1], sizes)
    s = np.arange(y.size) >= 45_000  # one group is too small
    options = SolverOptions.of(ConstrainedXGBClassifier(constraints=rules))
    X = np.zeros((y.size, 1))
    arguments = FitArguments(X, y, sensitive_features={"s": s})
    run = ConstrainedFit(options, arguments, LibrarySettings(0.1, 1)).run
    for has_evaluation_set in (False, True):
        found = resolve_measurement(run, is_divisible=True, has_evaluation_set=has_evaluation_set)
        assert found == where
    found = resolve_measurement(run, is_divisible=False, has_evaluation_set=True)
    assert found == "train"


@BOTH
def test_plenty_of_rows_grow_one_booster_more(library, table, conclusions, monkeypatch):
    monkeypatch.setattr("gbm_constrained.training.problem.MIN_ROWS_FOR_HOLDOUT", 100)
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.1]).fit(X, y)
    assert len(conclusions[0].fit.measured.boosters.members) == 1
    assert model.constraint_report_["rows"][0] == "holdout"
    make(library, [fnr() <= 0.1], measure_on="holdout", holdout_fraction=0.4).fit(X, y)
    held = conclusions[1].fit.measured.boosters.folds[0].held
    assert abs(held.size - 0.4 * 600) <= 1
    assert abs(y[held].sum() - 0.4 * y.sum()) <= 1


def earlier(library, X, y):
    model = make(library, [], n_estimators=3).fit(X, y)
    if library == "xgboost":
        return {"xgb_model": model.get_booster()}
    return {"init_model": model.booster_}


@BOTH
def test_continued_training_is_measured_on_training_rows(library, table, conclusions):
    """By default; asked for explicitly it is refused, unless there is an evaluation set."""
    X, y = table[0], table[1]["binary"]
    begin = earlier(library, X, y)
    model = make(library, [fnr() <= 0.1]).fit(X, y, **begin)
    assert conclusions[-1].fit.measured.boosters is None
    report = model.constraint_report_
    assert report[["held_out", "low", "high"]].isna().all(axis=None)
    assert (report["rows"] == "training rows").all()
    assert not model.shift_.any()
    for measure_on in ("holdout", "crossfit"):
        with pytest.raises(ValueError, match=rf"measure_on='{measure_on}'.*continue.*'train'"):
            make(library, [fnr() <= 0.1], measure_on=measure_on).fit(X, y, **begin)
    given = {"eval_set": [(X[:200], y[:200])], **begin}
    if library == "xgboost":
        given["verbose"] = False
    model = make(library, [fnr() <= 0.1], measure_on="holdout").fit(X[200:], y[200:], **given)
    missed = np.mean(model.predict(X[:200])[y[:200] == 1] == 0)
    assert model.constraint_report_.held_out[0] == pytest.approx(missed)


# --- rows that the user holds out ---------------------------------------------------------------


@BOTH
@KINDS
def test_an_evaluation_set_is_watched(library, kind, table, conclusions, monkeypatch):
    """The last one; no booster is grown besides, and its rates move the multipliers."""
    X, y = table[0], table[1][kind]
    for module in (xgboost_scouts, lightgbm_scouts):
        monkeypatch.setattr(
            module._FoldBooster, "__init__", lambda *a, **k: pytest.fail("a booster besides")
        )
    sets = [(X[:50], y[:50]), (X[50:250], y[50:250])]
    # One that the whole ensemble meets: an earlier prefix would be kept otherwise.
    rules = {"binary": RULES["binary"], "several": [class_error(2) <= 0.3]}[kind]
    model = make(library, rules, measure_on="holdout", probabilities="calibrated")
    model.fit(X[250:], y[250:], eval_set=sets, **quiet(library))
    (fit,) = (found.fit for found in conclusions)
    assert fit.measured.boosters is None
    records = fit.measured.controller.solver.history
    assert [r.rounds for r in records] == [0, 2, 4, 6, 8]
    assert any(r.multipliers.any() for r in records)
    target = 1 if kind == "binary" else 2
    X_held, y_held = sets[1]
    history = model.history_.set_index("rounds")
    for record in records[1:]:
        scores = margins_of(model, X_held, record.rounds)
        decided = scores.argmax(axis=1) if scores.ndim > 1 else (scores > 0).astype(int)
        rate = np.mean(decided[y_held == target] != target)
        assert record.functionals[0] == pytest.approx(rate, abs=1e-9)
        assert history.loc[record.rounds, f"held_out[{rules[0]}]"] == pytest.approx(rate)
    # The model is moved by the multipliers that these rates have made.
    np.testing.assert_array_equal(
        [r.multipliers for r in fit.solver.history], fit.measured.controller.path[:5]
    )
    report = model.constraint_report_
    assert report["rows"].tolist() == ["eval_set[1], watched"] * len(report)
    decided = model.predict(X_held)
    rate = np.mean(decided[y_held == target] != target)
    assert report.held_out[0] == pytest.approx(rate)


@BOTH
def test_an_evaluation_set_that_is_not_watched_is_evidence(library, table):
    X, y = table[0], table[1]["binary"]
    given = {"eval_set": [(X[:200], y[:200])], **quiet(library)}
    for options in (
        {},
        {"measure_on": "train"},
        {"measure_on": "holdout", "holdout_fraction": 0.3},
    ):
        model = make(library, [fnr() <= 0.1], **options).fit(X[200:], y[200:], **given)
        assert model.constraint_report_["rows"].tolist() == ["eval_set[0]"]
        missed = np.mean(model.predict(X[:200])[y[:200] == 1] == 0)
        assert model.constraint_report_.held_out[0] == pytest.approx(missed)


@BOTH
@pytest.mark.parametrize("measure_on", ["train", "holdout"])
def test_weights_of_an_evaluation_set_count_in_its_rates(library, measure_on, table, conclusions):
    """In those that are reported, and in those that move the multipliers."""
    X, y = table[0], table[1]["binary"]
    weight = np.random.default_rng(4).exponential(size=200) ** 2
    name = "sample_weight_eval_set" if library == "xgboost" else "eval_sample_weight"
    model = make(library, [fnr() <= 0.1], measure_on=measure_on, probabilities="calibrated")
    given = {"eval_set": [(X[:200], y[:200])], name: [weight], **quiet(library)}
    model.fit(X[200:], y[200:], **given)
    positive = y[:200] == 1

    def rates(missed):
        return np.average(missed[positive], weights=weight[positive]), missed[positive].mean()

    weighted, plain = rates(model.predict(X[:200]) == 0)
    assert model.constraint_report_.held_out[0] == pytest.approx(weighted, abs=1e-7)
    assert abs(weighted - plain) > 1e-3
    if measure_on == "holdout":
        record = conclusions[0].fit.measured.controller.solver.history[-1]
        weighted, plain = rates(margins_of(model, X[:200], record.rounds) <= 0)
        assert record.functionals[0] == pytest.approx(weighted, abs=1e-7)
        assert abs(weighted - plain) > 1e-3


@BOTH
def test_holdout_fraction_splits_in_spite_of_an_evaluation_set(library, table, conclusions):
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.1], measure_on="holdout", holdout_fraction=0.3)
    model.fit(X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library))
    (fold,) = conclusions[0].fit.measured.boosters.folds
    assert fold.held.size == 120
    assert conclusions[0].fit.measured.rows.source == "holdout"


@BOTH
def test_rules_that_an_evaluation_set_cannot_measure(library, table):
    X, y = table[0], table[1]["binary"]
    rule = error_rate(on=X[200:, 0] > 0) <= 0.2
    with pytest.raises(ValueError, match=r"eval_set\[0\].*holdout_fraction"):
        make(library, [rule], measure_on="holdout").fit(
            X[200:], y[200:], eval_set=[(X[:200], y[:200])], **quiet(library)
        )


# --- evaluation sets that are the training rows -------------------------------------------------


@BOTH
@pytest.mark.parametrize("weighted", [False, True])
def test_training_rows_among_the_evaluation_sets_are_no_evidence(
    library, weighted, table, conclusions
):
    """Nor are they watched; and the sensitive features of the others stay theirs."""
    X, y = table[0], table[1]["binary"]
    weight = {"sample_weight": np.ones(y.size)} if weighted else {}
    model = make(library, [fnr() <= 0.1], measure_on="holdout")
    model.fit(X, y, eval_set=[(X, y)], **weight, **quiet(library))
    assert conclusions[0].fit.measured.boosters is not None
    assert model.constraint_report_["rows"].tolist() == ["holdout"]
    s = np.arange(y.size) % 2
    other = X[:300] + 0.0, y[:300]
    for sets, features in (([(X, y), other], [s * 0, s[:300]]), ([other, (X, y)], [s[:300], s])):
        model = make(library, [gap(selection_rate(), by="s") <= 0.01])
        given = {"sensitive_features": {"s": s}, **weight, **quiet(library)}
        model.fit(X, y, eval_set=sets, sensitive_features_eval_set=[{"s": f} for f in features],
                  **given)  # fmt: skip
        decided = model.predict(other[0])
        value = abs(decided[s[:300] == 0].mean() - decided[s[:300] == 1].mean())
        i = 1 if sets[1] is other else 0
        assert model.constraint_report_["rows"].tolist() == [f"eval_set[{i}]"]
        assert model.constraint_report_.held_out[0] == pytest.approx(value)


@BOTH
@pytest.mark.parametrize("kind", ["array", "frame", "sparse"])
def test_copies_of_the_training_rows_are_no_evidence_either(library, kind, table):
    X, y = table[0].copy(), table[1]["binary"]
    X[:5, 1] = np.nan
    rows = {"array": np.array, "frame": pd.DataFrame, "sparse": sparse.csr_matrix}[kind](X)
    model = make(library, [fnr() <= 0.1], measure_on="holdout")
    for labels in (y.copy(), pd.Series(y, dtype="int8"), y.tolist()):
        model.fit(rows, y, eval_set=[(rows.copy(), labels)], **quiet(library))
        assert model.constraint_report_["rows"].tolist() == ["holdout"]
    model.fit(rows, y, eval_set=[(rows.copy(), 1 - y)], **quiet(library))
    assert model.constraint_report_["rows"].tolist() == ["eval_set[0], watched"]


@BOTH
def test_training_rows_are_no_evidence_below_further_data_sets(library, table):
    """The library is given others than the user's, and evaluates these as rows of their own."""
    X, y = table[0], table[1]["binary"]
    rules = [fnr() <= 0.1, selection_rate(on=dataset("more")) <= 0.9]
    model = make(library, rules)
    sets = [(X, y), (X[:300] + 0.0, y[:300])]
    model.fit(X, y, datasets={"more": X[:100]}, eval_set=sets, **quiet(library))
    report = model.constraint_report_.loc[0]
    assert report["rows"] == "eval_set[1]"
    missed = np.mean(model.predict(sets[1][0])[y[:300] == 1] == 0)
    assert report.held_out == pytest.approx(missed)
    model.fit(X, y, datasets={"more": X[:100]}, eval_set=sets[:1], **quiet(library))
    assert model.constraint_report_["rows"].tolist() == ["out of fold"] * 2


@BOTH
def test_training_rows_to_stop_by_are_refused_where_some_are_set_aside(library, table):
    """They would stop the training by the rows that are to certify it."""
    X, y = table[0], table[1]["binary"]
    model = make(library, [fnr() <= 0.3], guarantee="high_probability")
    with pytest.raises(ValueError, match=r"eval_set.*sets some aside"):
        model.fit(X, y, eval_set=[(X, y)])


@pytest.mark.parametrize("share", [0.04, 0.25, 0.4, 0.6, 0.9, 0.97])
@pytest.mark.parametrize("size", [1, 7])
def test_the_share_held_out_is_that_of_whole_groups(share, size, table, conclusions):
    X, y = table[0], table[1]["binary"]
    groups = np.arange(y.size) // size
    make(
        "lightgbm", [fnr() <= 0.3], measure_on="holdout", holdout_fraction=share, n_estimators=2
    ).fit(X, y, groups=groups)
    (fold,) = conclusions[0].fit.measured.boosters.folds
    assert abs(fold.held.size / y.size - share) < 0.02
    assert abs(y[fold.held].mean() - y.mean()) < 0.05
    assert not np.intersect1d(groups[fold.training], groups[fold.held]).size


@pytest.mark.parametrize("share", [1e-4, 0.9999])
def test_a_part_without_rows_is_refused(share, table):
    X, y = table[0], table[1]["binary"]
    model = make("lightgbm", [fnr() <= 0.3], measure_on="holdout", holdout_fraction=share)
    with pytest.raises(ValueError, match=rf"holdout_fraction={share}.*{y.size} rows"):
        model.fit(X, y)


def test_fewer_groups_than_parts_are_refused():
    """Before training, naming what asks for the parts."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    clf = ConstrainedLGBMClassifier(constraints=[fpr() <= 0.1], n_estimators=2, verbose=-1)
    with pytest.raises(ValueError, match=r"groups has 3 different values.*4 parts.*n_folds"):
        clf.fit(X, y, groups=np.arange(90) % 3)


@BOTH
def test_rows_of_datasets_make_up_for_no_training_rows(library):
    """A fold of theirs alone would leave a booster nothing to learn from."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    rules = [fpr() <= 0.1, selection_rate(on=dataset("more")) <= 0.5]
    clf = make(library, rules, measure_on="crossfit")
    with pytest.raises(ValueError, match=r"groups has 1 different values.*4 parts"):
        clf.fit(X, y, groups=np.zeros(90), datasets={"more": X[:20]})
    weight = np.where(np.arange(90) < 2, 1.0, 0.0)
    clf.set_params(measure_on="holdout", holdout_fraction=0.95)
    with pytest.raises(ValueError, match="only 2 of 90 rows have weight"):
        clf.fit(X, y, sample_weight=weight, datasets={"more": X[:20]})


@BOTH
@pytest.mark.parametrize("iterate", ["last", "randomized"])
def test_an_evaluation_set_without_groups_reports_no_gap(library, iterate):
    """Out of fold there are groups; of the evaluation set alone nothing would be known."""
    rng = np.random.default_rng(0)
    X, group = rng.normal(size=(900, 2)), np.arange(900) % 2
    y = (X[:, 0] + 0.5 * group + rng.normal(size=900) > 0.5).astype(int)
    given = {"eval_set": [(X[600:], y[600:])], **quiet(library)}
    rule = gap(selection_rate(), by="g") <= 0.1
    rules = [rule, fpr() <= 0.3]
    clf = make(library, rules, iterate=iterate, n_estimators=6)
    found = {}
    for sensitive in (None, [{"g": group[600:]}]):
        clf.fit(
            X[:600], y[:600], sensitive_features={"g": group[:600]},
            sensitive_features_eval_set=sensitive, **given,
        )  # fmt: skip
        found[sensitive is None] = report = clf.constraint_report_
        last = [clf.history_[f"held_out[{r}]"].iloc[-1] for r in rules]
        np.testing.assert_allclose(report.held_out, last)
        of_groups = clf.group_report_.groupby("constraint").held_out.agg(np.ptp)
        assert of_groups[str(rule)] == pytest.approx(report.held_out[0])
    assert found[False]["rows"].tolist() == ["eval_set[0]", "eval_set[0]"]
    assert found[True]["rows"].tolist() == ["out of fold", "eval_set[0]"]
    without = make(library, rules, iterate=iterate, n_estimators=6)
    without.fit(X[:600], y[:600], sensitive_features={"g": group[:600]})
    columns = ["held_out", "low", "high", "satisfied"]
    given, out_of_fold = found[True][columns], without.constraint_report_[columns]
    pd.testing.assert_series_equal(given.iloc[0], out_of_fold.iloc[0])
    pd.testing.assert_series_equal(given.iloc[1], found[False][columns].iloc[1])


@BOTH
@pytest.mark.parametrize("compare", [gap, ratio])
def test_an_evaluation_set_of_one_group_compares_nothing(library, compare, table):
    """Which is no gap of zero, and no ratio of one."""
    X, y = table[0], table[1]["binary"]
    sex = np.random.default_rng(0).choice(list("fm"), y.size)
    new = sex[::3] == "f"
    rule = compare(selection_rate(), by="sex")
    rule = rule <= 0.3 if compare is gap else rule >= 0.5
    model = make(library, [rule], measure_on="train", n_estimators=4).fit(
        X, y, sensitive_features={"sex": sex}, eval_set=[(X[::3][new], y[::3][new])],
        sensitive_features_eval_set=[{"sex": sex[::3][new]}], **quiet(library),
    )  # fmt: skip
    report = model.constraint_report_.iloc[0]
    assert np.isnan([report.held_out, report.low, report.high]).all()
    assert report.satisfied is pd.NA


def test_negative_seeds_of_xgboost_are_taken():
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    clf = ConstrainedXGBClassifier(constraints=[fpr() <= 0.1], n_estimators=2, random_state=-1)
    first, second = (clf.fit(X, y).predict_proba(X) for _ in range(2))
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize("missing", [np.nan, None])
def test_rows_that_belong_to_no_group_are_refused(missing):
    """They would all be of one."""
    X, y = np.random.default_rng(0).normal(size=(90, 2)), np.arange(90) % 2
    groups = np.array([*range(80), *[missing] * 10], dtype=object)
    clf = ConstrainedLGBMClassifier(constraints=[fpr() <= 0.1], n_estimators=2, verbose=-1)
    with pytest.raises(ValueError, match=r"groups has 10 missing values.*the first in row 80"):
        clf.fit(X, y, groups=groups)
    with pytest.raises(ValueError, match=r"groups must hold one value.*shape \(90, 1\)"):
        clf.fit(X, y, groups=groups[:, None])


def test_xgboost_reports_a_continued_model_by_values():
    """Its old trees split elsewhere than the bins of the new rows."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(1500, 4))
    y = (X[:, 0] + X[:, 1] * X[:, 2] + 0.5 * rng.normal(size=1500) > 0.5).astype(int)
    (X, held), (y, labels), weight = np.split(X, [1000]), np.split(y, [1000]), rng.random(1000)
    old = xgb.XGBClassifier(n_estimators=4, n_jobs=1).fit(X[:300], y[:300])
    clf = ConstrainedXGBClassifier(constraints=[fnr() <= 0.1], n_estimators=6, n_jobs=1)
    clf.fit(X, y, sample_weight=weight, xgb_model=old, eval_set=[(held, labels)], verbose=False)
    report, missed = clf.constraint_report_.iloc[0], clf.predict(X) == 0
    assert report.train == pytest.approx(np.average(missed[y == 1], weights=weight[y == 1]))
    assert report.held_out == pytest.approx(np.mean(clf.predict(held)[labels == 1] == 0))


@BOTH
@pytest.mark.parametrize("options", [{"n_folds": 4}, {"measure_on": "holdout"}])
def test_parts_without_weight_are_refused_by_name(library, options):
    """A booster of a fold would have nothing to learn, or to be measured by."""
    rng = np.random.default_rng(0)
    X, site = rng.normal(size=(400, 2)), np.repeat(list("ABCD"), 100)
    y = (X[:, 0] + rng.normal(size=400) > 0).astype(int)
    model = make(library, [fnr() <= 0.1], **{"measure_on": "crossfit", **options}, n_estimators=2)
    weight = (site == "A").astype(float)
    with pytest.raises(ValueError, match=r"sample_weight is zero on all rows .* only 100 of 400"):
        model.fit(X, y, sample_weight=weight, groups=site)
    model.fit(X, y, sample_weight=weight + (site == "B") + (site == "C") + 1e-3, groups=site)


def test_starting_scores_beside_a_model_to_continue_are_the_models():
    """LightGBM says that it overrides them: the report must not add them either."""
    rng = np.random.default_rng(0)
    X = rng.normal(size=(600, 3))
    y = (X[:, 0] + rng.normal(size=600) > 0).astype(int)
    start = rng.normal(size=600) * 3
    before = lgb.LGBMClassifier(n_estimators=3, num_leaves=7, verbose=-1).fit(X, y)
    found = []
    for given in ({}, {"init_score": start[:400], "eval_init_score": [start[400:]]}):
        model = make("lightgbm", [fnr() <= 0.2], measure_on="holdout", n_estimators=6)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", UserWarning)  # LightGBM's, and of its eval_X
            model.fit(X[:400], y[:400], eval_set=[(X[400:], y[400:])], init_model=before, **given)
        report = model.constraint_report_.iloc[0]
        for rows, value in ((slice(400), report.train), (slice(400, None), report.held_out)):
            missed = (model.predict(X[rows]) == 0)[y[rows] == 1].mean()
            assert value == pytest.approx(missed, abs=1e-6)
        found.append((model.shift_[0], report.train, report.held_out))
    assert found[0] == pytest.approx(found[1], abs=1e-6)


@BOTH
def test_rules_of_one_class_among_many_leave_the_others_right(library):
    """Handwritten digits: strict rules of two of ten classes cost a few points, not a fourth."""
    X, y = load_digits(return_X_y=True)
    X, y = X[:900], y[:900]
    rules = [recall(label=8) >= 0.98, precision(label=1) >= 0.97]
    fast = {"n_estimators": 30, "learning_rate": 0.3}
    options = {**OPTIONS[library], **fast}
    free = cross_val_predict(PARENTS[library](**options), X, y, cv=4)
    found = make(library, rules, measure_on="crossfit", **fast).fit(X, y)
    assert found.constraint_report_["satisfied"].all()
    assert found.unseen_accuracy_.value > np.mean(free == y) - 0.05
