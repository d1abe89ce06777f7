"""Fold boosters without multipliers, then with them, while constraints cost more than they should.

The plain boosters of the folds come first. Their thresholds are always a candidate, and what
decisions of groups would cost on their scores
(:mod:`gbm_constrained.decision.group_thresholds`) says what the constraints should cost. Where
some threshold costs no more than that by :data:`AFFORDABLE`, or by sampling error, the fit goes on
without multipliers. Otherwise boosters are grown under multipliers. Where rounds are few
these end on their way, and trees have followed smaller ones for most of it; where constraints pull
against each other, or one is hardly moved until a whole group tips over, they swing. So a further
pass is made as long as the difference is more than :data:`AFFORDABLE` and the fit stays within
:data:`BUDGET`.

Multipliers start at :data:`START` times the errors that a unit of each constraint costs group
thresholds on the plain scores. Constraints on scores alone, such as pair rates, have no such
prices, and may have one pass more. Neither have those on the decisions of another model or on some
of the rows, which are to be met at any price: while the last pass misses one that group thresholds
meet, twice the budget may be spent. A further pass starts at the mean of the multipliers in the
last quarter of the one before.

Constraints on labels and decisions of all rows, such as a bound on the selection rate, ask for
another threshold, and comparisons of groups are to hold at that threshold. Multipliers for both
would flatten the scores in between. So where both are there and the plain boosters break the
former, these have no multipliers, and the shift that they need is added to the log-odds that the
objective aims at, by weights of the classes.

The set of boosters of least cost is taken, the first of equals. Sets whose best decision meets all
constraints on decisions that compare no groups come before the others.

Measured on random constraints and tables (``benchmarks/sweep.py``): see docs/evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from dataclasses import dataclass

import numpy as np

from gbm_constrained.training.passes import Grown, Pass

# Plain fits that fold boosters and the model take together, at most, by the rows of their trees.
# A set of fold boosters counts as one at least.
BUDGET = 8.0
# Errors by which the constraints may cost more than those of group thresholds.
AFFORDABLE = 0.005
# Multipliers of the first pass over the prices of group thresholds. A proxy is half as steep as
# the loss at the decision, and features tell groups apart only in part.
START = 4.0


@dataclass(frozen=True)
class PassSearch:
    """Search for multipliers under which constraints cost no more errors than they should.

    Parameters
    ----------
    grow : callable
        Grows fold boosters, as :meth:`~gbm_constrained.training.growth.FoldGrowth.grow` does.
    measure : callable
        Makes the :class:`Pass` of grown boosters.
    has_time : callable
        Whether there is time for one more pass.
    is_enough : callable
        Whether a :class:`Pass` without multipliers needs no other one beside it.
    share : float, default=1
        Rows that the boosters of a pass are trained on, over those of the model.
    may_be_plain : bool, default=True
        Whether boosters without multipliers are a candidate.
    """

    grow: Callable[..., Grown]
    measure: Callable[[Grown], Pass]
    has_time: Callable[[], bool]
    is_enough: Callable[[Pass], bool]
    share: float = 1.0
    may_be_plain: bool = True

    def run(self) -> Grown:
        """Find the best of the passes that are made."""
        best: Pass | None = None
        least, rounds = np.inf, 0
        for found in self._passes():
            if best is not None and found.grown[0].rounds < rounds:
                break  # The pass was ended before its time.
            rounds, least = found.grown[0].rounds, float(np.fmin(least, found.needed))
            best = found if best is None else min(best, found, key=lambda p: (p.misses, p.cost))
            is_plain = not found.grown[0].has_multipliers
            if is_plain and self.is_enough(found):
                break
            is_costly = best.cost - least > max(AFFORDABLE, best.noise)
            if not (is_costly or is_plain or is_open(best)):
                break
        assert best is not None
        return best.grown

    def _passes(self) -> Iterator[Pass]:
        """Make one pass after the other, within the budget."""
        plain: Pass | None = None
        share = max(self.share, 1.0)  # Few rows are no reason for many passes.
        spent = 1.0 + share
        if self.may_be_plain:
            plain = self.measure(self.grow(has_multipliers=False))
            yield plain
            if plain.prices.any():  # Without prices, a pass has to find where the next one starts.
                spent += share
            if not self.has_time():
                return
        start, of_labels, log_odds = None, np.zeros(0, dtype=bool), 0.0
        if plain is not None:  # Under constraints on labels alone, thresholds have done the rest.
            of_labels = plain.of_labels
            start = np.where(of_labels, 0.0, START * plain.prices)
            if of_labels.any() and not of_labels.all() and plain.is_broken(of_labels):
                log_odds = plain.shift_for(of_labels)
        made = list[Pass]()
        while not made or (
            spent + share <= (2.0 if is_open(made[-1]) else 1.0) * BUDGET and self.has_time()
        ):
            if made:
                spent += share
                if log_odds:
                    log_odds += made[-1].shift_for(of_labels)
                start = made[-1].end
            fixed = of_labels if log_odds else None
            grown = self.grow(has_multipliers=True, start=start, fixed=fixed, log_odds=log_odds)
            made.append(self.measure(grown))
            yield made[-1]


def is_open(found: Pass) -> bool:
    """Whether a pass misses strict constraints that thresholds of groups meet on its scores."""
    return found.misses and bool(np.isfinite(found.needed))
