"""Fairness of rankings by name: rules of pair rates.

Each preset bounds the absolute value of one metric (eq. 1, Appendix A) of Yao, Lin and Yang,
"Stochastic Methods for AUC Optimization subject to AUC-based Fairness Constraints", 2023. The
paper has two groups; here any number is compared. AUC(U, V) is the probability that a row of U
scores above a row of V, ties counted by half, g and h are groups, and + and - are the positives
and negatives.

==========================  =======================================  =======
preset                      bounds                                   Example
==========================  =======================================  =======
`GroupAUC`                  AUC(g, all) - AUC(h, all)                1
`CrossAUC`                  AUC(g+, not g-) - AUC(h+, not h-)        2
`SubgroupAUC`               AUC(g+, g-) - AUC(h+, h-)                3
`AverageEqualityGap`        AUC(rows of g, rows) - 1/2, of a label   4
`BackgroundSubgroupAUC`     AUC(all+, g-) - AUC(g+, all-)            5
==========================  =======================================  =======

No rule of these depends on a threshold, and none says anything of the decisions at one.
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from gbm_constrained._docstrings import Function, document_parameters
from gbm_constrained.constraints.base import Constraint
from gbm_constrained.constraints.factories import make_factory
from gbm_constrained.constraints.grouped import overall
from gbm_constrained.constraints.pair_rates import auc, cross_auc, mean_rank
from gbm_constrained.constraints.presets import SHARED_PARAMETERS, By
from gbm_constrained.constraints.rates import each, gap
from gbm_constrained.constraints.selectors import as_selectors
from gbm_constrained.constraints.selectors import label as rows_of_label

__all__ = [
    "AverageEqualityGap",
    "BackgroundSubgroupAUC",
    "CrossAUC",
    "GroupAUC",
    "SubgroupAUC",
]

_SHARED_PARAMETERS = {
    **SHARED_PARAMETERS,
    "bound": """bound : float, default=0.02
    Largest allowed absolute value, in [0, 1].""",
}
_RAISES = """Raises
------
TypeError
    If ``bound`` is no number, ``on`` names no rows, or ``by`` no columns.
ValueError
    If ``bound`` is outside [0, 1], or ``by`` empty."""


def _document(function: Function) -> Function:
    """Describe the parameters and the errors of presets of pair rates."""
    return make_factory(document_parameters(function, _SHARED_PARAMETERS, _RAISES))


@_document
def GroupAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the mean ranks of groups: group AUC fairness.

    Of two groups the difference is ``|AUC(g, h) - 1/2|``, where every row of one group is compared
    with every row of the other whatever their labels: Appendix A, Example 1, of the source paper.
    """
    return gap(mean_rank(on=on), by=by) <= bound


@_document
def CrossAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the AUCs of a group's positives against others' negatives.

    It is the inter-group pairwise fairness of Appendix A, Example 2, also called xAUC.
    """
    return gap(cross_auc(on=on), by=by) <= bound


@_document
def SubgroupAUC(bound: float = 0.02, *, by: By = None, on: Any = None) -> Constraint:  # noqa: N802
    """Bound the differences between the AUCs within groups.

    It is the intra-group pairwise fairness of Appendix A, Example 3.
    """
    return gap(auc(on=on), by=by) <= bound


@_document
def AverageEqualityGap(  # noqa: N802
    label: Hashable, bound: float = 0.02, *, by: By = None, on: Any = None
) -> Constraint:
    """Bound the distance of the groups' mean ranks among the rows of a label from one half.

    It is the positive or the negative average equality gap of Appendix A, Example 4.

    Parameters
    ----------
    label : hashable
        The label: that of the positives for the positive gap, of the negatives for the negative
        one.
    """
    ranked = mean_rank(on=(rows_of_label(label), *as_selectors(on)))
    return gap(ranked, by=by, reference=overall) <= bound


@_document
def BackgroundSubgroupAUC(  # noqa: N802
    bound: float = 0.02,
    *,
    by: By = None,
    on: Any = None,
    background: Literal["all", "others"] = "all",
) -> tuple[Constraint, Constraint]:
    """Bound the difference between the background-subgroup AUCs BPSN and BNSP of each group.

    BPSN compares the positives of the background with the negatives of the group, and BNSP the
    positives of the group with the negatives of the background. The rule has two sides, each a
    constraint. For one group alone write
    ``auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"})``.

    Parameters
    ----------
    background : {"all", "others"}, default="all"
        All rows, as in Appendix A, Example 5; or the rows outside the group, as in Borkan et al.,
        "Nuanced Metrics for Measuring Unintended Bias with Real Data for Text Classification",
        2019. Of two groups the latter are the bounds of :func:`CrossAUC`.
    """
    bpsn = cross_auc(on=on, group="negatives", background=background)
    bnsp = cross_auc(on=on, group="positives", background=background)
    return each(bpsn - bnsp, by=by) <= bound, each(bpsn - bnsp, by=by) >= -bound
