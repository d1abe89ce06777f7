"""Randomised classifiers: the prefixes that they draw from, and the means that are reported."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import replace

import numpy as np
import pandas as pd

from gbm_constrained._typing import Float
from gbm_constrained.data.cells import CellStatistics
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.mixtures import find_mixture
from gbm_constrained.decision.outcome import Outcome
from gbm_constrained.decision.rule import Scores
from gbm_constrained.solvers.base import Record
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.final_model import FinalModel
from gbm_constrained.training.fit import ConstrainedFit
from gbm_constrained.training.model_scores import ModelScores
from gbm_constrained.training.records import errors_and_violations, list_prefixes, make_record
from gbm_constrained.training.training_evidence import add_record, find_intervals

MAX_MIXTURE_VIOLATION = 1e-6  # Violation by a mixture that the linear programme leaves.


def choose_mixture(
    fit: ConstrainedFit, scores: ModelScores, rounds: int
) -> tuple[pd.DataFrame, Float]:
    """Choose the prefixes of a randomised classifier.

    Returns their rounds and probabilities, and the violations, as they are stated, of constraints
    that no mixture meets as they act, of shape (m,).
    """
    if fit.measured.controller is None:
        solver, records = fit.solver, training_prefixes(fit, scores, rounds)
    else:
        solver = fit.measured.controller.solver
        records = _held_out_prefixes(fit, scores, rounds)
    errors, violations = errors_and_violations(records)
    chosen, probability = find_mixture(errors, violations)
    acting = solver.lagrangian.constraints
    asked = np.array([r.rates for r in records]) - acting.b
    # If no mixture meets the tightened bounds of the multipliers, the bounds themselves count.
    if (probability @ violations[chosen] > MAX_MIXTURE_VIOLATION).any():
        chosen, probability = find_mixture(errors, asked)
    table = {"rounds": [records[t].rounds for t in chosen], "probability": probability}
    left = probability @ asked[chosen]
    if acting.stated is not None:
        rates = np.array([acting.stated.rows_of(records[t].functionals) for t in chosen])
        left = np.where(left > MAX_MIXTURE_VIOLATION, probability @ rates - acting.b, left)
    return pd.DataFrame(table), np.asarray(left)


def training_prefixes(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> list[Record]:
    """List the records of all prefixes on the training rows."""
    solver = fit.solver

    def statistics(upto: int) -> CellStatistics:
        return solver.lagrangian.at(scores.training(upto)).statistics()

    found = list_prefixes(solver, statistics(rounds), rounds)
    if fit.has_offset:  # The solver's records have the offset, which predict does not add.
        before = [r.rounds for r in found[:-1]]
        found[:-1] = [make_record(solver, statistics(upto), upto) for upto in before]
    return found


def _held_out_prefixes(fit: ConstrainedFit, scores: ModelScores, rounds: int) -> list[Record]:
    """List the records of all prefixes on the rows that moved the multipliers."""
    controller, rows = fit.measured.controller, fit.measured.rows
    assert controller is not None
    assert rows is not None
    solver = controller.solver
    statistics = solver.lagrangian.at(scores.held_out(rows, rounds)).statistics()
    *before, whole = list_prefixes(solver, statistics, rounds)
    # Each prefix was to meet the bounds that the iteration before it had aimed at.
    start = before[-1] if before else solver.history[0]
    whole = replace(whole, bounds=controller.bounds_after(start))
    rows.functionals_in[rounds] = whole.functionals
    return [*before, whole]


def describe_mixture(
    fit: ConstrainedFit, model: FinalModel, scores: ModelScores, final: Scores
) -> FinalModel:
    """Average rates, error and verdicts over the prefixes of a randomised classifier."""
    prefixes, rounds = model.prefixes, model.rounds
    assert prefixes is not None
    model, _ = add_record(fit, model, final)
    assert model.record is not None
    records = {r.rounds: r for r in training_prefixes(fit, scores, rounds)}
    functionals = _average({t: r.functionals for t, r in records.items()}, prefixes)
    errors = np.array([records[t].error for t in prefixes["rounds"]])
    error = float(prefixes["probability"].to_numpy() @ errors)
    record = replace(model.record, functionals=functionals, error=error)
    model = replace(model, record=record, functionals=functionals)
    # A set, since a second average would be taken of the first, which replaces one of its terms.
    for held in {*fit.evaluation_sets, *fit.reporting_rows}:
        held.functionals_in[rounds] = _average(held.functionals_in, prefixes)
    outcomes = [_outcome_of(held, model, scores) for held in fit.reporting_rows]
    if outcomes:
        outcome = outcomes[0].complete_by(outcomes[-1], model.layout.compiled)
        model = replace(model, outcome=outcome)
    if model.has_training_verdicts:
        lagrangian, cells = fit.solver.lagrangian, fit.problem.cells
        counts = _average_counts(
            prefixes,
            lambda upto: CellCounts.of_shares(
                cells, lagrangian.at(scores.training(upto)).statistics().predicted
            ),
        )
        model = model.with_training_intervals(*find_intervals(fit, model, counts))
    return model


def _outcome_of(held: EvaluationSet, model: FinalModel, scores: ModelScores) -> Outcome:
    """Average the decisions of a mixture on held-out rows."""
    assert model.prefixes is not None
    counts = _average_counts(
        model.prefixes, lambda upto: held.counts(held.decisions(scores.held_out(held, upto)))
    )
    return model.layout.lay_out(Outcome.of_mean(held, model.rounds, counts))


def _average_counts(prefixes: pd.DataFrame, counts: Callable[[int], CellCounts]) -> CellCounts:
    """Average the counted decisions of prefixes."""
    tables = [counts(rounds) for rounds in prefixes["rounds"]]
    share = prefixes["probability"].to_numpy()
    means = (
        np.tensordot(share, np.stack([getattr(table, name) for table in tables]), axes=1)
        for name in ("weight", "square", "count")
    )
    return CellCounts(*means)


def _average(functionals: Mapping[int, Float], prefixes: pd.DataFrame) -> Float:
    """Average rates by rounds over the prefixes of a mixture."""
    stacked = np.array([functionals[rounds] for rounds in prefixes["rounds"]])
    return np.asarray(prefixes["probability"].to_numpy() @ stacked)
