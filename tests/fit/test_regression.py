"""The stages of a regressor's fit: its passes, and what is reported of the model."""

from __future__ import annotations

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
from helpers import EITHER
from regressor_fits import fit, make_problem

import gbm_constrained as gc

GAP = [gc.gap(gc.mean_prediction(), by="g") <= 0.7]


def phases(library, rules, problem, **options):
    """Count the outer iterations of measuring and of training, and the last multipliers."""
    seen = []
    model = fit(library, rules, problem, given={"constraint_callbacks": [seen.append]}, **options)
    counts = {name: sum(s.phase == name for s in seen) for name in ("measuring", "training")}
    return SimpleNamespace(model=model, **counts)


@EITHER
def test_constraints_that_do_not_bind_take_one_pass(library):
    """The number of iterations of a pass is half that of the rounds."""
    found = phases(
        library,
        [gc.mean_loss() <= 1e6],
        make_problem(400),
        n_estimators=20,
        measure_on=gc.CrossFit(2),
    )
    assert found.measuring == 10
    assert not found.model.multipliers_.any()


@EITHER
def test_constraints_that_bind_take_at_most_two_passes(library):
    found = phases(library, GAP, make_problem(600), n_estimators=20, measure_on=gc.CrossFit(2))
    assert found.measuring in (10, 20)
    assert found.model.multipliers_.gt(0).any()
    impossible = [gc.mean_loss() <= 0.01]
    hopeless = phases(
        library, impossible, make_problem(600), n_estimators=20, measure_on=gc.CrossFit(2)
    )
    assert hopeless.measuring == 20
    assert np.isfinite(hopeless.model.predict(make_problem(50).X)).all()


@EITHER
def test_an_impossible_constraint_does_not_ruin_the_model(library):
    """Multipliers that rise without end would be paid for by the loss."""
    train, fresh = make_problem(800), make_problem(4000, seed=3)
    model = fit(
        library, [gc.gap(gc.mean_residual(), by="g") <= 1e-9], train, measure_on=gc.CrossFit(2)
    )
    plain = fit(library, [], train)
    losses = [np.square(fresh.y - one.predict(fresh.X)).mean() for one in (model, plain)]
    assert losses[0] < 1.5 * losses[1]


@EITHER
def test_reports_hold_means_of_groups_and_their_intervals(library):
    problem = make_problem(900)
    rules = [*GAP, gc.each(gc.mean_loss("absolute"), by="g") <= 3.0]
    model = fit(library, rules, problem, measure_on=gc.CrossFit(2), n_estimators=40)
    report, groups = model.constraint_report_, model.group_report_
    f = model.predict(problem.X).astype(float)
    losses = [np.abs(problem.y - f)[problem.group == g].mean() for g in (0, 1)]
    assert report["train"][1] == pytest.approx(max(losses), abs=1e-5)
    of_losses = groups[groups["constraint"] == str(rules[1])]
    np.testing.assert_allclose(of_losses["train"], losses, atol=1e-5)
    assert of_losses["rows"].tolist() == np.bincount(problem.group).tolist()
    held = of_losses["held_out"].to_numpy()
    assert report["held_out"][1] == pytest.approx(held.max())
    assert (of_losses["low"].to_numpy() < held).all()
    assert (of_losses["high"].to_numpy() > held).all()
    gap = groups[groups["constraint"] == str(rules[0])]["held_out"]
    assert report["held_out"][0] == pytest.approx(np.ptp(gap))


@EITHER
def test_the_history_ends_with_the_returned_model(library):
    problem = make_problem(500)
    model = fit(library, GAP, problem, n_estimators=20, measure_on=gc.CrossFit(2))
    history = model.history_
    assert "error" not in history
    assert history["rounds"].tolist() == [*range(0, 20, 2), 20]
    expected = np.square(problem.y - model.predict(problem.X)).mean() / 2
    assert history["objective"].iloc[-1] == pytest.approx(expected, abs=1e-5)
    assert history["objective"].iloc[0] > expected


def with_small_groups(n=1500, seed=0):
    """Ten groups of three rows, beside two large ones whose targets differ by features alone."""
    problem = make_problem(n, seed)
    problem.y = problem.y - problem.group
    problem.group = problem.group.copy()
    problem.group[:30] = 2 + np.arange(30) % 10
    return problem


def explained(model, problem):
    """The share of the variance that a model explains."""
    return 1.0 - np.square(problem.y - model.predict(problem.X)).mean() / problem.y.var()


@EITHER
@pytest.mark.parametrize(
    "rules",
    [
        [gc.each(gc.mean_residual(), by="g") <= 0.2, gc.each(gc.mean_residual(), by="g") >= -0.2],
        [gc.gap(gc.mean_residual(), by="g") <= 0.3],
        [gc.gap(gc.mean_prediction(), by="g") <= 2.0],
        [gc.each(gc.mean_loss("squared"), by="g") <= 1.5],
    ],
    ids=str,
)
@pytest.mark.filterwarnings("ignore")
def test_groups_of_three_rows_do_not_ruin_the_model(library, rules):
    """Large groups nearly meet the rules; only chance in the small ones breaks them."""
    train, fresh = with_small_groups(), with_small_groups(4000, seed=3)
    model, plain = (fit(library, given, train, measure_on=gc.CrossFit(2)) for given in (rules, []))
    assert explained(model, fresh) > explained(plain, fresh) - 0.03


@EITHER
def test_what_the_rules_cost_stands_in_a_report_and_is_warned_of(library):
    problem = make_problem(900)
    with pytest.warns(gc.CostlyConstraintsWarning, match="group_shifts=True"):
        model = fit(
            library,
            [gc.gap(gc.mean_prediction(), by="g") <= 0.01],
            problem,
            measure_on=gc.CrossFit(2),
        )
    cost, report = model.feasibility_.cost, model.cost_report_
    assert report.index.tolist() == ["plain", "returned"]
    assert report.iloc[0, 1] > 1.0 > report.iloc[1, 1]
    assert report.iloc[1, 1] == pytest.approx(model.constraint_report_["held_out"][0])
    variance = problem.y.var() / 2
    np.testing.assert_allclose(
        report["loss"] / variance, [cost.unconstrained_error, cost.error], rtol=1e-3
    )
    assert 1.0 - cost.error == pytest.approx(model.unseen_r2_.value, abs=1e-3)


@EITHER
def test_rules_that_cost_nothing_are_not_warned_of(library):
    problem = make_problem(900)
    with warnings.catch_warnings():
        warnings.simplefilter("error", gc.CostlyConstraintsWarning)
        model = fit(library, [gc.mean_residual() <= 0.01], problem, measure_on=gc.CrossFit(2))
    assert not model.feasibility_.cost.is_costly
    assert not model.feasibility_.is_fragile


@EITHER
def test_small_groups_are_listed(library):
    problem = make_problem(300)
    problem.group = np.where(np.arange(300) < 12, 2, problem.group)
    with pytest.warns(UserWarning, match="g=2"):
        model = fit(library, GAP, problem, n_estimators=6, measure_on=gc.CrossFit(2))
    assert model.small_groups_["group"].tolist() == ["g=2"]
