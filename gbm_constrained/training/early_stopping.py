"""Early stopping that looks at the rules: how an evaluation set stands with them after each round.

The libraries stop when a metric no longer improves. Under constraints that may be long before the
rules hold. ``early_stopping_on`` says what a round is judged by, on the last evaluation set that
is not the training rows:

- ``"metric"``: by the metric, as in the parent.
- ``"constraints"``: by the rules. A round that meets all of them is as good as any before, and
  until one does, a smaller largest violation is better.
- ``"both"``: by the metric among the rounds that meet all rules. Only these rounds are counted:
  training stops when the rules hold and the metric has not improved in so many such rounds, and
  goes on where they do not hold. Where no round meets the rules, the one of least violation is
  kept.

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
class RulesWatch:
    """Rounds judged by the rules alone.

    Attributes
    ----------
    best : int
        The round that is best so far: the last that met all rules, else the one that violated
        them least; -1 before the first.
    least : float
        Largest violation after it, zero or less where it met them.
    met : bool
        Whether any round has met all rules.
    """

    best: int = field(default=-1, init=False)
    least: float = field(default=math.inf, init=False)
    met: bool = field(default=False, init=False)

    def look(self, round_: int, violation: float) -> bool:
        """Take the largest violation after a round; tell whether it met all rules."""
        holds = violation <= ROUNDING
        if holds or (not self.met and violation < self.least):
            self.best, self.least = round_, violation
        self.met |= holds
        return holds


def refuse_early_stopping(
    on: EarlyStoppingOn,
    *,
    patience: bool,
    parameter: str,
    evaluation_set: bool,
    evaluated: bool,
) -> None:
    """Refuse early stopping where it lacks something; before training.

    Parameters
    ----------
    on : {"metric", "constraints", "both"}
        What was asked.
    patience : bool
        Whether the parent was told after how many rounds to stop.
    parameter : str
        How it is told.
    evaluation_set : bool
        Whether there is one that is not the training rows.
    evaluated : bool
        Whether there is any, and a metric of it.
    """
    if on == "metric":
        if patience and not evaluated:
            raise ValueError(
                f"Early stopping ({parameter}) looks at a metric of an evaluation set, and there "
                f"is none: give eval_set=[(X_valid, y_valid)], or leave early stopping out."
            )
        return
    asked = f"early_stopping_on={on!r}"
    if not patience:
        raise ValueError(
            f"{asked} does not say after how many rounds without improvement to stop: give "
            f"{parameter}, or leave early_stopping_on at 'metric'."
        )
    if not evaluation_set:
        raise ValueError(
            f"{asked} measures the constraints on the last evaluation set, and there is none "
            f"besides the training rows: give eval_set=[(X_valid, y_valid)]."
        )
