"""Adapter that drives LightGBM's own fit of a regressor by a solver."""

from __future__ import annotations

from typing import Any

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.boosters.lightgbm.adapter import LightGBMAdapter
from gbm_constrained.boosters.lightgbm.checks import check_parameters, find_own_boosting
from gbm_constrained.boosters.lightgbm.metrics import (
    LOSSES,
    list_metrics,
    make_metric,
    refuse_unknown,
)
from gbm_constrained.boosters.lightgbm.model_text import (
    add_intercept,
    objective_line,
    rescale,
)
from gbm_constrained.boosters.lightgbm.parameters import (
    find_objective,
    find_parameter,
    read_as,
)
from gbm_constrained.boosters.lightgbm.trained_model import restore_booster
from gbm_constrained.boosters.metrics import map_scores
from gbm_constrained.data.targets import TargetData, check_targets
from gbm_constrained.data.validation import check_integer
from gbm_constrained.decision.affine import Affine
from gbm_constrained.problem.regression_objectives import (
    MAX_DELTA_STEP,
    ObjectiveName,
    RegressionObjective,
    check_parameter,
)
from gbm_constrained.training.options import check_number
from gbm_constrained.training.problem import LibrarySettings

NAMES: dict[str, ObjectiveName] = {
    "regression": "squared",
    "regression_l1": "absolute",
    "huber": "huber",
    "quantile": "quantile",
    "poisson": "poisson",
    "tweedie": "tweedie",
    "gamma": "gamma",
    "fair": "fair",
}
NAME_ALIASES = {
    **dict.fromkeys(
        ("regression_l2", "l2", "mean_squared_error", "mse", "l2_root", "root_mean_squared_error",
         "rmse"), "regression",
    ),
    **dict.fromkeys(("l1", "mean_absolute_error", "mae"), "regression_l1"),
}  # fmt: skip
# Parameters of objectives: name and LightGBM's default.
PARAMETERS = {
    "huber": ("alpha", 0.9),
    "quantile": ("alpha", 0.9),
    "tweedie": ("tweedie_variance_power", 1.5),
    "fair": ("fair_c", 1.0),
}


def read_objective(model: Any) -> tuple[RegressionObjective, dict[str, Any]]:
    """Read the objective of a regressor, and its name and parameters as LightGBM takes them.

    Raises
    ------
    ValueError
        If constraints cannot be added to the objective.
    """
    given = find_objective(model)
    asked = "regression" if given is None else read_as("objective", given, "")
    name = NAME_ALIASES.get(asked, asked) if isinstance(asked, str) else asked
    if name not in NAMES:
        raise ValueError(
            f"objective={given!r} cannot be trained under constraints: use one of {[*NAMES]}."
        )
    if find_parameter(model, "reg_sqrt", False):
        raise ValueError(
            "reg_sqrt=True fits square roots of targets, of which rules know nothing: leave it "
            "out, and give transformed targets."
        )
    native: dict[str, Any] = {"objective": name}
    parameter = np.nan
    if name in PARAMETERS:
        key, default = PARAMETERS[name]
        parameter = native[key] = check_number(key, find_parameter(model, key, default))
        check_parameter(NAMES[name], key, parameter)
    step = find_parameter(model, "poisson_max_delta_step", MAX_DELTA_STEP)
    if name == "poisson":
        native["poisson_max_delta_step"] = step
    return RegressionObjective(NAMES[name], parameter, float(step)), native


class LightGBMRegressionAdapter(LightGBMAdapter):
    """``RegressionAdapter`` of one ``fit`` of LightGBM.

    Attributes
    ----------
    objective : RegressionObjective
        The objective.
    own_objective : dict
        Its name and parameters, as LightGBM takes them.
    """

    objective: RegressionObjective
    own_objective: dict[str, Any]

    def check_parameters(self) -> None:
        self.objective, self.own_objective = read_objective(self.model)
        check_parameters(self.model, self.arguments["callbacks"])
        check_targets(self.y)
        if (booster := find_own_boosting(self.model)) is not None:
            raise ValueError(
                f"{booster} takes no gradients but its own, and cannot be trained under "
                f"constraints: leave it out."
            )
        if self.model.class_weight is not None:
            raise ValueError(
                f"class_weight={self.model.class_weight!r} weighs classes, and targets of a "
                f"regressor are numbers: leave it out, and give sample_weight."
            )
        check_integer("n_estimators", self._parameter("num_iterations", None), 1)

    def settings(self) -> LibrarySettings:
        return LibrarySettings(
            check_number("learning_rate", self._parameter("learning_rate", 0.1)),
            self._parameter("num_iterations", None),
            random_state=self.model.random_state,
            kernel={"dtype": np.float32, "objective": self.objective},
            tree_limits=self.tree_limits,
        )

    def check_labels(self) -> None:
        """Accept all targets, which are numbers."""

    def split_metrics(self) -> tuple[list[str], list[Any]]:
        model, given = self.model, find_objective(self.model)
        # The name as it was given: "rmse" is the squared error, and its metric the root of it.
        default = self.own_objective["objective"] if given is None else given
        names, own = list_metrics(model, self.arguments["eval_metric"], default)
        if not self.objective.has_log_link:
            return names, own
        link = f"with objective={self.own_objective['objective']!r}"
        refuse_unknown(names, [*LOSSES], link, "predictions")
        predict = self.objective.predict
        made = [make_metric(name, model, predict) for name in names]
        return [], [*made, *(map_scores(metric, predict) for metric in own)]

    def find_intercept(self) -> Array:
        data = self.fit.data
        assert isinstance(data, TargetData)
        y = data.targets[: data.combined.sizes[0]]
        constant = lgb.Dataset(np.zeros((y.size, 1)), y, weight=data.sample_weight)
        parameters = {**self.own_objective, "verbosity": -1, "num_threads": 1}
        booster = lgb.train(parameters, constant, num_boost_round=1)
        return np.asarray(booster.predict(np.zeros((1, 1)), raw_score=True), dtype=np.float64)

    def make_native(self) -> None:
        model = self.model
        pair = lgb.Dataset(np.zeros((2, 1)), np.array([1.0, 2.0]))
        like = lgb.train({**self.own_objective, "verbosity": -1}, pair, num_boost_round=1)
        line = objective_line(like.model_to_string())
        text = model._Booster.model_to_string(num_iteration=-1)
        restore_booster(model, add_intercept(text, [*self.intercept]), line)

    def rescale(self, affine: Affine) -> None:
        self.model._Booster = rescale(self.model._Booster, affine.scale, affine.shift)
