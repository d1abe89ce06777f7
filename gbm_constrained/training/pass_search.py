"""Fold boosters grown anew, where constraints cost more errors than they should.

Multipliers move with the boosters. Where rounds are few they end on their way, and trees have
followed smaller ones for most of it; where constraints pull against each other, or one is hardly
moved until a whole group tips over, they swing. What decisions then meet the constraints may be
far worse than others that the same scores allow
(:mod:`gbm_constrained.decision.group_thresholds`). As long as the difference is more than
:data:`AFFORDABLE`, further passes are made, and the best is taken:

- A pass starts at the multipliers that are expected to end where they began, by the secant method
  on the *drift*, the distance from the start of a pass to the mean of its last quarter.
- Boosters without multipliers, whose threshold may be moved, are a candidate as well unless a
  solver was asked for: after two passes, or after one where constraints are of both kinds that
  follow.
- Constraints on labels and decisions of all rows, such as a bound on the selection rate, ask for
  another threshold, and comparisons of groups are to hold at that threshold. Multipliers for both
  would flatten the scores in between. So where both are there, further passes leave the former
  without multipliers and add the shift that they need to the log-odds that the objective aims at,
  by weights of the classes.

Measured on random constraints and tables (``benchmarks/sweep.py``): see docs/evidence.md.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass

import numpy as np

from gbm_constrained._typing import Float
from gbm_constrained.training.passes import Grown, Pass

# Times that fold boosters are grown with multipliers, at most.
PASSES = 5
# Passes after which boosters without multipliers are a candidate.
BEFORE_PLAIN = 2
# Errors by which the constraints may cost more than those of group thresholds.
AFFORDABLE = 0.01
# Exact iterations up to which a second pass begins twice as far as the first ended.
SHORT = 2.0
# Drifts that a pass begins beyond the one before, at most.
FARTHEST = 3.0


@dataclass(frozen=True)
class PassSearch:
    """Search for multipliers under which constraints cost no more errors than they should.

    Parameters
    ----------
    grow : callable
        Grows fold boosters, as :meth:`~gbm_constrained.training.growth.FoldGrowth.grow` does.
    measure : callable
        Makes the :class:`Pass` of grown boosters.
    path : float
        Length of the way that the boosters go, in exact iterations.
    has_time : callable
        Whether there is time for one more pass.
    may_be_plain : bool
        Whether boosters without multipliers are a candidate.
    plain : tuple of FoldBoosters and EvaluationSet, default=None
        Boosters without multipliers, if they have been grown.
    """

    grow: Callable[..., Grown]
    measure: Callable[[Grown], Pass]
    path: float
    has_time: Callable[[], bool]
    may_be_plain: bool
    plain: Grown | None = None

    def run(self, grown: Grown) -> Grown:
        """Find the best of some boosters and those of further passes."""
        best = self.measure(grown)
        least = best.needed
        for found in self._passes(best):
            if found.grown[0].rounds < grown[0].rounds:  # The pass was ended before its time.
                break
            least = float(np.fmin(least, found.needed))
            best = min(best, found, key=lambda p: p.cost)
            if not best.cost - least > max(AFFORDABLE, best.noise):
                break
        return best.grown

    def _passes(self, first: Pass) -> Iterator[Pass]:
        """Make one pass after the other, beginning with the given one."""
        yield first
        made, log_odds = [first], 0.0
        of_labels = first.of_labels
        is_mixed = of_labels.any() and not of_labels.all()
        for count in range(1, PASSES):
            if not self.has_time():
                return
            if self.may_be_plain and count == (1 if is_mixed else BEFORE_PLAIN):
                plain = self.measure(self.plain or self.grow(has_multipliers=False))
                yield plain
                if not self.has_time():
                    return
                if is_mixed and plain.is_broken(of_labels):
                    log_odds = plain.shift_for(of_labels)
                    start = np.where(of_labels, 0.0, made[-1].start + made[-1].drift)
                    made = []
            elif log_odds:
                log_odds += made[-1].shift_for(of_labels)
            if made:
                start = next_start([p.start for p in made], [p.drift for p in made], self.path)
                start = np.maximum(start, made[-1].pushed)
            fixed = of_labels if log_odds else None
            grown = self.grow(has_multipliers=True, start=start, fixed=fixed, log_odds=log_odds)
            made.append(self.measure(grown))
            yield made[-1]


def next_start(starts: Sequence[Float], drifts: Sequence[Float], path: float) -> Float:
    """Find multipliers that are expected to end where they begin, by the secant method.

    `starts` are those of the passes so far, and `drifts` how far multipliers moved from there.
    """
    start, drift = starts[-1], drifts[-1]
    if len(starts) == 1:
        return np.maximum(start + (1.0 + min(1.0, SHORT / path)) * drift, 0.0)
    moved = start - starts[-2]
    slope = np.divide(drift - drifts[-2], moved, out=np.zeros_like(moved), where=moved != 0.0)
    flattest = -1.0 / FARTHEST
    step = np.where(slope < flattest, -drift / np.minimum(slope, flattest), drift)
    return np.asarray(np.maximum(start + step, 0.0))
