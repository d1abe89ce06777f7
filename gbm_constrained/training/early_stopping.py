"""Early stopping by the constraints on an evaluation set, after each boosting round.

The libraries stop when a metric no longer improves. Under constraints that may be long before the
constraints are met. ``early_stopping_on`` says how rounds are compared, on the last evaluation set
that is not the training rows:

- ``"metric"``: by the metric, as in the parent.
- ``"constraints"``: by the constraints. A round that meets all of them is as good as any before,
  and until one does, a smaller largest violation is better.
- ``"both"``: by the metric among the rounds that meet all constraints. Only these rounds are
  counted: training stops when the constraints are met and the metric has not improved in so many
  such rounds, and goes on where they are not met. Where no round meets the constraints, the one of
  least violation is kept.

Of constraints with priorities, those that come first count, which are given up for none.

The patience is the parent's own ``early_stopping_rounds``.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, field
from typing import Literal, TypeAlias

from gbm_constrained.constraints.base import ROUNDING

EarlyStoppingOn: TypeAlias = Literal["metric", "constraints", "both"]
EARLY_STOPPING_ON: tuple[EarlyStoppingOn, ...] = ("metric", "constraints", "both")


@dataclass
class StoppingByConstraints:
    """The best round so far by the constraints alone.

    Attributes
    ----------
    best : int
        The last round that met all constraints, else that of least violation; -1 before the first.
    violation : float
        Largest violation after the best round; zero or less where it met all constraints.
    has_met : bool
        Whether any round has met all constraints.
    """

    best: int = field(default=-1, init=False)
    violation: float = field(default=math.inf, init=False)
    has_met: bool = field(default=False, init=False)

    def update(self, round_: int, violation: float) -> bool:
        """Take the largest violation after a round, and return whether it met all constraints."""
        is_met = violation <= ROUNDING
        if is_met or (not self.has_met and violation < self.violation):
            self.best, self.violation = round_, violation
        self.has_met |= is_met
        return is_met
