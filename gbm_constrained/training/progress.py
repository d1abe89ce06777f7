"""Progress of a fit, on the standard error stream."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.training.callbacks import ConstraintState


class Progress:
    """A constraint callback that shows the progress of fits longer than a few seconds.

    One tqdm bar counts the rounds of all boosters of the fit, with the objective and the worst
    violation. Where tqdm is not installed, or a bar would fill a file, lines take its place.

    Parameters
    ----------
    unit : str
        Unit of the count, in the singular.
    lines : bool, default=False
        Whether lines are shown in any case, as beside lines of the library.
    """

    DELAY = 5.0  # Seconds before anything is shown, and between lines.

    def __init__(self, unit: str, *, lines: bool = False) -> None:
        self.unit = unit
        self._lines = lines or not _shows_bars()
        self._last = time.perf_counter()
        self._bar: Any = None

    def __call__(self, state: ConstraintState) -> None:
        """Show one outer iteration."""
        if self._bar is None and time.perf_counter() - self._last < self.DELAY:
            return
        if self._bar is None and not self._lines:
            self._bar = self._make_bar(state)
        if self._bar is None:
            self._last = time.perf_counter()
            left = "?"  # Before the first round there is nothing to estimate from.
            if state.done:
                left = _clock((state.total - state.done) * state.seconds / state.done)
            done = f"[{state.done}/{state.total} {self.unit}s, {left} left]"
            print(f"{done} {_summary(state)}", file=sys.stderr, flush=True)
            return
        self._bar.total = state.total
        self._bar.set_postfix_str(_summary(state), refresh=False)
        self._bar.update(state.done - self._bar.n)

    def _make_bar(self, state: ConstraintState) -> Any:
        try:
            from tqdm.auto import tqdm  # Its import takes longer than many a fit.
        except ImportError:
            self._lines = True
            return None
        bar = tqdm(
            total=state.total, initial=state.done, unit=self.unit, leave=False, dynamic_ncols=True
        )
        # The rounds before the bar appeared count for the time that is left.
        bar.initial, bar.start_t = 0, bar.start_t - state.seconds
        return bar

    def close(self) -> None:
        """Remove the bar; the next call makes a new one."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _shows_bars() -> bool:
    """Whether the standard error stream is a terminal, or that of a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _summary(state: ConstraintState) -> str:
    """Write rows, objective and worst violation of a state."""
    violations = state.violations.to_numpy()
    undefined = int(np.isnan(violations).sum())
    if undefined == violations.size:
        worst = "constraints undefined"
    else:
        j = int(np.nanargmax(violations))
        worst = "all constraints met"
        if undefined:
            worst = f"no constraint violated, {undefined} undefined"
        if violations[j] > ROUNDING:
            worst = f"worst violation {violations[j]:.4f} ({state.violations.index[j]})"
    return f"{state.rows}: objective {state.objective:.4f}, {worst}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
