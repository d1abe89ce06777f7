"""Rules that a moved threshold meets, without multipliers.

Rules on labels and decisions of all rows, such as the bound of a miss rate, ask for nothing that
the scores of the unconstrained model lack: the best decisions under them compare the probability
of a class with a threshold, or probabilities times a factor for each class (Neyman and Pearson,
1933; for linear rates Narasimhan et al., "Consistent multiclass algorithms for complex
performance measures", 2015), which the loss of all rows estimates. Multipliers weigh the rows of a
rule against the others. That is worth something where trees are too few or too small for the
whole: they then go where the rule puts the decision. But weighed rows that are learnt by heart
say no more than they did, multipliers rise until their rate is met out of fold, and what the
other rows say is lost.

So with ``solver="auto"`` the boosters of the folds are first grown without multipliers, and their
threshold is moved as the rules ask. If that meets the rules at few further errors
(:data:`MAX_ERROR_RATIO`), and the rate of a rule that was broken is better on their own rows than
out of fold by more than :data:`MEMORISED_SHARE` of the room that its bound leaves, they know these
rows by heart, and weights would make that worse: the model is trained without. In all other cases,
and of several classes (whose biases are no more than searched for), boosters are grown with
multipliers as well, and the model is trained as those that make fewer errors out of fold,
violations having their price. Rates over plenty of rows
(:data:`gbm_constrained.training.problem.MIN_ROWS_FOR_HOLDOUT`) are not known by heart soon: under
rules on these alone there are multipliers only, at half the time.

Measured on validation rows of training parts (``benchmarks/unseen.py thresholds``): see
docs/evidence.md.
"""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Float
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.decision.evaluation_set import EvaluationSet, ScoredRows
from gbm_constrained.decision.guarantee_checks import smallest_values
from gbm_constrained.decision.guarantees import conformal_bounds
from gbm_constrained.decision.prefix_choice import (
    Prefixes,
    choose_prefix,
    standard_errors,
    violation_penalty,
)
from gbm_constrained.decision.rule import Choice, shift_scores
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import functionals_of
from gbm_constrained.training.fold_boosters import FoldBoosters
from gbm_constrained.training.options import SolverOptions

# Share of the room a bound leaves, by which own rows are better than unseen ones.
MEMORISED_SHARE = 0.3
MAX_ERROR_RATIO = 2.0  # Times as many errors as without a threshold.


def may_do_without_multipliers(
    options: SolverOptions, compiled: LinearConstraints, has_many_rows: bool
) -> bool:
    """Whether multipliers may be done without: what ``solver`` says, the rules, and the rows.

    Parameters
    ----------
    options : SolverOptions
        What was asked.
    compiled : LinearConstraints
        The constraints that bind.
    has_many_rows : bool
        Whether every rate is taken over plenty of rows.
    """
    if options.solver != "auto":
        return options.solver == "threshold"
    binding = [compiled.constraints[i] for i in np.unique(compiled.owner)]
    return (
        not has_many_rows
        and options.iterate in ("last", "best")
        and all(rule.is_of_labels for rule in binding)
    )


def choice_by(boosters: FoldBoosters, unseen: EvaluationSet, options: SolverOptions) -> Choice:
    """Prefix and shift that boosters of the folds would choose by the rows they hold out."""
    prefixes = Prefixes(boosters.rounds, options.rounds_per_iteration, options.iterate == "best")
    scored = ScoredRows(unseen, boosters.held_margin)
    return choose_prefix(scored, prefixes, found=unseen.choices)


def is_cheap(boosters: FoldBoosters, unseen: EvaluationSet, choice: Choice) -> bool:
    """Whether a threshold of two classes meets all rules at few further errors."""
    own = unseen.error(unseen.decisions(boosters.held_margin(boosters.rounds)))
    met = unseen.cells.classes.size == 2 and choice.violation == 0.0
    return met and choice.error <= MAX_ERROR_RATIO * own


def as_certified(
    unseen: EvaluationSet,
    certification: EvaluationSet,
    boosters: FoldBoosters,
    choice: Choice,
    options: SolverOptions,
) -> EvaluationSet:
    """Rows with the bounds that their rates would have to meet for a guarantee, about.

    Parameters
    ----------
    unseen : EvaluationSet
        The rows that boosters of the folds hold out.
    certification : EvaluationSet
        Those that are kept for certificates.
    boosters : FoldBoosters
        The boosters.
    choice : Choice
        What they would choose without a guarantee: certificates are as sure as rates there are.
    options : SolverOptions
        Which guarantee it is.
    """
    compiled = unseen.compiled
    if options.guarantee == "expected":
        b = conformal_bounds(certification.compiled, certification.cells)
    else:
        margin = shift_scores(boosters.held_margin(choice.rounds), choice.shift)
        reached = functionals_of(compiled, unseen.counts(unseen.decisions(margin)))
        spread = standard_errors(certification.compiled, certification.cells, reached)
        b = compiled.b - norm.isf(options.delta) * spread
    tighter = np.where(compiled.is_known, np.minimum(b, compiled.b), compiled.b)
    return EvaluationSet(unseen.cells, replace(compiled, b=tighter), unseen.source)


def cost_of(choice: Choice, boosters: FoldBoosters, certified: EvaluationSet | None) -> float:
    """Errors of a prefix at the shift that meets the bounds asked, or with a price of violations.

    Parameters
    ----------
    choice : Choice
        The prefix, and its shift without a guarantee.
    boosters : FoldBoosters
        The boosters that it is of.
    certified : EvaluationSet or None
        The rows that they hold out, with the bounds of a guarantee if one was asked for.
    """
    if certified is None:
        return choice.loss
    margin = boosters.held_margin(choice.rounds)
    search = ShiftSearch(margin, certified.cells, certified.compiled)
    found = search.find(penalty=violation_penalty(certified.cells))
    return found.error if found.is_feasible else found.loss


def is_memorised(unseen: EvaluationSet, broken: Float, optimism: Float) -> bool:
    """Whether boosters know the rows of rules by heart that they break without a threshold.

    Parameters
    ----------
    unseen : EvaluationSet
        The rows that they hold out.
    broken : ndarray of shape (m,)
        Violations of the rules there, with no threshold moved.
    optimism : ndarray of shape (m,)
        How much higher rows of constraints are on these rows than on the boosters' own.
    """
    room = unseen.compiled.b - smallest_values(unseen.compiled)
    return bool((optimism > MEMORISED_SHARE * room)[broken > ROUNDING].any())
