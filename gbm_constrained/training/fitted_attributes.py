"""Attributes that a fit under constraints sets, and errors of reading them before."""

from __future__ import annotations

from typing import Any

from sklearn.exceptions import NotFittedError


class FittedAttribute:
    """Attribute of a classifier that is missing until a fit under constraints has set it.

    The value lives in the instance, where Python looks first. ``hasattr`` is false before the
    fit, for ``NotFittedError`` is an ``AttributeError``.
    """

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    def __get__(self, instance: Any, owner: type | None = None) -> Any:
        """Raise for an instance that holds no value."""
        if instance is None:
            return self
        kind = type(instance).__name__
        if {"constraint_report_", "blackbox_report_"} & vars(instance).keys():
            raise AttributeError(f"This {kind} has no {self.name}: its last fit has not set it.")
        raise NotFittedError(
            f"This {kind} has no {self.name} yet: call fit with constraints, which sets it."
        )


class ConstrainedFitAttributes:
    """The fitted attributes of all classifiers under constraints."""

    constraint_report_: Any = FittedAttribute()
    cost_report_: Any = FittedAttribute()
    group_report_: Any = FittedAttribute()
    history_: Any = FittedAttribute()
    multipliers_: Any = FittedAttribute()
    unseen_accuracy_: Any = FittedAttribute()
    feasibility_: Any = FittedAttribute()
    stopping_message_: Any = FittedAttribute()
    shift_: Any = FittedAttribute()
    group_shifts_: Any = FittedAttribute()
    prefixes_: Any = FittedAttribute()
    metric_report_: Any = FittedAttribute()
    mixture_: Any = FittedAttribute()
    achieved_rates_: Any = FittedAttribute()
    unseen_r2_: Any = FittedAttribute()
    adjustment_: Any = FittedAttribute()
    blackbox_report_: Any = FittedAttribute()
    blackbox_parameters_: Any = FittedAttribute()
