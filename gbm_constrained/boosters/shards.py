"""Parts that the classifiers of both libraries share where rows are on several machines."""

from __future__ import annotations

from dataclasses import replace
from typing import Any, ClassVar

from gbm_constrained.data.communicator import Machine
from gbm_constrained.data.fit_data import FitArguments


class ShardMixin:
    """A classifier under constraints whose training rows are on several machines.

    Attributes
    ----------
    machine : Machine
        The machine, with the numbers of its rows; it is set before ``fit``.
    """

    machine: Machine
    maximize: Any
    minimize: Any

    _local_class: ClassVar[type]
    _of_shard: ClassVar[tuple[str, ...]]  # Attributes that the classifier of one machine lacks.

    def _fit_constrained(self, adapter: Any, rows: FitArguments, /, *others: Any) -> None:
        """Refuse what needs rows of one machine, and fit together with the other machines."""
        for name in ("maximize", "minimize"):
            if (metric := getattr(self, name)) is not None:
                raise ValueError(
                    f"{name}={metric!r} is searched by the scores of all rows, which are on "
                    f"several machines: train on one machine, or bound rates by constraints=[...]."
                )
        if (booster := adapter.without_gradients()) is not None:
            raise ValueError(
                f"{booster} takes no gradients of constraints, which decisions must meet then by "
                f"the scores of all rows, and these are on several machines: take trees grown by "
                f"gradients, or train on one machine."
            )
        rows = replace(rows, machine=self.machine)
        super()._fit_constrained(adapter, rows, *others)  # type: ignore[misc]

    def to_local(self) -> Any:
        """Return the fitted classifier of one machine."""
        local = self._local_class(**self.get_params())  # type: ignore[attr-defined]
        kept = {name: value for name, value in vars(self).items() if name not in self._of_shard}
        vars(local).update(kept)
        return local
