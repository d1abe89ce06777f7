"""Learners whose subproblems are solved exactly, where the theory holds to the letter."""

from gbm_constrained.learners.dictionary import DictionaryLearner, Solution, leaf_indicators
from gbm_constrained.learners.linear import LinearLearner

__all__ = ["DictionaryLearner", "LinearLearner", "Solution", "leaf_indicators"]
