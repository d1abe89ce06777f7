r"""From the boosters of the folds to the model of all rows, which is another model.

**Optimism.** A rate of a trained model is lower on its training rows than on new ones. The
boosters of the folds show by how much:

.. math:: \mathrm{optimism} = s \, (r_{\text{held out}} - \bar{r}_{\text{training}}) .

Efron, "Estimating the error rate of a prediction rule" (1983), adds such a difference to the
training error. The difference falls with one over the number of rows (Akaike, 1974), so that the
share s of the rows that a booster is trained on is what a model of all rows loses. Of boosters
with different shares it is the harmonic mean.

Folds of the user, such as periods of time, need not hold out every row. Rows that are held out and
rows that are trained on then differ by more than optimism. So the rates of each booster are
compared on those of its training rows that others hold out. A threshold stays as the boosters
chose it: that the model decides its own training rows as often says nothing of later ones.

**Transfer of a threshold.** Where constraints bound one class alone, as the bound of a miss rate
does, its few rows are weighted and memorised. The model of all rows gives rows that look like them
higher scores than the boosters of the folds do, and at their threshold pays with errors on the
other class. The rows of the other class are more and not weighted. If the model decides as many of
them for the bounded class as the boosters did out of fold, it misses no more rows of the bounded
class: trees of more rows rank them no worse. So the threshold is moved to where the shares agree,
up to optimism (evidence, Decisions). Under all other constraints the share of all rows is matched.

**Violations after refitting.** The model of all rows may violate constraints that the boosters of
the folds meet. Rates of errors are at their lowest on training rows, so that a violation there is
one. Gaps of error rates, and shares of predictions, are first corrected by their optimism.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace

import numpy as np
from scipy.stats import norm

from gbm_constrained._typing import Array, Bool, Codes, Float
from gbm_constrained.data.cells import Cells
from gbm_constrained.data.exact_sums import sum_over_machines
from gbm_constrained.decision.share_search import shift_for_share
from gbm_constrained.decision.standard_errors import standard_errors
from gbm_constrained.problem.linear_constraints import LinearConstraints
from gbm_constrained.statistics.counts import CellCounts, functionals_of
from gbm_constrained.statistics.p_values import find_violated_rows

SIGNIFICANCE = 0.025  # Probability of each side below which a violation is beyond sampling error.


def estimate_optimism(
    held_out: Float | float, training: Sequence[Float | float], share: float = 1.0
) -> Float:
    """Estimate how much higher rates of a model are on new rows than on its training rows.

    `held_out` are rates on rows that the boosters of the folds have not seen, `training` those of
    each booster on its training rows. `share` is the part of the difference that is left in the
    model: 1 for the boosters themselves.
    """
    return np.asarray(share * (held_out - np.mean(np.asarray(training), axis=0)))


def estimate_optimism_of_decisions(
    compiled: LinearConstraints,
    cells: Cells,
    training: Sequence[tuple[Codes, Codes]],
    held_out: Float,
) -> Float:
    """Estimate the optimism of each row of constraints by decisions at one shift.

    Trees that memorise labels select another share of their training rows than of new ones, at one
    threshold. All of the difference is taken, though a model of more rows loses less: a constraint
    that holds is not to be doubted. `training` pairs the positions of each booster's training rows
    with its decisions there; `held_out` are functionals on rows that the boosters have not seen.
    Undefined values are NaN.
    """
    rates = [
        compiled.rows_of(functionals_of(compiled, CellCounts.of(cells.take(rows), decisions)))
        for rows, decisions in training
    ]
    return np.asarray(estimate_optimism(compiled.rows_of(held_out), rates))


def rows_to_match(compiled: LinearConstraints, cells: Cells) -> Bool | None:
    """Find the rows whose positive rate a transferred threshold has to keep.

    Where constraints look at rows of one of two classes only, deciding for that class violates
    none, and the class is the smaller one, these are all rows of the other class. Otherwise they
    are all rows of the objective. The result is None for mean losses, and for several classes,
    whose biases are taken as they are.
    """
    if cells.classes.size > 2 or compiled.B.nnz or not len(compiled):
        return None
    everyone = np.asarray(cells.in_objective[cells.codes])
    towards_one = (compiled.A[:, 1::2] - compiled.A[:, 0::2]).tocoo()
    at_stake = towards_one.data != 0.0
    labels, signs = cells.labels[towards_one.col[at_stake]], np.sign(towards_one.data[at_stake])
    asked = 1 if (signs < 0).all() else 0
    if not labels.size or (labels != asked).any() or (signs != 1 - 2 * asked).any():
        return everyone
    mass = [cells.weight[cells.labelled & (cells.labels == k)].sum() for k in (0, 1)]
    if mass[asked] >= mass[1 - asked]:
        return everyone
    other = cells.in_objective & (cells.labels == 1 - asked)
    return np.asarray(other[cells.codes])


@dataclass(frozen=True)
class FoldScores:
    """Scores by the boosters of the folds, out of fold and in training."""

    held_out: tuple[Codes, Array]  # Positions and scores of rows that some booster has not seen.
    training: Sequence[tuple[Codes, Array]]  # The same of each booster's training rows.
    share: float  # Share of the optimism that is left in a model of all rows.
    # Out-of-fold scores of the rows in `training`, if some rows are never held out.
    compared: Sequence[tuple[Codes, Array]] = ()
    has_multipliers: bool = True  # Whether multipliers weigh the rows that boosters memorise.


def match_positive_rate(
    scores: FoldScores, shift: Float, margin: Array, inside: Bool, cells: Cells
) -> Float:
    """Find the shift under which the model of all rows has the positive rate of the folds.

    `shift` was chosen for the boosters of the folds, `margin` are scores of all rows under the
    model, `inside` are the rows of :func:`rows_to_match`, and `cells` are those of all rows.
    Without multipliers no rows are weighted, and a model of more rows needs no larger shift.
    """
    weight = inside.astype(np.float64)
    if cells.rows.weight is not None:
        weight = np.where(inside, cells.rows.weight, 0.0)

    def positive_rate(rows: Codes, scores: Array) -> float:
        w = weight[rows]
        positive = w * (scores + shift[0] > 0)
        positive, total = sum_over_machines(np.sum, [positive, w], cells.communicator)
        return float(positive / total) if total > 0 else np.nan

    held_out, *training = (positive_rate(*part) for part in (scores.held_out, *scores.training))
    if np.isnan([held_out, *training]).any():
        return shift  # Folds of whole groups may leave a booster without such rows.
    if not 0.0 < held_out < 1.0:  # Many thresholds have this rate.
        return shift
    wanted = held_out - float(estimate_optimism(held_out, training, scores.share))
    found = shift_for_share(margin[inside], wanted, weight[inside], cells.communicator)
    if scores.has_multipliers:
        return found
    return np.clip(found, np.minimum(shift, 0.0), np.maximum(shift, 0.0))


def refit_violation(
    compiled: LinearConstraints, counts: CellCounts, functionals: Float, optimism: Float
) -> Float:
    """Compute the violation of each row of constraints by the model of all rows.

    While multipliers are on their way, a gap may be open in one booster and closed in the next.
    These boosters then meet the constraint together, and the model of all rows does not. The
    violation is that of the functionals on the training rows plus optimism, and zero within
    sampling error of the counted decisions there.
    """
    violation = compiled.rows_of(functionals) + optimism - compiled.b
    chance = norm.isf(SIGNIFICANCE) * standard_errors(compiled, counts)
    return np.where(violation > chance, violation, 0.0)


def find_training_violations(
    compiled: LinearConstraints, counts: CellCounts, optimism: Float | None = None
) -> Bool:
    """Find the constraints that a model violates on its training rows beyond sampling error.

    Other constraints that may ask for errors, such as gaps, are not at their best on training rows
    and give False. The optimism is that of rows of constraints that reward all errors, and of
    those that look at no label; NaN where unknown.
    """
    is_tested, b = ~compiled.may_reward_errors, compiled.b
    if optimism is not None:
        is_moved = compiled.must_reward_errors | is_row_of_predictions(compiled)
        is_moved &= compiled.may_reward_errors & np.isfinite(optimism)
        is_tested = is_tested | is_moved
        b = np.where(is_moved, b - optimism, b)
    violated = np.zeros(len(compiled.constraints), dtype=bool)
    is_beyond = find_violated_rows(replace(compiled, b=b), counts, SIGNIFICANCE)
    violated[compiled.owner[is_beyond & is_tested]] = True
    return violated


def find_refit_violations(
    compiled: LinearConstraints,
    counts: CellCounts,
    optimism: Float | None,
    optimism_of_decisions: Callable[[], Float],
) -> Bool:
    """Find the constraints that the model of all rows violates by its training rows.

    `optimism` is that of rows of constraints that reward all errors. That of rows that look at no
    label needs scores of all boosters, and is computed only if such a row is violated without.
    """
    of_predictions = is_row_of_predictions(compiled)
    known = np.full(len(compiled), np.nan) if optimism is None else optimism
    violated = find_training_violations(compiled, counts, np.where(of_predictions, 0.0, known))
    if violated[compiled.owner[of_predictions]].any():
        known = np.where(of_predictions, np.minimum(optimism_of_decisions(), 0.0), known)
        violated = find_training_violations(compiled, counts, known)
    return violated


def is_row_of_predictions(compiled: LinearConstraints) -> Bool:
    """Find the rows of constraints that look at predictions alone, such as selection rates."""
    is_one = np.array([c.is_of_predictions for c in compiled.constraints], dtype=bool)
    return np.asarray(is_one[compiled.owner])


def correct_training_values(
    compiled: LinearConstraints, functionals: Float, optimism: Float | None
) -> Float:
    """Correct the values on training rows of constraints that reward all errors by optimism."""
    values = compiled.values(functionals)
    if optimism is None:
        return values
    rows = compiled.rows_of(functionals) + optimism
    for j in np.unique(compiled.owner[compiled.must_reward_errors]):
        own, constraint = compiled.owner == j, compiled.constraints[j]
        if constraint.expression.is_difference:
            values[j] = rows[own].max()
        elif own.sum() == 1:
            values[j] += constraint.sign * optimism[own][0]
    return values
