"""The criterion by which one of several measured candidates is returned."""

from __future__ import annotations

import numpy as np
import pytest

from gbm_constrained.decision.choose import choose

ERRORS = np.full((3, 2), 0.02)


@pytest.mark.parametrize(
    ("objectives", "violations", "expected"),
    [
        # The best objective violates a row by more than its error, and others do not.
        ([0.1, 0.3, 0.2], [[0.03, -1.0], [-0.1, 0.0], [0.01, 0.01]], 2),
        # Within the errors a violation has its price: 0.2 + 3 * 0.02 > 0.25.
        ([0.1, 0.25, 0.2], [[0.03, 0.0], [0.0, 0.0], [0.02, 0.0]], 1),
        # Nobody comes within the errors: the same sum decides among all.
        ([0.1, 0.2, 0.7], [[0.30, 0.0], [0.1, 0.1], [0.03, 0.0]], 1),
        # Room to spare is worth nothing, and the earlier of equals is taken.
        ([0.2, 0.2, 0.3], [[-0.1, -0.1], [-0.5, -0.5], [-0.5, -0.5]], 0),
        # A candidate without an objective is the last.
        ([np.nan, 0.9, np.nan], [[0.0, 0.0], [0.5, 0.5], [0.0, 0.0]], 1),
    ],
)
def test_choice(objectives, violations, expected):
    assert choose(np.array(objectives), np.array(violations), ERRORS, price=3.0) == expected


def test_weights_multiply_the_price_and_not_the_errors():
    objectives, violations = np.array([0.2, 0.23]), np.array([[0.01, 0.0], [0.0, 0.01]])
    assert choose(objectives, violations, ERRORS[:2], price=3.0) == 0
    assert choose(objectives, violations, ERRORS[:2], price=3.0, weights=np.array([5.0, 1.0])) == 1


def test_without_constraints_the_objective_decides():
    nothing = np.zeros((3, 0))
    assert choose(np.array([0.3, 0.1, 0.2]), nothing, nothing, price=3.0) == 1
