"""Part of the adapters of both libraries for a black-box metric."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, ClassVar

import numpy as np

from gbm_constrained._dataframes import names_of
from gbm_constrained._typing import Float
from gbm_constrained.data.fit_data import FitArguments
from gbm_constrained.training.black_box_model import AdjustableModel


class BoosterBlackBoxAdapter:
    """Base of the ``AdjustableAdapter`` of one ``fit`` of a library.

    Parameters
    ----------
    adapter : BoosterAdapter
        The adapter of the fit.

    Attributes
    ----------
    models : mapping
        Access to the parameters of a booster, by the name of their space.
    """

    takes_offsets = True
    models: ClassVar[Mapping[str, Any]]

    def __init__(self, adapter: Any) -> None:
        self.adapter, self.model = adapter, adapter.model

    def check_adjustable(self, space: str) -> None:
        """Refuse constraints on the shape of trees, which their other values would not keep."""
        X = self.adapter.X
        names = names_of(X) or [f"f{j}" for j in range(getattr(X, "shape", np.shape(X))[1])]
        if bound := self.adapter.tree_limits(names).monotone:
            raise ValueError(
                f"space={space!r} gives trees other values, which need not be monotone in "
                f"{min(map(str, bound))!r}, as monotone_constraints asks: leave these out, "
                f"or bound rates by constraints=[...] without a black-box metric."
            )

    @property
    def arguments(self) -> dict[str, Any]:
        """Arguments of the parent's ``fit`` beside the rows."""
        return dict(self.adapter.arguments)

    def fit_plain(self, factor: Float | None = None) -> None:
        """Call the parent's own ``fit``, with the weight of each row multiplied by a factor."""
        self.adapter.fit_plain(factor)

    def fit_constrained(self, model: Any, rows: FitArguments) -> None:
        """Fit another classifier under its constraints, with the arguments of this fit."""
        given = {name: value for name, value in self.arguments.items() if value is not None}
        model.fit(
            self.adapter.X,
            self.adapter.y,
            sensitive_features=rows.sensitive_features,
            groups=rows.groups,
            **given,
        )

    def adjustable(self, space: str) -> AdjustableModel:
        """Give access to the parameters of the trained booster."""
        found: AdjustableModel = self.models[space](self.model)
        return found
