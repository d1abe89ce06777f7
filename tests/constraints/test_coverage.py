"""Coverage and Quantification, against shares that NumPy counts and divergences of SciPy."""

from __future__ import annotations

import math

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from scipy.optimize import approx_fprime

import gbm_constrained as gc
from gbm_constrained.constraints.checking import resolve_positive_class
from gbm_constrained.data.rows import Rows
from gbm_constrained.fit.model_note import dumps, loads
from gbm_constrained.presets import Coverage, Quantification
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.intervals import constraint_intervals

CLASSES = np.array(["a", "b", "c"])
TARGETS = {"a": 0.5, "b": 0.3, "c": 0.2}
GIVEN = [None, TARGETS, [0.5, 0.3, 0.2]]
PRESETS = [Coverage, Quantification]


def draw(seed, n=200):
    rng = np.random.default_rng(seed)
    y = rng.choice(3, n, p=[0.6, 0.3, 0.1])
    decided = np.where(rng.random(n) < 0.7, y, rng.integers(3, size=n))
    return y, decided, rng.integers(1, 4, size=n).astype(float)


def compiled_on(constraint, y, decided, weight=None):
    rows = Rows(y, CLASSES, weight, {})
    cells, compiled = compile_constraints(resolve_positive_class([constraint], CLASSES), rows)
    counts = CellCounts.of(cells, decided)
    return compiled, functionals_of(compiled, counts), counts


def shares_of(codes, weight):
    counted = np.bincount(codes, weight, 3)
    return counted / counted.sum()


@pytest.mark.parametrize("to", GIVEN, ids=str)
@settings(max_examples=20, deadline=None)
@given(st.integers(0, 10_000))
def test_values_and_rows_are_those_of_the_shares(to, seed):
    y, decided, w = draw(seed)
    q, tau = shares_of(decided, w), shares_of(y, w) if to is None else np.array([0.5, 0.3, 0.2])
    compiled, u, _ = compiled_on(Coverage(within=0.03, to=to), y, decided, w)
    assert compiled.values(u)[0] == pytest.approx(np.abs(q - tau).max(), abs=1e-12)
    expected = np.stack([q - tau, tau - q], axis=1).ravel() - 0.03
    np.testing.assert_allclose(compiled.rows_of(u) - compiled.b, expected, atol=1e-12)
    compiled, u, _ = compiled_on(Quantification(within=0.03, to=to), y, decided, w)
    assert compiled.values(u)[0] == pytest.approx(stats.entropy(tau, q), abs=1e-12)
    assert len(compiled) == 0


@pytest.mark.parametrize("to", GIVEN, ids=str)
def test_the_gradient_of_the_divergence_is_that_of_differences(to):
    y, decided, _ = draw(3)
    compiled, u, _ = compiled_on(Quantification(within=0.1, to=to), y, decided)
    expression = compiled.constraints[0].expression
    differences = approx_fprime(u, lambda v: expression.value(v, "<="), 1e-7)
    np.testing.assert_allclose(expression.gradient(u), differences, atol=1e-5)


def test_the_divergence_is_convex_in_shares_and_targets_together():
    rng = np.random.default_rng(0)
    (named,) = resolve_positive_class([Quantification(within=0.1)], CLASSES)
    for _ in range(200):
        one, other = rng.dirichlet(np.ones(3), (2, 2)).reshape(2, 6)
        value = [named.value(u) for u in (one, other, (one + other) / 2)]
        assert value[2] <= (value[0] + value[1]) / 2 + 1e-12
        slope = named.expression.gradient(one)
        assert value[0] + slope @ (other - one) <= value[1] + 1e-9


def test_a_class_that_is_never_predicted_is_infinitely_far():
    y, decided, _ = draw(0)
    never = np.where(decided == 2, 0, decided)
    compiled, u, _ = compiled_on(Quantification(within=0.1), y, never)
    assert compiled.values(u)[0] == np.inf
    without = {"a": 0.7, "b": 0.3, "c": 0.0}
    compiled, u, _ = compiled_on(Quantification(within=0.1, to=without), y, never)
    expected = stats.entropy([0.7, 0.3], np.bincount(never, minlength=3)[:2] / never.size)
    assert compiled.values(u)[0] == pytest.approx(expected, abs=1e-12)


def test_intervals_of_coverage_reach_the_shares_of_the_population():
    y, decided, _ = draw(1, 20_000)
    truth = np.abs(shares_of(decided, None) - shares_of(y, None)).max()
    rng, covered = np.random.default_rng(0), 0
    for _ in range(100):
        at = rng.integers(y.size, size=300)
        compiled, _, counts = compiled_on(Coverage(within=0.03), y[at], decided[at])
        low, high = constraint_intervals(compiled, counts)[0]
        covered += low <= truth <= high
    assert covered >= 92
    compiled, _, counts = compiled_on(Quantification(within=0.03), y, decided)
    assert np.isnan(constraint_intervals(compiled, counts)).all()


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("to", GIVEN, ids=str)
def test_text_and_notes_give_the_constraint_back(preset, to):
    constraint = preset(within=0.0125, to=to)
    text = gc.format_constraint(constraint)
    assert gc.parse_constraint(text) == constraint == loads(dumps(constraint))
    assert str(constraint).startswith(f"{preset.__name__}(within=0.0125")
    named = resolve_positive_class([constraint], CLASSES)[0]
    assert loads(dumps(named)) == named
    assert resolve_positive_class([named], CLASSES)[0] == named
    assert (str(named) == str(constraint)) or not isinstance(to, dict | type(None))


def test_labels_of_texts_are_looked_up():
    known = {"a": 1, "b": 2, "c": 3}
    read = gc.parse_constraint("Coverage(within=0.1, to={a: 0.5, b: 0.3, c: 0.2})", labels=known)
    assert read == Coverage(within=0.1, to={1: 0.5, 2: 0.3, 3: 0.2})
    with pytest.raises(ValueError, match="no class is labelled 'z'"):
        gc.parse_constraint("Coverage(within=0.1, to={z: 1})", labels=known)


def test_a_series_is_read_by_its_labels():
    shares = pd.Series(["a", "b", "a", "c"]).value_counts(normalize=True)
    assert Coverage(within=0.1, to=shares).expression.to == (("a", 0.5), ("b", 0.25), ("c", 0.25))
    assert Coverage(within=0.1, to=shares.to_numpy()).expression.to == (0.5, 0.25, 0.25)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize(
    ("to", "error", "words"),
    [
        ({"a": 0.5, "b": 0.4}, ValueError, r"sum to one.* sum to 0\.9: divide each"),
        ([0.5, 0.6], ValueError, "sum to one"),
        ([-0.5, 1.5], ValueError, "numbers from 0 to 1, got -0.5"),
        ([np.nan, 1.0], ValueError, "numbers from 0 to 1, got nan"),
        (["a", "b"], ValueError, "numbers from 0 to 1, got 'a'"),
        ("prior", TypeError, "must be a dict from label to share"),
        (0.5, TypeError, "must be a dict from label to share"),
    ],
)
def test_targets_that_are_none_are_refused(preset, to, error, words):
    with pytest.raises(error, match=words) as refused:
        preset(within=0.1, to=to)
    assert f"to= of {preset.__name__}" in str(refused.value)


@pytest.mark.parametrize("preset", PRESETS)
@pytest.mark.parametrize("to", [{"a": 0.5, "b": 0.5}, {"a": 0.5, "b": 0.3, "z": 0.2}, [0.5, 0.5]])
def test_targets_of_other_classes_are_refused_once_the_classes_are_known(preset, to):
    with pytest.raises(ValueError, match=r"classes of y are \['a', 'b', 'c'\]: give one target"):
        resolve_positive_class([preset(within=0.1, to=to)], CLASSES)


def test_bounds_are_checked():
    with pytest.raises(ValueError, match=r"difference of shares in \[0, 1\]"):
        Coverage(within=1.5)
    with pytest.raises(TypeError, match="must be a number"):
        Coverage(within="0.1")
    with pytest.raises(ValueError, match="finite divergence"):
        Quantification(within=math.inf)
    with pytest.raises(TypeError, match="bounded from above"):
        Coverage(within=0.1).expression >= 0.1  # noqa: B015
