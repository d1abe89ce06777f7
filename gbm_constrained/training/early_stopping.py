"""Early stopping by what the returned model will do on an evaluation set, round by round.

The libraries stop when a metric no longer improves. Under constraints that may be long before the
constraints are met. ``early_stopping_on`` says how rounds are compared, on the last evaluation set
that is not the training rows:

- ``"metric"``: by the metric, as in the parent.
- ``"constraints"``: by the objective plus the price of the violation that is left
  (:func:`find_merit`). Of equal rounds the last one is best.
- ``"both"``: by the metric among the rounds that leave no violation. Only these rounds are
  counted: training stops when the constraints are met and the metric has not improved in so many
  such rounds, and goes on where they are not met. Where no round meets the constraints, the one of
  the least criterion is kept.

Where the decision of the model is chosen when training is over, rounds are compared under the best
decision on their scores. Scores of few rounds decide hardly any row as a rare class, and so meet
constraints that they no longer meet under that decision.

Of constraints with priorities, those that come first count as a violation, which are given up for
none.

The patience is the parent's own ``early_stopping_rounds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, NamedTuple, TypeAlias

import numpy as np
from scipy.special import logsumexp, softmax

from gbm_constrained._typing import Array
from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.data.cells import Cells
from gbm_constrained.decision.choose import VIOLATION_PRICE
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.prefix_choice import FEW_SPLITS, find_at_a_price
from gbm_constrained.decision.priorities import PriorityLevels
from gbm_constrained.decision.rule import shift_scores
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.decision.threshold_search import ShiftSearch
from gbm_constrained.problem.row_owners import find_first

EarlyStoppingOn: TypeAlias = Literal["metric", "constraints", "both"]
# Steps towards the shift of least log loss, at most, and the largest one that ends them, in
# log-odds.
MOST_STEPS, SMALL_STEP = 10, 0.01


class RoundMerit(NamedTuple):
    """What an evaluation set says of the model after a round.

    Parameters
    ----------
    criterion : float
        The objective plus the price of the violation that is left.
    violation : float
        Largest violation of the constraints that come first; not positive where they hold.
    """

    criterion: float
    violation: float


def find_merit(rows: EvaluationSet, margin: Array, *, is_shifted: bool) -> RoundMerit:
    """Compare rounds of a classifier by their log loss, and by the violations of their decisions.

    With `is_shifted`, decisions are those of the best shift of the scores, which the returned
    model gets when training is over, and the log loss does not depend on a shift either.
    Multipliers weigh the classes, which would count as a loss otherwise.
    """
    cells, compiled, shifted = rows.cells, rows.compiled, margin
    if is_shifted:
        search = ShiftSearch(margin, cells, compiled, most_splits=FEW_SPLITS)
        shifted = shift_scores(margin, find_at_a_price(search).value)
    counts = rows.counts(rows.decisions(shifted))
    violations = rows.violations(margin, counts)
    told = np.maximum(violations - standard_errors(compiled, counts), 0.0)
    paid = VIOLATION_PRICE * PriorityLevels.of(compiled, cells).price_rows(told)
    largest = violations[find_first(compiled)].max(initial=-np.inf)
    loss = _log_loss(cells, margin, is_shifted=is_shifted)
    return RoundMerit(loss + float(paid), float(largest))


def _log_loss(cells: Cells, margin: Array, *, is_shifted: bool) -> float:
    """Compute the log loss of the labelled rows, of scores or of their best shift.

    The best shift predicts each class as often as it is there, and is approached by the odds
    between the two.
    """
    inside, add = cells.labelled[cells.codes], cells.communicator.sum
    labels = cells.labels[cells.codes[inside]]
    scores = np.asarray(margin[inside], dtype=np.float64)
    if scores.ndim == 1:
        scores = np.column_stack([np.zeros(scores.size), scores])
    own = cells.rows.weight
    weight = cells.class_weight[labels] * (1.0 if own is None else own[inside])
    share = add(np.bincount(labels, weight, cells.classes.size).astype(np.float64))
    seen = share > 0
    for _ in range(MOST_STEPS if is_shifted else 0):
        step = np.log(share[seen] / add(weight @ softmax(scores, axis=1))[seen])
        scores[:, seen] += step
        if np.ptp(step) < SMALL_STEP:
            break
    loss = logsumexp(scores, axis=1) - scores[np.arange(labels.size), labels]
    return float(add(np.array([weight @ loss]))[0] / share.sum())


@dataclass
class StoppingByConstraints:
    """The best round so far by the criterion.

    Attributes
    ----------
    best : int
        The last round of the least criterion; -1 before the first.
    criterion : float
        The criterion of that round.
    has_met : bool
        Whether any round has met all constraints.
    """

    best: int = field(default=-1, init=False)
    criterion: float = field(default=math.inf, init=False)
    has_met: bool = field(default=False, init=False)

    def update(self, round_: int, merit: RoundMerit) -> bool:
        """Take the merit of a round, and return whether the round met all constraints."""
        if merit.criterion <= self.criterion + ROUNDING:
            self.best, self.criterion = round_, merit.criterion
        is_met = merit.violation <= ROUNDING
        self.has_met |= is_met
        return is_met
