"""Boosters of the folds that meet a rule together and not each for itself."""

import numpy as np
import pytest
from references import N_DRAWN, draw_decisions_of_folds
from scipy import stats

import gbm_constrained as gc
from gbm_constrained.data.rows import Rows
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.influence import (
    _cochran_p_value,
    _values_by_fold,
    estimate_between_fold_deviation,
    prediction_intervals,
)
from gbm_constrained.statistics.intervals import constraint_intervals

FOLDS = 5
CLASSES = {gc.ConstrainedLGBMClassifier: {"verbose": -1}, gc.ConstrainedXGBClassifier: {}}


def moderation(n_folds):
    """Share of a large deviation that is left where it is averaged with next to none."""
    return np.sqrt((n_folds - 1) / (n_folds + 2))


def spread(rng, rates, **options):
    return estimate_between_fold_deviation(
        *draw_decisions_of_folds(rng, rates, **options)
    ).constraints


def test_moments_of_one_rate():
    """Cochran's Q and the moderated deviation, computed by hand."""
    rng = np.random.default_rng(0)
    rates = [0.1, 0.2, 0.3, 0.15, 0.25]
    compiled, cells, folds, decided = draw_decisions_of_folds(rng, rates)
    negative = cells.rows.y == 0
    value = np.array([decided[fold][negative[fold]].mean() for fold in folds])
    rate = decided[negative].mean()
    variance = np.array([rate * (1 - rate) / negative[fold].sum() for fold in folds])
    mean = np.average(value, weights=1 / variance)
    p = stats.chi2.sf(((value - mean) ** 2 / variance).sum(), FOLDS - 1)
    of_folds = _values_by_fold(compiled, cells, folds, decided)
    np.testing.assert_allclose(_cochran_p_value(*of_folds), [p, p], rtol=1e-6)
    found = estimate_between_fold_deviation(compiled, cells, folds, decided)
    assert found.is_beyond_chance.tolist() == [p < 1e-3] == [True]
    by_chance = variance.mean()
    moderated = (3 * 1.5 * by_chance + 4 * value.var(ddof=1)) / 7
    expected = np.sqrt(moderated - by_chance)
    np.testing.assert_allclose([*found.constraints, *found.rates], expected, rtol=1e-12)
    # By shifts of the others: what differs is four fifths as far from the mean of all.
    again = estimate_between_fold_deviation(
        compiled, cells, folds, np.ones(N_DRAWN, dtype=int), decided
    )
    moderated = (3 * 1.5 * by_chance + 4 * 0.8**2 * value.var(ddof=1)) / 7
    expected = np.sqrt(moderated - by_chance)
    np.testing.assert_allclose([*again.constraints, *again.rates], expected, rtol=1e-12)
    assert not again.is_beyond_chance.any()
    both = estimate_between_fold_deviation(
        compiled, cells, folds, decided, np.ones(N_DRAWN, dtype=int)
    )
    np.testing.assert_array_equal(both, found)


@pytest.mark.parametrize("weighted", [False, True])
def test_sampling_variances(weighted):
    """Of rates, differences, overlapping rows, several terms and quotients: by simulation."""
    rng = np.random.default_rng(8)
    rules = [
        gc.fpr() <= 0.5,
        gc.gap(gc.selection_rate(), by="g") <= 0.1,
        gc.gap(gc.selection_rate(), by="g", reference=gc.overall) <= 0.1,
        gc.selection_rate() - 0.5 * gc.class_error(1) <= 0.5,
        gc.fpr(on={"g": 0}) + 2.0 * gc.recall() <= 2.9,
        gc.precision() >= 0.1,
        gc.f1() >= 0.1,
        gc.log_loss() <= 0.5,
    ]
    rates = [(0.3, 0.5)] * 2
    weight = (lambda rng, n: rng.integers(1, 6, n).astype(float)) if weighted else None
    compiled, cells, folds, decided = draw_decisions_of_folds(
        rng, rates, weight=weight, rules=rules, n=4000
    )
    found = []
    for _ in range(2000):  # rows drawn from those of all folds
        drawn = rng.integers(0, 4000, folds[0].size)
        values = functionals_of(compiled, CellCounts.of(cells.take(drawn), decided[drawn]))
        found.append([*values, *compiled.rows_of(values)])
    _, (variance, *_) = _values_by_fold(compiled, cells, folds, decided)
    np.testing.assert_allclose(variance, np.var(found, axis=0), rtol=0.15)
    assert np.isnan(variance).sum() == 2  # of the mean loss and its row


@pytest.mark.parametrize(
    ("weight", "rules"),
    [
        (lambda rng, n: rng.exponential(size=n), [gc.fpr() <= 0.5]),
        (None, [gc.gap(gc.fpr(), by="g") <= 0.1, gc.recall() >= 0.1, gc.selection_rate() <= 0.9]),
        (None, [gc.gap(gc.fpr(), by="g", reference=gc.overall) <= 0.1, gc.precision() >= 0.1]),
    ],
)  # fmt: skip
def test_boosters_that_agree_are_not_said_to_differ(weight, rules):
    rng = np.random.default_rng(1)
    found = [
        estimate_between_fold_deviation(
            *draw_decisions_of_folds(rng, [0.3] * FOLDS, weight, rules, n=1000)
        ).is_beyond_chance
        for _ in range(150)
    ]
    # One in a thousand is allowed; of 150, two or more with probability 0.01.
    assert np.count_nonzero(np.any(found, axis=1)) <= 1


@pytest.mark.parametrize("weighted", [False, True])
def test_the_deviation_is_found(weighted):
    rng = np.random.default_rng(2)
    weight = (lambda rng, n: rng.exponential(size=n)) if weighted else None
    found = [
        spread(rng, 0.4 + 0.1 * rng.normal(size=8), n=16_000, weight=weight)[0]
        for _ in range(60)
    ]  # fmt: skip
    # The variance of 8 normal deviations has a standard error of 0.53; the mean of 60, of 0.07.
    found = np.square(found) / moderation(8) ** 2
    assert np.mean(found) == pytest.approx(0.01, rel=0.2)


def test_a_gap_that_tips_over():
    """Half of the boosters favour one group, half the other: no gap in the mean."""
    rng = np.random.default_rng(3)
    rates = [(0.3, 0.5), (0.5, 0.3)] * 2
    compiled, cells, folds, decided = draw_decisions_of_folds(
        rng, rates, rules=[gc.gap(gc.fpr(), by="g") <= 0.05]
    )
    (found,), rates, _ = estimate_between_fold_deviation(compiled, cells, folds, decided)
    assert found == pytest.approx(0.2 * np.sqrt(4 / 3) * moderation(4), rel=0.15)
    np.testing.assert_allclose(rates, 0.1 * np.sqrt(4 / 3) * moderation(4), rtol=0.3)
    together, unit = np.array([[0.0, 0.02]]), np.array([[0.0, 1.0]])
    (wide,) = prediction_intervals(together, np.array([0.01]), np.array([found]), 4, unit)
    assert wide[0] == 0.0
    assert wide[1] > 0.2  # which each of them has


def test_a_ratio_moves_more_than_its_row():
    """The rows of ``p / q >= b`` are in units of q."""
    rng = np.random.default_rng(7)
    rates = [(0.08, 0.2), (0.16, 0.2)] * 3
    compiled, cells, folds, decided = draw_decisions_of_folds(
        rng, rates, rules=[gc.ratio(gc.fpr(), by="g") >= 0.5], n=40_000
    )
    ((found,), *_) = estimate_between_fold_deviation(compiled, cells, folds, decided)
    assert found == pytest.approx(0.2 * np.sqrt(6 / 5) * moderation(6), rel=0.1)


def test_a_quotient_of_two_groups_moves_as_their_ratio():
    """The row of ``p / q <= k`` is in units of q as well."""
    rng = np.random.default_rng(7)
    rates = [(0.08, 0.2), (0.16, 0.2)] * 3
    quotient = gc.fpr(on={"g": 0}) / gc.fpr(on={"g": 1}) >= 0.5
    rules = [quotient, gc.ratio(gc.fpr(), by="g", reference=1) >= 0.5]
    found = spread(rng, rates, rules=rules, n=40_000)
    assert found[0] == pytest.approx(0.2 * np.sqrt(6 / 5) * moderation(6), rel=0.1)
    assert found[0] <= found[1]


def test_precision_moves_in_its_own_unit():
    """The row of ``tp / selected >= k`` is in units of the share selected."""
    rng = np.random.default_rng(7)
    compiled, cells, folds, decided = draw_decisions_of_folds(
        rng, [0.2, 0.6] * 3, rules=[gc.precision() >= 0.5]
    )
    positive = cells.rows.y == 1
    for i, fold in enumerate(folds):  # precision 0.3 and 0.7
        decided[fold] &= positive[fold] == (rng.random(fold.size) < 0.3 + 0.4 * (i % 2))
    value = np.array([positive[fold][decided[fold] == 1].mean() for fold in folds])
    (found,), _, beyond = estimate_between_fold_deviation(compiled, cells, folds, decided)
    assert found == pytest.approx(value.std(ddof=1) * moderation(6), rel=0.3)
    assert beyond.all()


def test_nothing_is_said_of_mean_losses():
    data = draw_decisions_of_folds(
        np.random.default_rng(4), np.linspace(0.1, 0.9, FOLDS), rules=[gc.log_loss() <= 0.5]
    )
    assert not np.concatenate(estimate_between_fold_deviation(*data)).any()


def test_one_part_tells_nothing():
    data = draw_decisions_of_folds(np.random.default_rng(5), [0.3])
    assert not np.concatenate(estimate_between_fold_deviation(*data)).any()


def test_the_worst_of_many_pairs_is_the_one_whose_deviation_counts():
    """A gap of 0.4 that is steady, beside groups whose rates cross from fold to fold."""
    rng = np.random.default_rng(9)
    n, folds = 40_000, np.array_split(np.arange(40_000), 4)
    y, group = rng.integers(0, 2, n), rng.integers(0, 4, n)
    fold = np.repeat(np.arange(4), n // 4)
    rate = np.array([0.2, 0.6, 0.4, 0.4])[group] + np.where(group > 1, 0.1, 0.0) * (-1) ** fold
    decided = (rng.random(n) < rate).astype(int)
    rows = Rows(y, np.array([0, 1]), None, {"g": group})
    cells, compiled = compile_constraints([gc.gap(gc.fpr(), by="g") <= 0.1], rows)
    (found,), rates, _ = estimate_between_fold_deviation(compiled, cells, folds, decided)
    assert found < 0.03
    np.testing.assert_allclose(rates[2:], 0.1 * np.sqrt(4 / 3) * moderation(4), rtol=0.2)


@pytest.mark.parametrize(
    "deviation",
    [pytest.param(0.0, marks=pytest.mark.slow), 0.02, pytest.param(0.1, marks=pytest.mark.slow)],
)
def test_one_more_booster_is_inside(deviation):
    """The interval of one booster covers what another one does, whatever their deviation."""
    rng = np.random.default_rng(10)
    inside, unit = [], np.array([[0.0, 1.0]])
    for _ in range(400):
        *rates, new = 0.4 + deviation * np.clip(rng.normal(size=5), -3.0, 3.0)
        compiled, cells, folds, decided = draw_decisions_of_folds(rng, rates, n=2000)
        counts = CellCounts.of(cells, decided)
        together = constraint_intervals(compiled, counts)
        value = compiled.values(functionals_of(compiled, counts))
        found = estimate_between_fold_deviation(compiled, cells, folds, decided).constraints
        ((low, high),) = prediction_intervals(together, value, found, 4, unit)
        inside.append(low <= new <= high)
    # Of four boosters a deviation is known badly, and a large one taken for too small.
    assert np.mean(inside) > {0.0: 0.97, 0.02: 0.87, 0.1: 0.74}[deviation]


def test_intervals_of_one_booster():
    together = np.array([[0.08, 0.13], [0.5, 0.6], [0.05, 0.2], [np.nan, np.nan], [0.1, 0.9]])
    values = np.array([0.1, 0.55, 0.1, np.nan, 0.5])
    deviation = np.array([0.01, 0.0, 0.1, 0.0, 0.3])
    ranges = np.array([[0.0, 1.0], [0.0, 1.0], [-1.0, 1.0], [0.0, 1.0], [0.0, 1.0]])
    wide = prediction_intervals(together, values, deviation, 4, ranges)
    own = stats.norm.ppf(0.975) * np.sqrt(1.25) * 0.01
    np.testing.assert_allclose(wide[0], [0.1 - np.hypot(0.02, own), 0.1 + np.hypot(0.03, own)])
    np.testing.assert_array_equal(wide[[1, 3]], together[[1, 3]])
    own *= 10  # a difference, which may be negative
    np.testing.assert_allclose(wide[2], [0.1 - np.hypot(0.05, own), 0.1 + np.hypot(0.1, own)])
    assert tuple(wide[4]) == (0.0, 1.0)
    assert prediction_intervals(together, values, np.zeros(5), 4, ranges) is together


@pytest.mark.parametrize("library", CLASSES)
def test_folds_that_differ_are_told_of(library):
    """Frauds of one office are hidden: the miss rate is met in the mean, and in no office."""
    rng = np.random.default_rng(6)
    n = 6000
    office, y = rng.integers(0, 4, n), (rng.random(n) < 0.3).astype(int)
    X = rng.normal(size=(n, 3))
    X[:, 0] += 3.0 * y * (office > 0)
    options = {"n_estimators": 20, "n_jobs": 1, "measure_on": "crossfit"}
    options |= CLASSES[library]
    clf = library(constraints=[gc.fnr() <= 0.32, gc.fpr() <= 0.3], **options)
    with pytest.warns(gc.FragileConstraintsWarning, match="differs by more than chance"):
        clf.fit(X, y, groups=office)
    found = clf.feasibility_
    assert found.status == "cannot be told"
    assert [str(rule.constraint) for rule in found.unsteady if rule.is_met] == ["fnr <= 0.32"]
    report = clf.constraint_report_.loc[0]
    assert report["held_out"] <= 0.32 < 0.7 < report["high"]
    assert "More boosting rounds" in found.message
    even = library(constraints=[gc.fnr() <= 0.32, gc.fpr() <= 0.3], **options).fit(X, y)
    assert not even.feasibility_.unsteady
    assert even.constraint_report_.loc[0, "high"] < 0.4
