"""The benchmark of priorities: its best threshold by hand, and a fit that keeps its budget."""

import numpy as np
import priorities as benchmark
import pytest


def test_the_best_recall_is_that_of_the_highest_scores():
    score, y = np.array([0.9, 0.1, 0.8, 0.7, 0.2]), np.array([1, 1, 0, 1, 0])
    assert [benchmark.best_recall(score, y, n) for n in range(6)] == pytest.approx(
        [0.0, 1 / 3, 1 / 3, 2 / 3, 2 / 3, 1.0]
    )


def test_a_budget_that_comes_first_is_kept_and_one_beside_a_recall_is_not():
    budget, least = benchmark.BUDGETS["compas"]
    first, alike = (benchmark.fit("compas", "lightgbm", method, 1) for method in benchmark.METHODS)
    assert first["selected"] <= budget + 2 * first["error_of_selected"]
    assert first["held_out"] <= budget
    assert alike["selected"] > 2 * budget
    # Whoever knew the test rows could not have had both.
    assert first["best_of_budget"] < least / 2
    assert first["recall"] == pytest.approx(first["best_of_same"], abs=0.02)
