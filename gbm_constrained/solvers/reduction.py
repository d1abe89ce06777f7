"""Options of the reductions that search decisions for a metric."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, Literal, TypeAlias, get_args

from gbm_constrained.data.validation import check_choice, check_integer
from gbm_constrained.solvers.base import check_positive

ReductionName: TypeAlias = Literal[
    "auto", "columns", "frank_wolfe", "gda", "ellipsoid", "bisection"
]
STEP_RULES = "line_search", "open_loop"
# The reduction that each option belongs to.
OWNERS = {"step": "frank_wolfe", "steps": "gda", "radius": "ellipsoid"}


@dataclass(frozen=True)
class Reduction:
    """A reduction of a metric to costs of decisions, with its own options.

    It is given as ``solver=`` beside ``maximize=`` or ``minimize=``, in the place of its name. See
    Narasimhan et al., "Consistent Multiclass Algorithms for Complex Metrics and Constraints",
    section 8, for the values of the paper's experiments.

    Parameters
    ----------
    name : {"columns", "frank_wolfe", "gda", "ellipsoid", "bisection"}
        The reduction.
    max_calls : int, default=200
        Most calls of the oracle in each search.
    step : {"line_search", "open_loop"}, default=None
        Of ``"frank_wolfe"``: the exact step, which is the default, or the paper's 2 / (t + 2).
    steps : sequence of (float, float), default=None
        Of ``"gda"``: steps of the copy of the confusion matrix and of the multipliers. Each pair
        is tried from the start, with its share of the calls. By default four pairs of the paper's
        grid.
    radius : float, default=None
        Of ``"ellipsoid"``: radius of the first ball of multipliers, 20 by default.

    Examples
    --------
    >>> from gbm_constrained import ConstrainedLGBMClassifier
    >>> from gbm_constrained.solvers import Reduction
    >>> solver = Reduction("gda", max_calls=2000, steps=[(0.1, 0.1)])
    >>> clf = ConstrainedLGBMClassifier(maximize="q_mean", solver=solver)
    """

    name: str
    max_calls: int = 200
    step: str | None = None
    steps: Sequence[tuple[float, float]] | None = None
    radius: float | None = None

    def check(self) -> None:
        """Refuse options of a wrong value, and those of another reduction."""
        check_choice("name of Reduction", self.name, get_args(ReductionName)[1:])
        check_integer("max_calls of Reduction", self.max_calls, 2)
        for option in self.settings:
            if self.name != OWNERS[option]:
                raise ValueError(
                    f"{option}={getattr(self, option)!r} is of Reduction({OWNERS[option]!r}), and "
                    f"this one is {self.name!r}: leave it out."
                )
        if self.step is not None:
            check_choice("step of Reduction", self.step, STEP_RULES)
        check_positive("radius of Reduction", self.radius, is_optional=True)
        if self.steps is not None:
            try:
                pairs = [tuple(pair) for pair in self.steps]
            except TypeError:
                pairs = []
            if not pairs or any(len(pair) != 2 for pair in pairs):
                raise ValueError(
                    f"steps of Reduction must be pairs of numbers, such as [(0.1, 0.1)], got "
                    f"{self.steps!r}."
                )
            for step in (step for pair in pairs for step in pair):
                check_positive("each of the steps of Reduction", step)

    @property
    def settings(self) -> dict[str, Any]:
        """The options of this reduction that were given."""
        given = {name: getattr(self, name) for name in OWNERS}
        return {name: value for name, value in given.items() if value is not None}
