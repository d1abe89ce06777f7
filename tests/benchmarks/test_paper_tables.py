"""Pieces of the re-run of the paper's experiments, on small data."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest
from helpers import EITHER

pytest.importorskip("matplotlib", reason="the benchmark draws figures")
import paper_report
import paper_tables
from paper_tables import NPMC_MODELS, Table, drawn, npmc, paper, plain, recommended, run

RANGES = {
    "n_estimators": (50, 199), "max_leaves": (30, 99), "num_leaves": (30, 99),
    "min_child_weight": (0.01, 0.9), "max_depth": (4, 29), "colsample_bytree": (0.001, 1),
    "reg_alpha": (0, 1), "reg_lambda": (0, 1), "gamma": (0, 2),
}  # fmt: skip
STEPS = {("lightgbm", "fairness"): (0.1, 0.3)}
RATES = {("xgboost", "fairness"): (0.1, 0.3)}
CASES = [(x, t) for x in ("lightgbm", "xgboost") for t in ("np", "fairness")]


@pytest.mark.parametrize(("library", "task"), CASES)
def test_sets_are_drawn_from_the_ranges_by_their_numbers(library, task):
    sets = [drawn(library, task, number) for number in range(200)]
    assert repr(sets[7]) == repr(drawn(library, task, 7))
    assert len({repr(s) for s in sets}) == 200
    rate = RATES.get((library, task), (0.001, 0.9))
    for s in sets:
        for name, value in s.booster.items():
            low, high = rate if name == "learning_rate" else RANGES[name]
            assert low <= value <= high
        low, high = STEPS.get((library, task), (0.001, 0.2))
        assert low <= s.step <= high
        assert 7 <= s.clip <= 29
        assert (task == "np") == np.isnan(s.alpha)
    assert ("gamma" in sets[0].booster) == (library == "xgboost")
    # The draws fill their ranges.
    rates = [s.booster["learning_rate"] for s in sets]
    assert np.ptp(rates) > 0.9 * (rate[1] - rate[0])
    assert 480 < np.mean([s.trees for s in sets]) < 520


@pytest.fixture
def table():
    """Three classes, the first rare, and a level for each of two."""
    rng = np.random.default_rng(0)
    X = pd.DataFrame(rng.normal(size=(400, 4)), columns=list("abcd"))
    y = np.digitize(X["a"] + 0.5 * rng.normal(size=400), [-0.8, 0.5])
    return Table("dry_bean", True, X, y, (1.5,), {0: 0.05, 2: 0.1})


@pytest.fixture
def fair(table):
    y = (table.y > 0).astype(int)
    groups = (table.X["b"] > 0).to_numpy().astype(int)
    return Table("adult", True, table.X, y, (0.02,), groups=groups, training=np.arange(400) < 300)


def test_measures_are_counts(table):
    rng = np.random.default_rng(1)
    y, decided, groups = rng.integers(0, 3, (3, 500))
    of_class = [sum(d != k for d, t in zip(decided, y, strict=True) if t == k) for k in range(3)]
    wrong = [c / (y == k).sum() for k, c in enumerate(of_class)]
    expected = (wrong[0] - 0.05) + (wrong[2] - 0.1)
    assert table.violation(y, decided, groups) == pytest.approx(expected)
    assert table.violation(y, y, groups) == 0
    rates = pd.Series(decided != y).groupby(groups).mean()
    assert paper_tables.unfairness(y, decided, groups) == pytest.approx(rates.std(ddof=0))
    two = groups < 1
    rates = pd.Series(decided != y).groupby(two).mean()
    assert paper_tables.unfairness(y, decided, two) == pytest.approx(
        abs(rates[True] - rates[False])
    )


def test_chance_alone_makes_groups_unequal():
    # Two groups of one person: errors differ in half of the draws, by a deviation of 1/2.
    assert paper_tables.unfairness_by_chance(np.array([0, 1]), 0.5, 20_000) == pytest.approx(
        0.25, abs=0.01
    )


def test_splits_are_those_of_the_number_or_the_original_one(table, fair):
    first, again, second = table.split(0), table.split(0), table.split(1)
    assert first.y_test.size == 80
    assert first.X.index.equals(again.X.index)
    assert not first.X.index.equals(second.X.index)
    assert fair.split(0).y.size == 300
    assert fair.split(0).X.equals(fair.split(1).X)


@EITHER
def test_every_model_of_ours_decides_and_the_tables_are_drawn(
    table, fair, library, tmp_path, capsys
):
    common = {"library": library, "jobs": 1}
    for problem in (table, fair):
        split = problem.split(0)
        (bound,) = problem.bounds
        for model, options in ((plain, {}), (paper, {}), (recommended, {"bound": bound})):
            train, test = model(problem, split, 0, **common, **options)
            assert train.shape == split.y.shape
            assert test.shape == split.y_test.shape
            assert set(test) <= set(problem.y)
    for options in NPMC_MODELS.values():
        assert npmc(table, table.split(0), 0, **common, **options)[1].size == 80
    models = {(library, "plain"): lambda t, s, n: plain(t, s, n, **common)}
    for problem in (table, fair):
        list(run(problem, models, range(2), tmp_path))
    capsys.readouterr()
    paper_report.report(tmp_path, tmp_path)
    printed = capsys.readouterr().out
    assert "Table 1" in printed
    assert "Table 2" in printed
    accuracy = paper_report.PAPER["dry_bean", library, "plain"][0]
    assert f"{accuracy:.2f}" in printed
    assert (tmp_path / "figure_1.png").stat().st_size > 10_000
    assert (tmp_path / "figure_2.png").exists()
