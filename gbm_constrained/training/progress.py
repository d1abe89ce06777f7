"""Progress of a fit, on the standard error stream."""

from __future__ import annotations

import sys
import time
from typing import Any

import numpy as np

from gbm_constrained.constraints.base import ROUNDING
from gbm_constrained.training.callbacks import ConstraintState


class Progress:
    """Progress of a fit that takes longer than a few seconds; itself a callback.

    One tqdm bar over all boosters of the fit, with the objective and the worst violation; where
    tqdm is not installed, or a bar would fill a file, a line every few seconds.

    Parameters
    ----------
    unit : str
        What is counted, in the singular.
    lines : bool, default=False
        Lines in any case: where the library prints lines of its own, which a bar would run into.
    """

    DELAY = 5.0  # seconds

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
            left = "?"  # before the first round, seconds tell nothing of those to come
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
            from tqdm.auto import tqdm  # here, for importing it takes longer than many a fit
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
        """Take the bar away; the next call makes it anew."""
        if self._bar is not None:
            self._bar.close()
            self._bar = None


def _shows_bars() -> bool:
    """Whether the standard error stream is a terminal, or that of a notebook."""
    return "ipykernel" in sys.modules or (sys.stderr is not None and sys.stderr.isatty())


def _summary(state: ConstraintState) -> str:
    """Objective and worst violation, and which rows they are of."""
    beyond = state.violations.to_numpy()
    undefined = int(np.isnan(beyond).sum())
    if undefined == beyond.size:
        worst = "rules undefined"
    else:
        j = int(np.nanargmax(beyond))
        worst = f"no rule violated, {undefined} undefined" if undefined else "all rules met"
        if beyond[j] > ROUNDING:
            worst = f"worst violation {beyond[j]:.4f} ({state.violations.index[j]})"
    return f"{state.rows}: objective {state.objective:.4f}, {worst}"


def _clock(seconds: float) -> str:
    minutes, seconds = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02d}:{seconds:02d}" if hours else f"{minutes}:{seconds:02d}"
