"""Gradient-boosted models trained under constraints on their error rates, losses and means.

Names are loaded when they are first used, so that a script with one library does not wait for the
other (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gbm_constrained import exceptions as _exceptions
from gbm_constrained._version import __version__ as __version__
from gbm_constrained.constraints import rates as _rates
from gbm_constrained.constraints import text as _text  # noqa: F401 - how constraints print
from gbm_constrained.constraints.base import Constraint, Rate
from gbm_constrained.constraints.checking import as_log_loss
from gbm_constrained.constraints.comparisons import overall
from gbm_constrained.constraints.rates import *  # noqa: F403 - `rates.__all__` lists the names
from gbm_constrained.constraints.selectors import dataset, label
from gbm_constrained.exceptions import *  # noqa: F403 - as above

if TYPE_CHECKING:
    from gbm_constrained import dask as dask
    from gbm_constrained import datasets as datasets
    from gbm_constrained import lightgbm as lightgbm
    from gbm_constrained import metrics as metrics
    from gbm_constrained import plotting as plotting
    from gbm_constrained import presets as presets
    from gbm_constrained import solvers as solvers
    from gbm_constrained import spark as spark
    from gbm_constrained import xgboost as xgboost
    from gbm_constrained.constraints.text import (
        format_constraint,
        parse_constraint,
        parse_constraints,
    )
    from gbm_constrained.evaluation.assessment import Feasibility
    from gbm_constrained.evaluation.np_roc import np_roc_band
    from gbm_constrained.evaluation.verdicts import Verdict
    from gbm_constrained.fit.callbacks import ConstraintState
    from gbm_constrained.fit.options import CrossFit, Expected, Forward, HighProbability, Holdout
    from gbm_constrained.linear_model.auc_scorer import ConstrainedAUCScorer
    from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
    from gbm_constrained.linear_model.ridge import ConstrainedRidge
    from gbm_constrained.linear_model.svm import ConstrainedLinearSVC
    from gbm_constrained.reporting.audit import Audit, audit
    from gbm_constrained.scorers.lightgbm.estimators import (
        ConstrainedLGBMClassifier,
        ConstrainedLGBMRegressor,
    )
    from gbm_constrained.scorers.xgboost.estimators import (
        ConstrainedXGBClassifier,
        ConstrainedXGBRegressor,
    )
    from gbm_constrained.tradeoff import tradeoff_curve

_PLACES = {
    "Audit": "reporting.audit",
    "ConstrainedAUCScorer": "linear_model.auc_scorer",
    "ConstrainedLGBMClassifier": "scorers.lightgbm.estimators",
    "ConstrainedLGBMRegressor": "scorers.lightgbm.estimators",
    "ConstrainedLinearSVC": "linear_model.svm",
    "ConstrainedLogisticRegression": "linear_model.logistic_regression",
    "ConstrainedRidge": "linear_model.ridge",
    "ConstrainedXGBClassifier": "scorers.xgboost.estimators",
    "ConstrainedXGBRegressor": "scorers.xgboost.estimators",
    "ConstraintState": "fit.callbacks",
    "CrossFit": "fit.options",
    "Expected": "fit.options",
    "Feasibility": "evaluation.assessment",
    "Forward": "fit.options",
    "HighProbability": "fit.options",
    "Holdout": "fit.options",
    "Verdict": "evaluation.verdicts",
    "audit": "reporting.audit",
    "constraint_scorer": "reporting.scoring",
    "format_constraint": "metrics.text",  # This knows metrics as well.
    "np_roc_band": "evaluation.np_roc",
    "parse_constraint": "metrics.text",
    "parse_constraints": "metrics.text",
    "to_onnx": "scorers.onnx",
    "tradeoff_curve": "tradeoff",
    "violations_of": "reporting.scoring",
}
_MODULES = (
    "dask",
    "datasets",
    "lightgbm",
    "metrics",
    "mlflow",
    "plotting",
    "presets",
    "solvers",
    "spark",
    "xgboost",
)

__all__ = [
    "Audit",
    "ConstrainedAUCScorer",
    "ConstrainedLGBMClassifier",
    "ConstrainedLGBMRegressor",
    "ConstrainedLinearSVC",
    "ConstrainedLogisticRegression",
    "ConstrainedRidge",
    "ConstrainedXGBClassifier",
    "ConstrainedXGBRegressor",
    "Constraint",
    "ConstraintState",
    "CrossFit",
    "Expected",
    "Feasibility",
    "Forward",
    "HighProbability",
    "Holdout",
    "Rate",
    "Verdict",
    "as_log_loss",
    "audit",
    "constraint_scorer",
    "dataset",
    "format_constraint",
    "label",
    "np_roc_band",
    "overall",
    "parse_constraint",
    "parse_constraints",
    "to_onnx",
    "tradeoff_curve",
    "violations_of",
]
__all__ += _exceptions.__all__
__all__ += _rates.__all__


def _load(name: str) -> Any:
    """Load a public name that is used for the first time, or a module of the package."""
    if name in _MODULES:
        return import_module(f"{__name__}.{name}")
    if name not in _PLACES:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = globals()[name] = getattr(import_module(f"{__name__}.{_PLACES[name]}"), name)
    return found


if not TYPE_CHECKING:  # Type checkers would believe that every name is there.
    __getattr__ = _load


def __dir__() -> list[str]:
    """List the public names, loaded or not."""
    return sorted({*globals(), *__all__, *_MODULES})
