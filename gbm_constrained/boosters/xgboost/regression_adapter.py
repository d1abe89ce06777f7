"""Adapter that drives XGBoost's own fit of a regressor by a solver.

XGBoost moves the leaves of its absolute and quantile losses to medians and quantiles, whatever the
gradients were. Such a model is therefore trained as one of the squared error, by gradients of the
solver, and takes the name of its own objective at the end.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import xgboost as xgb

from gbm_constrained._typing import Array
from gbm_constrained.boosters.base import Trained
from gbm_constrained.boosters.xgboost.adapter import XGBoostAdapter
from gbm_constrained.boosters.xgboost.callbacks import Observer
from gbm_constrained.boosters.xgboost.checks import (
    check_parameters,
    find_own_booster,
    refuse_dart_model,
    warn_of_cut_names,
)
from gbm_constrained.boosters.xgboost.kernel_options import choose_array_module
from gbm_constrained.boosters.xgboost.native import find_intercept, open_booster
from gbm_constrained.boosters.xgboost.rescaling import rescale
from gbm_constrained.data.targets import TargetData, check_targets
from gbm_constrained.data.validation import check_features, check_integer, preserve_random_state
from gbm_constrained.decision.affine import Affine
from gbm_constrained.problem.regression_objectives import (
    MAX_DELTA_STEP,
    ObjectiveName,
    RegressionObjective,
    check_parameter,
)
from gbm_constrained.training.options import check_number
from gbm_constrained.training.problem import LibrarySettings

SQUARED = "reg:squarederror"
NAMES: dict[str, ObjectiveName] = {
    "reg:squarederror": "squared",
    "reg:pseudohubererror": "pseudo_huber",
    "reg:absoluteerror": "absolute",
    "reg:quantileerror": "quantile",
    "count:poisson": "poisson",
    "reg:tweedie": "tweedie",
    "reg:gamma": "gamma",
}
# Objectives whose leaves XGBoost moves after it has grown them.
MOVES_LEAVES = ("reg:absoluteerror", "reg:quantileerror")
# Names and defaults of the parameters of objectives.
PARAMETERS: dict[str, tuple[str, float | None]] = {
    "reg:pseudohubererror": ("huber_slope", 1.0),
    "reg:quantileerror": ("quantile_alpha", None),
    "reg:tweedie": ("tweedie_variance_power", 1.5),
}
METRICS = {"reg:absoluteerror": "mae", "reg:quantileerror": "quantile"}  # by default


def read_objective(model: Any) -> tuple[RegressionObjective, dict[str, Any]]:
    """Read the objective of a regressor, and its name and parameters as XGBoost takes them.

    Raises
    ------
    ValueError
        If constraints cannot be added to the objective, or its parameter is missing.
    """
    name = SQUARED if model.objective is None else model.objective
    if not isinstance(name, str) or name not in NAMES:
        raise ValueError(
            f"objective={name!r} cannot be trained under constraints: use one of {[*NAMES]}."
        )
    more = getattr(model, "kwargs", None) or {}
    native: dict[str, Any] = {"objective": name}
    parameter = np.nan
    if name in PARAMETERS:
        key, default = PARAMETERS[name]
        given = more.get(key, getattr(model, key, None))
        given = default if given is None else given
        values = np.ravel(given) if given is not None else np.zeros(0)
        if values.size != 1:
            raise ValueError(
                f"objective={name!r} needs {key}= with one number under constraints, got "
                f"{given!r}: a fit under constraints has one prediction for each row."
            )
        parameter = native[key] = check_number(key, values[0])
        check_parameter(NAMES[name], key, parameter)
    if (outputs := more.get("num_target", 1)) != 1:
        raise ValueError(
            f"num_target={outputs!r} asks for several predictions of each row, and a fit under "
            f"constraints has one: leave it out."
        )
    step = getattr(model, "max_delta_step", None)
    step = MAX_DELTA_STEP if step is None else check_number("max_delta_step", step)
    return RegressionObjective(NAMES[name], parameter, step), native


class XGBoostRegressionAdapter(XGBoostAdapter):
    """``RegressionAdapter`` of one ``fit`` of XGBoost.

    Attributes
    ----------
    objective : RegressionObjective
        The objective.
    own_objective : dict
        Its name and parameters, as XGBoost takes them.
    """

    objective: RegressionObjective
    own_objective: dict[str, Any]

    def check_parameters(self) -> None:
        model = self.model
        self.objective, self.own_objective = read_objective(model)
        check_parameters(model)
        check_features(self.X)
        warn_of_cut_names(self.X)
        check_targets(self.y)
        check_integer("n_estimators", model.get_num_boosting_rounds(), 1)
        if (booster := find_own_booster(model)) is not None:
            raise ValueError(
                f"{booster} cannot be trained under constraints: use booster='gbtree', without "
                f"dropped trees."
            )
        if (continued := open_booster(self.arguments["xgb_model"])) is not None:
            refuse_dart_model(continued)

    def settings(self) -> LibrarySettings:
        model = self.model
        with preserve_random_state(model):
            native = model.get_xgb_params()
        choose_array_module(native.get("device"), model.verbosity)
        rate = native.get("eta", model.learning_rate)
        return LibrarySettings(
            check_number("learning_rate", 0.3 if rate is None else rate),
            model.get_num_boosting_rounds(),
            random_state=model.random_state,
            kernel={"dtype": np.float32, "objective": self.objective},
            # Leaves cannot scale the starting scores that are part of a row's score.
            has_scale=self.arguments["base_margin"] is None
            and self.arguments["base_margin_eval_set"] is None,
            tree_limits=self.tree_limits,
        )

    def check_labels(self) -> None:
        """Accept all targets, which are numbers."""

    def labels_of_rows(self) -> Array:
        data = self.fit.data
        assert isinstance(data, TargetData)
        return data.targets

    def native_objective(self) -> dict[str, Any]:
        return self.own_objective

    def driven_objective(self) -> dict[str, Any]:
        native = self.native_objective()
        return {"objective": SQUARED} if native["objective"] in MOVES_LEAVES else native

    def find_intercept(self, native: dict[str, Any]) -> Any:
        data = self.fit.data
        n = data.combined.sizes[0]
        return find_intercept(self.labels_of_rows()[:n], data.sample_weight, native)

    def metric_link(self) -> Callable[[Array], Array]:
        return self.objective.predict

    def restore_objective(self, native: str) -> None:
        """Leave the objective as the user gave it."""

    @contextmanager
    def _driven(self) -> Iterator[Observer]:
        native = self.native_objective()
        metric = self.model.eval_metric
        if native["objective"] in MOVES_LEAVES and metric is None:
            self.model.eval_metric = {"reg:absoluteerror": "mae"}.get(
                native["objective"], "quantile"
            )
        self.params = {**self.params, **native, **self.driven_objective()}
        try:
            with super()._driven() as observer:
                self.model._driven.keeps_objective = True
                yield observer
        finally:
            self.model.eval_metric = metric

    def _trained(self, observer: Observer) -> Trained:
        trained = super()._trained(observer)
        native = self.native_objective()
        if native["objective"] in MOVES_LEAVES:
            with xgb.config_context(verbosity=0):  # It says that trees do not need the level.
                self.model.get_booster().set_param(native)
        return trained

    def rescale(self, affine: Affine) -> None:
        rescale(self.model.get_booster(), affine)
