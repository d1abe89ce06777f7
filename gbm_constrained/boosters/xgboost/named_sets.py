"""Names of evaluation sets, in place of those that XGBoost's classifiers give by position."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Any

import xgboost as xgb


def numbered(i: int) -> str:
    """Name the evaluation set at a position as XGBoost's classifiers do."""
    return f"validation_{i}"


class _Named(xgb.callback.TrainingCallback):
    """Callback of the user that sees evaluation sets by their own names."""

    def __init__(self, callback: Any, names: Sequence[str]) -> None:
        super().__init__()
        self.callback, self.names = callback, names

    def _translate(self, log: Any) -> Any:
        given = {numbered(i): name for i, name in enumerate(self.names)}
        return {given.get(name, name): values for name, values in log.items()}

    def before_training(self, model: Any) -> Any:
        """Hand over the booster."""
        return self.callback.before_training(model)

    def after_training(self, model: Any) -> Any:
        """Hand over the booster."""
        return self.callback.after_training(model)

    def before_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Hand over the values by name; true ends training."""
        return bool(self.callback.before_iteration(model, epoch, self._translate(evals_log)))

    def after_iteration(self, model: Any, epoch: int, evals_log: Any) -> bool:
        """Hand over the values by name; true ends training."""
        return bool(self.callback.after_iteration(model, epoch, self._translate(evals_log)))


def name_sets(callbacks: Sequence[Any], names: Sequence[str]) -> list[Any]:
    """Let callbacks see evaluation sets by name.

    Those that look at no evaluation set, and early stopping, stay what they are:
    see :func:`stopping_by_name`. What is no callback stays for the classifier to refuse.
    """
    known = (xgb.callback.EarlyStopping, xgb.callback.LearningRateScheduler)
    return [
        _Named(c, names)
        if isinstance(c, xgb.callback.TrainingCallback) and not isinstance(c, known)
        else c
        for c in callbacks
    ]


@contextmanager
def stopping_by_name(callbacks: Sequence[Any], names: Sequence[str]) -> Iterator[None]:
    """Let early stopping find the evaluation sets that it names, while a classifier is fitted.

    Raises
    ------
    ValueError
        If there is no evaluation set of the name.
    """
    stoppers = [c for c in callbacks if isinstance(c, xgb.callback.EarlyStopping)]
    asked = [stopper.data for stopper in stoppers]
    if unknown := [name for name in asked if name and name not in names]:
        raise ValueError(
            f"EarlyStopping has data_name={unknown[0]!r}, and the evaluation sets are called "
            f"{list(names)}: give one of these, or None for the last."
        )
    for stopper, name in zip(stoppers, asked, strict=True):
        if name:
            stopper.data = numbered(list(names).index(name))
    try:
        yield
    finally:
        for stopper, name in zip(stoppers, asked, strict=True):
            stopper.data = name
