"""Rows of constraints that are violated beyond doubt."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import Data, by

import gbm_constrained as gc
from gbm_constrained.statistics.binomial import clopper_pearson
from gbm_constrained.statistics.p_values import find_violated_rows, row_p_values


def test_means_of_two_groups_are_certified_when_hoeffdings_limits_meet_the_bound():
    """Scores of -1, 0 and 1 are no binomials: their limits are Hoeffding's at p / 2 each."""
    data = Data(11, n=2000)
    right, before = data.y == data.decided, data.y == data.other
    score = (before & ~right).astype(float) - (right & ~before)
    own = [score[data.sex == sex] for sex in "FM"]
    each_limit = sum(2.0 / np.sqrt(2.0 * x.size) for x in own)  # for one unit of log(2 / p)
    rule = by(gc.losses(to="old") - gc.wins(over="old")) <= 0.25
    compiled, counts = data.measured(rule)
    p = row_p_values(compiled, counts)
    apart = own[0].mean() - own[1].mean()
    expected = [2.0 * np.exp(-(((0.25 - d) / each_limit) ** 2)) for d in (apart, -apart)]
    assert max(expected) < 0.5
    assert sorted(p) == pytest.approx(sorted(expected), rel=1e-6)
    # Beyond doubt is a bound that the opposite limit is above.
    limit = abs(apart) - each_limit * np.sqrt(np.log(2.0 / 0.9))
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        signed = gc.losses(to="old", on={"sex": "F"}) - gc.wins(over="old", on={"sex": "F"})
        signed -= gc.losses(to="old", on={"sex": "M"}) - gc.wins(over="old", on={"sex": "M"})
        rule = (signed if apart > 0 else -1 * signed) <= bound
        assert find_violated_rows(*data.measured(rule), 0.9).tolist() == [is_beyond]


def test_unequal_weights_count_as_their_effective_number_beyond_doubt():
    data = Data(3, n=400, weighted=True)
    ends = []
    for sex, tail in (("F", 0), ("M", 1)):
        v = data.weight[data.sex == sex]
        n, rate = v.sum() ** 2 / (v**2).sum(), np.average(data.decided[data.sex == sex], weights=v)
        ends.append(clopper_pearson(rate * n, n, 0.5)[tail])
    limit = ends[0] - ends[1]  # at 0.25 on each side
    signed = gc.selection_rate(on={"sex": "F"}) - gc.selection_rate(on={"sex": "M"})
    for bound, is_beyond in ((limit - 1e-6, True), (limit + 1e-6, False)):
        assert find_violated_rows(*data.measured(signed <= bound), 0.5).tolist() == [is_beyond]
