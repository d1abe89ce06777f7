"""What linear rows take from the constraints that they belong to."""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Bool, Codes, Float
from gbm_constrained.problem.credibility import acts_by_credibility
from gbm_constrained.problem.linear_constraints import LinearConstraints


def find_levels(compiled: LinearConstraints) -> list[Bool]:
    """Find the rows of constraints of each priority, (m,) each, those that come first ahead."""
    priority = _priorities(compiled)
    return [priority == level for level in np.unique(priority)]


def find_first(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints of the priority that comes first, shape (m,)."""
    priority = _priorities(compiled)
    return np.asarray(priority == min(priority.tolist(), default=1))


def find_first_constraints(compiled: LinearConstraints) -> Bool:
    """Find the constraints of the priority that comes first, shape (n_constraints,)."""
    first = min(_priorities(compiled).tolist(), default=1)
    return np.array([constraint.priority <= first for constraint in compiled.constraints], bool)


def violation_weights(compiled: LinearConstraints) -> Float:
    """Return the factor on the violation of each row of constraints, shape (m,)."""
    weights = np.array([c.violation_weight for c in compiled.constraints], dtype=np.float64)
    return weights[compiled.owner]


def compares_groups(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that belong to a gap or a ratio of groups, shape (m,)."""
    kinds = [c.expression.compares_pairs for c in compiled.constraints]
    return np.asarray(np.array(kinds, dtype=bool)[compiled.owner])


def is_priced(compiled: LinearConstraints) -> Bool:
    """Find the rows of comparisons of groups that have a price, and are not held at any."""
    kinds = [
        c.expression.compares_pairs and getattr(c.expression, "small_groups", "keep") != "hold"
        for c in compiled.constraints
    ]
    return np.asarray(np.array(kinds, dtype=bool)[compiled.owner])


def acts_in_full(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that compare no groups, or hold them at any price, (m,)."""
    kinds = [not acts_by_credibility(c) for c in compiled.constraints]
    return np.asarray(np.array(kinds, dtype=bool)[compiled.owner])


def _priorities(compiled: LinearConstraints) -> Codes:
    return np.array([c.priority for c in compiled.constraints], dtype=np.intp)[compiled.owner]
