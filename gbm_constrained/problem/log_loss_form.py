"""Bounds on error rates as bounds on mean losses."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from scipy import sparse

from gbm_constrained._typing import Float
from gbm_constrained.constraints.events import Misclassified, Term
from gbm_constrained.problem.functionals import MeanLoss, Part
from gbm_constrained.problem.linear_constraints import CompiledConstraints


def _as_loss(term: Part | MeanLoss) -> MeanLoss:
    return MeanLoss(term.coefficient, term.cells)


def as_losses(compiled: CompiledConstraints, n_classes: int) -> tuple[CompiledConstraints, Float]:
    """Replace 0-1 error bounds e by mean-loss bounds, the paper's heuristic (section 6).

    The mean cross-entropy of a cell set is bounded by ``e log(n_classes)``: e times the loss of a
    model that knows nothing.

    Returns
    -------
    compiled : CompiledConstraints
        With every error rate turned into a mean loss.
    factors : ndarray of shape (m,)
        e for those, NaN for the others: what ABPP re-estimates bounds with. Of a multiple of an
        error rate it is the bound of the rate alone.

    Raises
    ------
    ValueError
        If a constraint is not an upper bound of a single error rate.
    """
    for constraint in compiled.constraints:
        terms = constraint.rates[0].terms
        single = constraint.expression.is_linear and constraint.sense == "<="
        single &= len(terms) == 1 and terms[0][0] > 0.0 and is_error(terms[0][1], n_classes)
        if not constraint.is_loss and not single:
            raise ValueError(
                f"error_form='log_loss' is for upper bounds of error rates, and {constraint} is "
                f"not one: use error_form='rate'."
            )
    is_rate = compiled.has_rates
    factors = np.full(len(compiled), np.nan)
    for r in np.flatnonzero(is_rate):
        ((multiple, _),) = compiled.constraints[compiled.owner[r]].rates[0].terms
        factors[r] = compiled.b[r] / multiple
    losses = replace(
        compiled,
        U=sparse.csr_array(compiled.U.shape),
        V=sparse.csr_array(compiled.V + compiled.R.T @ compiled.spread),
        spread=sparse.csr_array(compiled.spread.shape),
        rewards_errors=np.zeros(len(compiled), dtype=bool),
        rewards_all_errors=np.zeros(len(compiled), dtype=bool),
        splits_targets=np.zeros(len(compiled), dtype=bool),
        terms=tuple(terms and tuple(map(_as_loss, terms)) for terms in compiled.terms),
        b=np.where(is_rate, compiled.b * np.log(n_classes), compiled.b),
    )
    return losses, factors


def is_error(term: Term, n_classes: int) -> bool:
    """Whether a term counts misclassified rows and nothing else."""
    is_fpr = n_classes == 2 and term.name.partition("(")[0] == "fpr"
    return not term.where and (term.event == Misclassified() or is_fpr)
