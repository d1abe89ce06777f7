"""Decision rules: what every rule does, and what shifts and mixtures do."""

from __future__ import annotations

import numpy as np
import pandas as pd
import pytest

from gbm_constrained.decision.rules import MarginShift, Mixture, Scores, shift_scores

N = 400


def margins_of(n_classes):
    """Scores that grow with the rounds of the prefix."""
    rng = np.random.default_rng(n_classes)
    shape = (N,) if n_classes == 2 else (N, n_classes)
    noise, signal = rng.normal(size=shape), rng.normal(size=shape)
    return lambda rounds: noise + 0.1 * rounds * signal


def rules_of(n_classes):
    """List one rule of each kind."""
    shift = np.array([0.4]) if n_classes == 2 else 0.4 - 0.2 * np.arange(n_classes)
    shifts = MarginShift(shift, 5), MarginShift(-shift, 10)
    return {
        "shift": shifts[0],
        "mixture": Mixture(shifts, np.array([0.3, 0.7]), random_state=0),
        "mixture of a mixture": Mixture(
            (shifts[0], Mixture(shifts, np.array([0.5, 0.5]), 1)), np.array([0.2, 0.8]), 2
        ),
    }


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", rules_of(2))
def test_every_rule_decides_class_indices_of_rows(kind, n_classes):
    rule, margins = rules_of(n_classes)[kind], margins_of(n_classes)
    decisions = rule.decide(margins)
    assert decisions.shape == (N,)
    assert decisions.dtype == np.intp
    assert set(decisions) == set(range(n_classes))
    np.testing.assert_array_equal(rule.decide(margins), decisions)  # the same draws again
    single = rule.decide(lambda rounds: margins(rounds).astype(np.float32))
    assert np.mean(single == decisions) > 0.99


@pytest.mark.parametrize("n_classes", [2, 4])
@pytest.mark.parametrize("kind", rules_of(2))
def test_every_rule_follows_scores_that_leave_no_doubt(kind, n_classes):
    sure = np.arange(N) % n_classes
    far = np.where(sure == 1, 50.0, -50.0) if n_classes == 2 else 50.0 * np.eye(n_classes)[sure]
    np.testing.assert_array_equal(rules_of(n_classes)[kind].decide(lambda rounds: far), sure)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_shift_is_added_to_the_scores_of_its_prefix(n_classes):
    rule, margins = rules_of(n_classes)["shift"], margins_of(n_classes)
    scores = shift_scores(margins(5), rule.shift)
    expected = scores > 0 if n_classes == 2 else scores.argmax(axis=1)
    np.testing.assert_array_equal(rule.decide(margins), expected)
    moved = scores - margins(5)
    np.testing.assert_allclose(moved, np.broadcast_to(moved[0], moved.shape), atol=1e-12)


@pytest.mark.parametrize("n_classes", [2, 4])
def test_a_mixture_draws_each_row_by_the_probabilities(n_classes):
    margins, table = margins_of(n_classes), {"rounds": [0, 5, 20], "probability": [0.2, 0.5, 0.3]}
    columns = 1 if n_classes == 2 else n_classes
    alone = [MarginShift(np.zeros(columns), r).decide(margins) for r in table["rounds"]]
    shares = np.zeros((N, n_classes))
    for seed in range(300):
        mixture = Mixture.of_prefixes(pd.DataFrame(table), n_classes, seed)
        shares[np.arange(N), mixture.decide(margins)] += 1 / 300
    parts = zip(table["probability"], alone, strict=True)
    expected = sum(p * np.eye(n_classes)[decisions] for p, decisions in parts)
    assert np.abs(shares - expected).max() < 5 * np.sqrt(0.25 / 300)
    assert not shares[expected == 0.0].any()


def test_scores_beside_a_shift_are_those_of_probabilities():
    margin, shift = np.array([-1.0, 0.5]), np.array([0.7])
    inside, beside = (Scores.of(margin, shift, beside=b) for b in (False, True))
    np.testing.assert_array_equal(beside.for_decisions, margin + 0.7)
    assert beside.for_probabilities is margin
    assert inside.for_probabilities is inside.for_decisions
    unmoved = Scores.of(margin, np.zeros(1), beside=True)
    assert unmoved.for_probabilities is unmoved.for_decisions
