"""Fairness of rankings by name, against counting all pairs of rows."""

from __future__ import annotations

import numpy as np
import pytest
from counted_data import random
from hypothesis import given
from hypothesis import strategies as st
from pair_references import PairData

import gbm_constrained as gc
from gbm_constrained.constraints.text import format_constraint, parse_constraint, parse_constraints
from gbm_constrained.presets import (
    AverageEqualityGap,
    BackgroundSubgroupAUC,
    CrossAUC,
    GroupAUC,
    SubgroupAUC,
)

ALL = [
    GroupAUC(0.05, by="sex"),
    CrossAUC(by=["sex", "region"]),
    SubgroupAUC(on={"region": "a"}),
    AverageEqualityGap(0, 0.01, by="sex", on={"region": "a"}),
    *BackgroundSubgroupAUC(0.05, by="sex"),
    *BackgroundSubgroupAUC(0.05, by="sex", background="others"),
]


def largest(data, constraints):
    """The largest absolute value that a preset bounds: that of the worse of its sides."""
    constraints = constraints if isinstance(constraints, tuple) else (constraints,)
    return max(abs(data.value(constraint)) for constraint in constraints)


@random(25)
@given(seed=st.integers(0, 10_000))
def test_examples_of_the_source_paper(seed):
    """Of two groups, by pairs: Appendix A, Examples 1 to 5, and the complement of Borkan et al."""
    data = PairData(seed)
    F, P, everyone = data.sex == "F", data.y == 1, np.ones(data.y.size, dtype=bool)
    of_each = [(g, ~g) for g in (F, ~F)]
    expected = {
        GroupAUC: abs(data.count(F, ~F) - 0.5),
        CrossAUC: abs(data.count(P & F, ~P & ~F) - data.count(P & ~F, ~P & F)),
        SubgroupAUC: abs(data.count(P & F, ~P & F) - data.count(P & ~F, ~P & ~F)),
    }
    for preset, value in expected.items():
        assert largest(data, preset(by="sex")) == pytest.approx(value, abs=1e-12)
    for label, rows in ((1, P), (0, ~P)):
        distances = [abs(data.count(rows & g, rows) - 0.5) for g in (F, ~F)]
        rule = AverageEqualityGap(label, by="sex")
        assert largest(data, rule) == pytest.approx(max(distances), abs=1e-12)
    for background, rest in (("all", [everyone, everyone]), ("others", [h for _, h in of_each])):
        differences = [
            data.count(P & b, ~P & g) - data.count(P & g, ~P & b)
            for (g, _), b in zip(of_each, rest, strict=True)
        ]
        rules = BackgroundSubgroupAUC(by="sex", background=background)
        highest, lowest = map(data.value, rules)
        assert (highest, lowest) == pytest.approx((max(differences), min(differences)), abs=1e-12)
        if background == "others":
            assert highest == pytest.approx(expected[CrossAUC], abs=1e-12)


def test_one_subgroup_is_the_difference_of_two_aucs():
    data, women = PairData(2), {"sex": "F"}
    difference = gc.auc(negatives=women) - gc.auc(positives=women)
    groups = data.functionals(BackgroundSubgroupAUC(by="sex")[0])
    assert np.isclose(groups, data.value(difference <= 0.1), rtol=0, atol=1e-12).any()


def test_several_groups_and_rows():
    data = PairData(5, n=600)
    inside = data.sex == "F"
    ranks = [data.count(inside & (data.region == g), inside) for g in "abc"]
    value = largest(data, GroupAUC(by="region", on={"sex": "F"}))
    assert value == pytest.approx(np.ptp(ranks), abs=1e-12)


@pytest.mark.parametrize("rule", ALL, ids=str)
def test_presets_are_read_as_they_are_written(rule):
    assert parse_constraint(format_constraint(rule)) == rule


def test_presets_as_text():
    text = "GroupAUC(0.05, by=sex); AverageEqualityGap(1, by=sex); BackgroundSubgroupAUC(by=sex)"
    assert parse_constraints(text) == [
        GroupAUC(0.05, by="sex"),
        AverageEqualityGap(1, by="sex"),
        *BackgroundSubgroupAUC(by="sex"),
    ]


def test_both_conventions_of_the_background_print_apart():
    printed = [str(rule) for rule in ALL]
    assert len(set(printed)) == len(printed)
    assert printed[4] == (
        "each(cross_auc[group negatives, background all] - cross_auc[background all], "
        "by='sex') <= 0.05"
    )


@pytest.mark.parametrize(
    ("make", "error", "message"),
    [
        (lambda: GroupAUC(1.2, by="sex"), ValueError, r"a rate in \[0, 1\]"),
        (lambda: CrossAUC("0.1", by="sex"), TypeError, "number"),
        (lambda: SubgroupAUC(by=[]), ValueError, "by= is empty"),
        (lambda: AverageEqualityGap(by="sex"), TypeError, "label"),
        (lambda: BackgroundSubgroupAUC(by="sex", background="complement"), ValueError,
         r"background must be one of \['others', 'all'\], got 'complement'"),
    ],
)  # fmt: skip
def test_arguments_that_presets_cannot_take(make, error, message):
    with pytest.raises(error, match=message):
        make()
