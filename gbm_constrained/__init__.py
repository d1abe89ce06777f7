"""Gradient-boosted models trained under constraints on their error rates, losses and means.

Names are loaded when they are first used, so that a script with one library does not wait for the
other (PEP 562).
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from gbm_constrained import exceptions as _exceptions
from gbm_constrained._version import __version__ as __version__
from gbm_constrained.constraints import rates as _rates
from gbm_constrained.constraints.rates import *  # noqa: F403 - `rates.__all__` lists the names
from gbm_constrained.exceptions import *  # noqa: F403 - as above

if TYPE_CHECKING:
    from gbm_constrained import dask as dask
    from gbm_constrained import datasets as datasets
    from gbm_constrained import lightgbm as lightgbm
    from gbm_constrained import metrics as metrics
    from gbm_constrained import mlflow as mlflow
    from gbm_constrained import plotting as plotting
    from gbm_constrained import presets as presets
    from gbm_constrained import solvers as solvers
    from gbm_constrained import spark as spark
    from gbm_constrained import xgboost as xgboost
    from gbm_constrained.constraints.base import Constraint as Constraint
    from gbm_constrained.constraints.base import Rate as Rate
    from gbm_constrained.constraints.checking import as_log_loss as as_log_loss
    from gbm_constrained.constraints.comparisons import overall as overall
    from gbm_constrained.constraints.selectors import dataset as dataset
    from gbm_constrained.constraints.selectors import label as label
    from gbm_constrained.constraints.text import format_constraint as format_constraint
    from gbm_constrained.constraints.text import parse_constraint as parse_constraint
    from gbm_constrained.constraints.text import parse_constraints as parse_constraints
    from gbm_constrained.evaluation.assessment import Feasibility as Feasibility
    from gbm_constrained.evaluation.np_roc import np_roc_band as np_roc_band
    from gbm_constrained.evaluation.verdicts import Verdict as Verdict
    from gbm_constrained.explanations import explain_gap as explain_gap
    from gbm_constrained.fit.callbacks import ConstraintState as ConstraintState
    from gbm_constrained.fit.options import CrossFit as CrossFit
    from gbm_constrained.fit.options import Expected as Expected
    from gbm_constrained.fit.options import Forward as Forward
    from gbm_constrained.fit.options import HighProbability as HighProbability
    from gbm_constrained.fit.options import Holdout as Holdout
    from gbm_constrained.fit.options import Margin as Margin
    from gbm_constrained.linear_model.auc_scorer import (
        ConstrainedAUCScorer as ConstrainedAUCScorer,
    )
    from gbm_constrained.linear_model.logistic_regression import (
        ConstrainedLogisticRegression as ConstrainedLogisticRegression,
    )
    from gbm_constrained.linear_model.ridge import ConstrainedRidge as ConstrainedRidge
    from gbm_constrained.linear_model.svm import ConstrainedLinearSVC as ConstrainedLinearSVC
    from gbm_constrained.reporting.audit import Audit as Audit
    from gbm_constrained.reporting.audit import audit as audit
    from gbm_constrained.reporting.explanation import GapExplanation as GapExplanation
    from gbm_constrained.reporting.scoring import constraint_scorer as constraint_scorer
    from gbm_constrained.reporting.scoring import violations_of as violations_of
    from gbm_constrained.reporting.segments import Segments as Segments
    from gbm_constrained.reporting.segments import find_segments as find_segments
    from gbm_constrained.scorers.lightgbm.estimators import (
        ConstrainedLGBMClassifier as ConstrainedLGBMClassifier,
    )
    from gbm_constrained.scorers.lightgbm.estimators import (
        ConstrainedLGBMRegressor as ConstrainedLGBMRegressor,
    )
    from gbm_constrained.scorers.onnx import to_onnx as to_onnx
    from gbm_constrained.scorers.xgboost.estimators import (
        ConstrainedXGBClassifier as ConstrainedXGBClassifier,
    )
    from gbm_constrained.scorers.xgboost.estimators import (
        ConstrainedXGBRegressor as ConstrainedXGBRegressor,
    )
    from gbm_constrained.tradeoff import tradeoff_curve as tradeoff_curve

_MODULES = {
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
}
_PLACES = {
    name: module
    for module, names in {
        "constraints.base": ["Constraint", "Rate"],
        "constraints.checking": ["as_log_loss"],
        "constraints.comparisons": ["overall"],
        "constraints.selectors": ["dataset", "label"],
        "evaluation.assessment": ["Feasibility"],
        "evaluation.np_roc": ["np_roc_band"],
        "evaluation.verdicts": ["Verdict"],
        "explanations": ["explain_gap"],
        "fit.callbacks": ["ConstraintState"],
        "fit.options": [
            "CrossFit",
            "Expected",
            "Forward",
            "HighProbability",
            "Holdout",
            "Margin",
        ],
        "linear_model.auc_scorer": ["ConstrainedAUCScorer"],
        "linear_model.logistic_regression": ["ConstrainedLogisticRegression"],
        "linear_model.ridge": ["ConstrainedRidge"],
        "linear_model.svm": ["ConstrainedLinearSVC"],
        "metrics.text": ["format_constraint", "parse_constraint", "parse_constraints"],
        "reporting.audit": ["Audit", "audit"],
        "reporting.explanation": ["GapExplanation"],
        "reporting.scoring": ["constraint_scorer", "violations_of"],
        "reporting.segments": ["Segments", "find_segments"],
        "scorers.lightgbm.estimators": ["ConstrainedLGBMClassifier", "ConstrainedLGBMRegressor"],
        "scorers.onnx": ["to_onnx"],
        "scorers.xgboost.estimators": ["ConstrainedXGBClassifier", "ConstrainedXGBRegressor"],
        "tradeoff": ["tradeoff_curve"],
    }.items()
    for name in names
}
__all__ = [*_PLACES]
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
