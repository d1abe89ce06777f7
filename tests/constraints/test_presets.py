"""Rules by their names: what they compile to, fairlearn's meaning, and counts of pairs of rows."""

from __future__ import annotations

import inspect
import warnings

import numpy as np
import pandas as pd
import pytest
from counted_data import random
from hypothesis import given, settings
from hypothesis import strategies as st
from pair_references import PairData
from regressions import build

import gbm_constrained as gc
from gbm_constrained import presets
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.presets import (
    BoundedGroupLoss,
    Churn,
    DemographicParity,
    EqualizedOdds,
    EqualOpportunity,
    FourFifths,
    NeymanPearson,
    TruePositiveRateParity,
    UtilityParity,
    from_fairlearn,
)
from gbm_constrained.constraints.text import format_constraint, parse_constraint, parse_constraints
from gbm_constrained.data.rows import Rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.presets import (
    AverageEqualityGap,
    BackgroundSubgroupAUC,
    CrossAUC,
    GroupAUC,
    SubgroupAUC,
)
from gbm_constrained.problem.compiler import compile_constraints
from gbm_constrained.problem.lagrangian import Lagrangian

PARITIES = {
    "DemographicParity": [gc.selection_rate],
    "TruePositiveRateParity": [gc.tpr],
    "FalsePositiveRateParity": [gc.fpr],
    "EqualizedOdds": [gc.tpr, gc.fpr],
    "ErrorRateParity": [gc.error_rate],
}
BOUNDS = [
    {},
    {"difference_bound": 0.05},
    {"difference_bound": 0.15},
    {"ratio_bound": 0.8},
    {"ratio_bound": 0.9, "ratio_bound_slack": 0.05},
    {"ratio_bound": 1.0, "ratio_bound_slack": 0.1},
]
seeds = st.integers(0, 2**32 - 1)


@pytest.fixture(scope="module")
def reductions():
    return pytest.importorskip("fairlearn.reductions")


def draw(seed, n=400):
    """Labels, three large groups, and predictions that depend on both."""
    rng = np.random.default_rng(seed)
    y = rng.integers(0, 2, n)
    group = rng.choice(["a", "b", "c"], n)
    tilt = dict(zip("abc", rng.uniform(-0.2, 0.2, 3) * rng.integers(0, 2), strict=True))
    chance = np.clip(rng.uniform(0.2, 0.8) + 0.2 * y + [tilt[g] for g in group], 0, 1)
    return y, group, (rng.random(n) < chance).astype(int)


def measure(constraints, y, group, predicted):
    """Whether each row of constraints is violated, and whether each constraint is satisfied."""
    rows = Rows(y, np.array([0, 1]), None, columns_of(group, y.size))
    cells, compiled = compile_constraints(constraints, rows)
    statistics = Lagrangian(y, cells, compiled).at(np.where(predicted, 1.0, -1.0)).statistics()
    values = compiled.values(compiled.functionals(statistics))
    return compiled.violations(statistics), compiled.is_satisfied(values)


def moment_violation(moment, y, group, predicted):
    """Largest excess of a moment of fairlearn over its bound."""
    X = pd.DataFrame({"x": np.zeros(y.size)})
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # fairlearn 0.15 uses what pandas 3 deprecates
        moment.load_data(X, pd.Series(y), sensitive_features=pd.Series(group))
    return float((moment.gamma(lambda X: predicted) - moment.bound()).max())


@pytest.mark.parametrize("name", PARITIES)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
@settings(derandomize=True, deadline=None, max_examples=3)
@given(seed=seeds)
def test_a_parity_is_violated_where_fairlearn_says_so(reductions, name, bounds, seed):
    """By as much, too; and so is the moment of fairlearn itself, given as a constraint."""
    y, group, predicted = draw(seed)
    preset = check_constraints(getattr(presets, name)(**bounds))
    moment = getattr(reductions, name)(**bounds)
    expected = moment_violation(moment, y, group, predicted)
    for constraints in (preset, check_constraints(moment), check_constraints([moment])):
        violations, satisfied = measure(constraints, y, group, predicted)
        np.testing.assert_allclose(violations.max(), expected, atol=1e-12)
        if abs(expected) > 1e-9:
            assert satisfied.all() == (expected <= 0)


def test_violations_and_satisfactions_are_both_met(reductions):
    """The random predictions above decide something."""
    violated = [
        moment_violation(reductions.DemographicParity(difference_bound=0.05), *draw(s)) > 0
        for s in range(20)
    ]
    assert 3 < sum(violated) < 17


@settings(derandomize=True, deadline=None, max_examples=15)
@given(seed=seeds, bound=st.floats(0.2, 0.6))
def test_bounded_group_loss_of_zero_one_loss(reductions, seed, bound):
    y, group, predicted = draw(seed)
    moment = reductions.BoundedGroupLoss(reductions.ZeroOneLoss(), upper_bound=bound)
    expected = moment_violation(moment, y, group, predicted)
    own = BoundedGroupLoss("zero_one", upper_bound=bound)
    assert from_fairlearn(moment) == (own,)
    assert BoundedGroupLoss(reductions.ZeroOneLoss(), upper_bound=bound) == own
    violations, satisfied = measure([own], y, group, predicted)
    np.testing.assert_allclose(violations.max(), expected, atol=1e-12)
    if abs(expected) > 1e-9:
        assert satisfied.all() == (expected <= 0)


@pytest.mark.parametrize(("theirs", "ours"), [("Square", "squared"), ("Absolute", "absolute")])
@settings(derandomize=True, deadline=None, max_examples=5)
@given(seed=seeds, bound=st.floats(0.2, 0.6))
def test_bounded_group_loss_of_a_regressor(reductions, theirs, ours, seed, bound):
    """Values of each group are those of fairlearn, where all numbers are in its range."""
    rng = np.random.default_rng(seed)
    y, predicted, group = rng.random(60), rng.random(60), np.arange(60) % 3
    loss = getattr(reductions, f"{theirs}Loss")(0, 1)
    moment = reductions.BoundedGroupLoss(loss, upper_bound=bound)
    (read,) = from_fairlearn(moment)
    assert read == (gc.each(gc.mean_loss(ours)) <= bound)
    assert BoundedGroupLoss(loss, upper_bound=bound, by="s") == BoundedGroupLoss(
        ours, upper_bound=bound, by="s"
    )
    rule = gc.each(gc.mean_loss(ours), by="group", min_group_size=1) <= bound
    lagrangian = build(y, [rule], table={"group": group})
    violations = lagrangian.constraints.violations(lagrangian.at(predicted).statistics())
    assert violations.max() == pytest.approx(moment_violation(moment, y, group, predicted))


@pytest.mark.parametrize("name", PARITIES)
@pytest.mark.parametrize("bounds", BOUNDS, ids=str)
def test_a_moment_is_its_preset(reductions, name, bounds):
    read = from_fairlearn(getattr(reductions, name)(**bounds))
    if bounds.get("ratio_bound") == 1.0:  # fairlearn keeps the slack only: a difference
        bounds = {"difference_bound": bounds["ratio_bound_slack"]}
    assert read == check_constraints(getattr(presets, name)(**bounds))


@pytest.mark.parametrize("name", [*PARITIES, "UtilityParity"])
def test_names_and_parameters_are_those_of_fairlearn(reductions, name):
    own = inspect.signature(getattr(presets, name)).parameters
    theirs = inspect.signature(getattr(reductions, name).__init__).parameters
    for parameter in list(theirs)[1:]:
        assert own[parameter].kind == theirs[parameter].kind
        assert own[parameter].default == theirs[parameter].default


@pytest.mark.parametrize("name", PARITIES)
def test_what_a_parity_compares(name):
    """Every group with all rows, by the columns and on the rows that are asked for."""
    preset, rates = getattr(presets, name), PARITIES[name]
    where = {"by": ["sex", "age"], "on": gc.label(1)}
    for given_by, options in (({}, {}), (where, where)):
        on, by = options.get("on"), options.get("by")
        expected = [gc.gap(rate(on=on), by=by, reference=gc.overall) <= 0.01 for rate in rates]
        assert check_constraints(preset(**given_by)) == tuple(expected)
        expected = [gc.gap(rate(on=on), by=by, reference=gc.overall) <= 0.2 for rate in rates]
        assert check_constraints(preset(difference_bound=0.2, **given_by)) == tuple(expected)
        expected = [
            gc.ratio(rate(on=on), by=by, reference=gc.overall, slack=0.1) >= 0.9 for rate in rates
        ]
        asked = preset(ratio_bound=0.9, ratio_bound_slack=0.1, **given_by)
        assert check_constraints(asked) == tuple(expected)


def test_parity_of_any_rate():
    assert UtilityParity() == DemographicParity()
    assert UtilityParity(gc.tpr(), difference_bound=0.1) == TruePositiveRateParity(
        difference_bound=0.1
    )
    loss = UtilityParity(gc.log_loss(), difference_bound=2.5)
    assert loss == (gc.gap(gc.log_loss(), reference=gc.overall) <= 2.5)


@pytest.mark.parametrize("name", [*PARITIES, "UtilityParity"])
def test_two_bounds_are_refused(name):
    preset = getattr(presets, name)
    with pytest.raises(ValueError, match=r"difference_bound=0.1 and ratio_bound=0.8 cannot both"):
        preset(difference_bound=0.1, ratio_bound=0.8)
    for ratio_bound in (0.0, -0.5, 1.1, np.nan):
        with pytest.raises(ValueError, match=r"ratio_bound must be in \(0, 1\]"):
            preset(ratio_bound=ratio_bound)
    with pytest.raises(TypeError, match=r"ratio_bound must be a number in \(0, 1\], got '0.8'"):
        preset(ratio_bound="0.8")
    for other in ({}, {"difference_bound": 0.1}):
        with pytest.raises(ValueError, match=r"ratio_bound_slack=0.1 is the slack of a ratio_b"):
            preset(ratio_bound_slack=0.1, **other)
    with pytest.raises(ValueError, match=r"must be a rate in \[0, 1\]"):
        preset(difference_bound=1.5)
    with pytest.raises(ValueError, match="slack must be a non-negative number"):
        preset(ratio_bound=0.8, ratio_bound_slack=-0.1)


def test_the_other_presets():
    assert NeymanPearson({0: 0.01, "x": 0.03}) == (
        gc.class_error(0) <= 0.01,
        gc.class_error("x") <= 0.03,
    )
    assert Churn([0, 1], 0.02) == (gc.churn(to=[0, 1]) <= 0.02)
    assert Churn("old", 0.02, on=gc.label(1)) == (gc.churn(to="old", on=gc.label(1)) <= 0.02)
    assert EqualOpportunity() == (gc.gap(gc.tpr()) <= 0.02)
    assert EqualOpportunity(0.1, by="s", on=gc.label(1)) == (
        gc.gap(gc.tpr(on=gc.label(1)), by="s") <= 0.1
    )
    assert FourFifths() == (gc.ratio(gc.selection_rate()) >= 0.8)
    assert FourFifths(by="s", bound=0.9) == (gc.ratio(gc.selection_rate(), by="s") >= 0.9)
    assert BoundedGroupLoss(upper_bound=1.5) == (gc.each(gc.log_loss()) <= 1.5)
    assert BoundedGroupLoss("zero_one", upper_bound=0.2, by="s", on=gc.label(1)) == (
        gc.each(gc.error_rate(on=gc.label(1)), by="s") <= 0.2
    )
    with pytest.raises(ValueError, match="loss must be one of"):
        BoundedGroupLoss("square", upper_bound=0.2)
    with pytest.raises(ValueError, match="5 per cent is written"):
        NeymanPearson({0: 5})


def test_arguments_that_presets_cannot_take_are_named(reductions):
    with pytest.raises(TypeError, match=r"levels must be a dict .* \{0: 0.05\}; got \[0.05"):
        NeymanPearson([0.05])
    with pytest.raises(ValueError, match=r"levels is empty, .* such as \{0: 0.05\}"):
        NeymanPearson({})
    with pytest.raises(ValueError, match=r"loss must be one of .*'AbsoluteLoss'\]; got <fairl"):
        BoundedGroupLoss(reductions.ErrorRate(), upper_bound=0.2)


def test_a_parity_of_several_classes_is_that_of_a_rate_of_one():
    """With a label of the rate, which is what the presets' documentation says."""
    y, group = np.arange(600) % 3, np.arange(600) % 2
    rows = Rows(y, np.arange(3), None, columns_of(group, 600))
    with pytest.raises(ValueError, match="it is a rate of binary classifiers"):
        compile_constraints([DemographicParity()], rows)
    compile_constraints([UtilityParity(gc.selection_rate(label=2))], rows)


def test_lists_of_presets_are_flattened():
    constraints = check_constraints([EqualizedOdds(), [FourFifths(), NeymanPearson({0: 0.1})]])
    assert constraints == (*EqualizedOdds(), FourFifths(), gc.class_error(0) <= 0.1)
    assert check_constraints(None) == check_constraints([]) == ()
    assert check_constraints(FourFifths()) == (FourFifths(),)


@pytest.mark.parametrize("given_as", [0.05, gc.fpr(), [gc.fpr()], [0.1], [None]])
def test_what_is_no_constraint(given_as):
    with pytest.raises(TypeError, match=r"constraints (must be a sequence|holds)"):
        check_constraints(given_as)


def test_other_moments_are_refused(reductions):
    for moment in (
        reductions.MeanLoss(reductions.ZeroOneLoss()),
        reductions.UtilityParity(),
        reductions.ErrorRate(),
    ):
        with pytest.raises(TypeError, match="is not a constraint on a classifier's rates"):
            check_constraints([moment])
    with pytest.raises(ValueError, match="BoundedGroupLoss of fairlearn has no upper_bound"):
        check_constraints(reductions.BoundedGroupLoss(reductions.ZeroOneLoss()))


def test_a_fit_obeys_a_moment(reductions):
    """It is reported as the preset, with its value."""
    rng = np.random.default_rng(0)
    sex = rng.integers(0, 2, 600)
    X = rng.normal(size=(600, 3)) + sex[:, None]
    y = (X[:, 0] + rng.normal(size=600) > 0.5).astype(int)
    constraint = reductions.DemographicParity(difference_bound=0.05)
    model = gc.ConstrainedLGBMClassifier(
        constraints=[constraint], n_estimators=30, n_jobs=1, num_leaves=7, verbose=-1
    ).fit(X, y, sensitive_features=sex)
    predicted = model.predict(X)
    value = max(abs(predicted[sex == s].mean() - predicted.mean()) for s in (0, 1))
    report = model.constraint_report_.iloc[0]
    assert report.constraint == "gap(selection_rate, reference=overall) <= 0.05"
    np.testing.assert_allclose(report.train, value, atol=1e-12)
    assert value < 0.08


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


@random(8)
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
