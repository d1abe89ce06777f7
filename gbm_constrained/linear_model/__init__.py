"""Linear models whose subproblems are solved exactly."""

from gbm_constrained.linear_model.auc_scorer import ConstrainedAUCScorer
from gbm_constrained.linear_model.exact import (
    DictionaryLearner,
    LinearLearner,
    Solution,
    leaf_indicators,
)
from gbm_constrained.linear_model.logistic_regression import ConstrainedLogisticRegression
from gbm_constrained.linear_model.ridge import ConstrainedRidge
from gbm_constrained.linear_model.svm import ConstrainedLinearSVC, WeightedSVM

__all__ = [
    "ConstrainedAUCScorer",
    "ConstrainedLinearSVC",
    "ConstrainedLogisticRegression",
    "ConstrainedRidge",
    "DictionaryLearner",
    "LinearLearner",
    "Solution",
    "WeightedSVM",
    "leaf_indicators",
]
