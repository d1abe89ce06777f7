"""Constraints that a moved threshold meets, without multipliers.

Constraints on labels and decisions of all rows, such as the bound of a miss rate, ask for nothing
that the scores of the unconstrained model lack. The best decisions under them compare the
probability of a class with a threshold, or probabilities times a factor for each class (Neyman and
Pearson, 1933; for linear rates Narasimhan et al., "Consistent multiclass algorithms for complex
performance measures", 2015), which the loss of all rows estimates. Multipliers weigh the rows of a
constraint against the others. Weights help where trees are too few or too small for the whole:
trees then go where the constraint puts the decision. But weighed rows that are memorised carry no
more information than before: multipliers rise until their rate is met out of fold, and the
information of the other rows is lost.

With ``solver="auto"`` the fold boosters are therefore first grown without multipliers, and their
threshold is moved as the constraints ask. The model is trained without multipliers if that meets
the constraints and the boosters have memorised the rows of a violated one: its rate is better on
their own rows than out of fold by more than :data:`MEMORISED_SHARE` of the room that its bound
leaves. Nor may the threshold make more errors than deciding all rows alike. In all other cases,
and of several classes (whose biases are no more than searched for), boosters are grown with
multipliers as well, and the model is trained as those that make fewer errors out of fold,
violations having their price.

Measured on validation rows of training parts (``benchmarks/unseen.py thresholds``): see
docs/evidence.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantee_checks import smallest_values
from gbm_constrained.decision.guarantees import conformal_bounds
from gbm_constrained.decision.prefix_choice import choose_prefix
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.row_owners import find_first
from gbm_constrained.statistics.counts import CellCounts
from gbm_constrained.training.fold_boosters import FoldBoosters
from gbm_constrained.training.options import SolverOptions

# Share of the room a bound leaves, by which rates of own rows are better than those of others.
MEMORISED_SHARE = 0.3


def choose_by_held_out(
    grown: tuple[FoldBoosters, EvaluationSet], options: SolverOptions
) -> Choice:
    """Choose the prefix and shift of fold boosters by the rows that they hold out."""
    boosters, held_out = grown
    prefixes = options.prefixes(boosters.rounds)
    scored = ScoredRows(held_out.credible, boosters.held_margin)
    return choose_prefix(scored, prefixes, found=scored.rows.choices)


def tighten_bounds(
    grown: tuple[FoldBoosters, EvaluationSet],
    certification: EvaluationSet,
    choice: Choice,
    options: SolverOptions,
) -> EvaluationSet:
    """Give held-out rows the bounds that their rates would have to meet for a guarantee, about.

    `choice` is that without a guarantee: certificates are as sure as its rates allow.
    """
    boosters, held_out = grown
    compiled = held_out.compiled
    if options.guarantee == "expected":
        b = conformal_bounds(certification.compiled, certification.cells)
    else:
        margin = shift_scores(boosters.held_margin(choice.rounds), choice.shift)
        reached = held_out.counts(held_out.decisions(margin)).shares
        counts = CellCounts.of_shares(certification.cells, reached)
        errors = standard_errors(certification.compiled, counts)
        b = compiled.b - np.where(find_first(compiled), norm.isf(options.delta) * errors, 0.0)
    tighter = np.where(compiled.is_known, np.minimum(b, compiled.b), compiled.b)
    return EvaluationSet(held_out.cells, replace(compiled, b=tighter), held_out.source)


def cost_of(choice: Choice, boosters: FoldBoosters, tightened: EvaluationSet | None) -> float:
    """Errors of a prefix at the shift that meets the bounds, or with a price of violations.

    `tightened` are the held-out rows with the bounds of a guarantee; None without a guarantee.
    """
    if tightened is None:
        return choice.loss
    margin = boosters.held_margin(choice.rounds)
    search = ShiftSearch(margin, tightened.cells, tightened.compiled)
    found = search.find(penalty=VIOLATION_PRICE)
    return found.error if found.is_feasible else found.loss


def is_memorised(held_out: EvaluationSet, violations: Float, optimism: Float) -> bool:
    """Whether boosters have memorised the rows of constraints that they violate by themselves.

    `optimism` says how much higher rows of constraints are on held-out rows than on own rows.
    """
    room = held_out.compiled.b - smallest_values(held_out.compiled)
    return bool((optimism > MEMORISED_SHARE * room)[violations > ROUNDING].any())
