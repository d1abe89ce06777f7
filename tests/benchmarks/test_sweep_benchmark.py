"""The sweep over random rules: its reference, its draws, and that rows are not fitted again."""

import argparse
import sys
from pathlib import Path

import cvxpy as cp
import numpy as np
import pytest

BENCHMARKS = Path(__file__).parents[2] / "benchmarks"
if not BENCHMARKS.is_dir():
    pytest.skip("benchmarks are not beside the tests", allow_module_level=True)
sys.path.insert(0, str(BENCHMARKS))

import sweep  # noqa: E402
from result_file import ResultFile  # noqa: E402
from sweep import Rule  # noqa: E402

RULES = {
    "gap of false positives": (Rule("fpr", True, 0.1),),
    "misses": (Rule("fnr", False, 0.2),),
    "selected": (Rule("selection_rate", False, 0.3), Rule("tpr", True, 0.15)),
    "errors": (Rule("error_rate", True, 0.05), Rule("fpr", False, 0.2), Rule("fnr", False, 0.6)),
}


def sample(seed):
    rng = np.random.default_rng(seed)
    groups, scores = rng.integers(2, size=90), rng.normal(size=90)
    y = (scores + 0.7 * groups + rng.normal(size=90) > 0.3).astype(int)
    return scores, y, groups


def best_mixture(rules, scores, y, groups):
    """Accuracy by a programme of its own: one variable for each threshold of each group."""
    parts = []
    for g in (0, 1):
        own = scores[groups == g]
        at = np.append(np.sort(own), np.inf)
        parts.append((cp.Variable(at.size, nonneg=True), own[:, None] >= at))
    decided = [d @ share for share, d in parts]  # probability that each row is decided for 1
    labels = [y[groups == g] for g in (0, 1)]

    def rate(name, of):
        chance, label = decided[of], labels[of]
        if name == "error_rate":
            return (cp.sum(chance[label == 0]) + cp.sum(1 - chance[label == 1])) / label.size
        inside = {"fpr": label == 0, "selection_rate": label >= 0}.get(name, label == 1)
        value = cp.sum(chance[inside]) / inside.sum()
        return 1 - value if name == "fnr" else value

    def mass(name, of):
        label = labels[of]
        return {"fpr": (label == 0).sum(), "fnr": (label == 1).sum()}.get(name, label.size)

    limits = [cp.sum(share) == 1 for share, _ in parts]
    for rule in rules:
        first, second = rate(rule.rate, 0), rate(rule.rate, 1)
        if rule.is_gap:
            limits.append(cp.abs(first - second) <= rule.bound)
        else:
            a, b = mass(rule.rate, 0), mass(rule.rate, 1)
            limits.append((a * first + b * second) / (a + b) <= rule.bound)
    error = (labels[0].size * rate("error_rate", 0) + labels[1].size * rate("error_rate", 1)) / 90
    problem = cp.Problem(cp.Minimize(error), limits)
    problem.solve()
    return 1 - problem.value


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("rules", RULES.values(), ids=RULES)
def test_the_reference_is_the_best_mixture_of_group_thresholds(rules, seed):
    scores, y, groups = sample(seed)
    found = sweep.reference(rules, scores, y, groups)
    assert found == pytest.approx(best_mixture(rules, scores, y, groups), abs=1e-6)


def test_rules_that_no_thresholds_meet_have_no_reference():
    rules = (Rule("fpr", False, 0.0), Rule("fnr", False, 0.0))
    assert np.isnan(sweep.reference(rules, *sample(0)))


def test_draws_repeat_and_ask_for_less_than_the_plain_booster_has():
    first, again, other = (sweep.draw(number, ["compas"]) for number in (3, 3, 4))
    assert first.rules == again.rules != other.rules
    np.testing.assert_array_equal(first.X, again.X)
    assert 1 <= len(first.rules) <= 3
    assert all(0.0 < rule.bound < 1.0 for rule in first.rules)
    assert not set(map(tuple, first.X)) <= set(map(tuple, first.X_test))


def test_values_of_rules():
    y, groups = np.array([0, 0, 1, 1] * 2), np.repeat([0, 1], 4)
    decisions = np.array([1, 0, 1, 1, 0, 0, 0, 1])
    assert Rule("fpr", True, 0.0).value(y, decisions, groups) == 0.5
    assert Rule("fnr", False, 0.0).value(y, decisions, groups) == 0.25


def test_a_row_is_not_fitted_again(tmp_path, monkeypatch, capsys):
    fits = []

    def fit(*given):
        fits.append(given[1:])
        figures = {"accuracy": 0.7, "plain_accuracy": 0.8, "violation": 0.0, "seconds": 1.0}
        return figures | {"status": "met", "satisfied": "True", "warnings": ""}

    monkeypatch.setattr(sweep, "fit", fit)
    monkeypatch.setattr(sweep, "reference", lambda *given: 0.76)
    file = tmp_path / "rows.csv"
    given = ["sweep.py", "--draws", "2", "--data", "compas", "--output", str(file)]
    for settings in (["5/0.1"], ["5/0.1"], ["5/0.1", "6/0.1"]):
        monkeypatch.setattr(sys, "argv", [*given, "--settings", *settings])
        sweep.main()
    assert sorted(fits) == sorted(
        (library, rounds, 0.1) for library in sweep.LIBRARIES for rounds in (5, 5, 6, 6)
    )
    assert len(ResultFile(file, [*sweep.NAMES, *sweep.FIGURES]).rows()) == 8
    assert "'> 5': 1.0" in capsys.readouterr().out  # .06 lost in each


@pytest.mark.parametrize("text", ["20", "0/0.1", "x/0.1", "20/0", "20/2"])
def test_settings_are_checked(text):
    with pytest.raises(argparse.ArgumentTypeError, match="is not rounds/learning_rate"):
        sweep.setting(text)
