r"""Scale and shift of the scores behind probabilities, chosen on held-out rows.

Multipliers bring calibration errors down in training. Where they leave an error above its bound on
held-out rows, scores F are mapped to :math:`s F + d` with the scale and the shift of maximum
likelihood there (:mod:`gbm_constrained.decision.score_calibration`, Platt, 1999). Trees carry the
map in their leaves. Decisions stay as they are, as the threshold is mapped with the scores.
"""

from __future__ import annotations

import numpy as np

from gbm_constrained._typing import Array
from gbm_constrained.decision.affine import Affine
from gbm_constrained.decision.evaluation_set import EvaluationSet
from gbm_constrained.decision.score_calibration import calibrate_scores


def choose_map(rows: EvaluationSet, margin: Array) -> Affine:
    """Choose the map of the scores of two classes.

    Parameters
    ----------
    rows : EvaluationSet
        Held-out rows.
    margin : ndarray of shape (n_samples,)
        Their scores.

    Returns
    -------
    Affine
        The identity, if no calibration error is above its bound, or the map makes none smaller.
    """
    before = _largest_violation(rows, margin)
    if not before > 0.0:
        return Affine()
    of_rows, inside = rows.cells.rows, rows.cells.labelled[rows.cells.codes]
    weight = None if of_rows.weight is None else of_rows.weight[inside]
    factors, scale = calibrate_scores(margin[inside], of_rows.y[inside], 2, weight)
    found = Affine(scale, float(np.log(factors[0]) - np.log(factors[1])))
    return found if _largest_violation(rows, found(margin)) < before else Affine()


def _largest_violation(rows: EvaluationSet, margin: Array) -> float:
    """Find the largest violation of the calibration errors."""
    is_of_bins = np.diff(rows.compiled.D.indptr) > 0
    return float(rows.violations(margin)[is_of_bins].max(initial=0.0)) if is_of_bins.any() else 0.0
