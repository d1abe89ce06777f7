"""Pair rates: how often the score of one row is above that of another.

A pair rate is ``Pr(score of a row of U > score of a row of V) + Pr(tie) / 2``, over weighted
pairs. The three functions here choose U and V: the AUC, the AUC between a group and others, and
the mean rank of a group. Pair rates are added, subtracted and compared between groups as all rates
are (:mod:`gbm_constrained.constraints.rates`), and depend on no threshold.

>>> from gbm_constrained import auc, cross_auc, gap
>>> gap(auc(), by="sex") <= 0.02
gap(auc(), by='sex') <= 0.02
>>> gap(cross_auc(), by="race", reference="white") <= 0.05
gap(cross_auc(), by='race', reference='white') <= 0.05
>>> auc(negatives={"sex": "F"}) - auc(positives={"sex": "F"}) <= 0.02
auc(negatives={'sex': 'F'}) - auc(positives={'sex': 'F'}) <= 0.02
"""

from __future__ import annotations

from collections.abc import Hashable
from typing import Any, Literal

from gbm_constrained.constraints.events import RankedAbove
from gbm_constrained.constraints.expressions import Rate
from gbm_constrained.constraints.rate_parts import (
    Taken,
    classes_of,
    document_rate,
    make_rate,
    name_with_label,
)
from gbm_constrained.constraints.selectors import as_selectors

__all__ = ["auc", "cross_auc", "mean_rank"]


@document_rate
def auc(
    label: Hashable | None = None, *, on: Any = None, positives: Any = None, negatives: Any = None
) -> Rate:
    """Make the area under the ROC curve, ``P(score of a positive > score of a negative)``.

    The intra-group AUC of [1]_, Example 3, is ``gap(auc(), by=...)``. With `positives` or
    `negatives` restricted to a group, the other side is all rows: the background-subgroup AUC of
    Example 5 with the whole data set as background.

    Parameters
    ----------
    positives, negatives : default=None
        Further restriction of the positives or of the negatives, as ``on=`` reads it; `on`
        restricts both.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    """
    negative, positive = classes_of(label)
    event = RankedAbove(
        target=positive,
        first=as_selectors(positives),
        others=(negative,),
        second=as_selectors(negatives),
    )
    return make_rate(name_with_label("auc", label), event, Taken(on), (positive,))


@document_rate
def cross_auc(
    label: Hashable | None = None,
    *,
    on: Any = None,
    group: Literal["positives", "negatives"] = "positives",
    background: Literal["others", "all"] = "others",
) -> Rate:
    """Make the AUC of a group's positives against the negatives of others, for use in groups.

    ``gap(cross_auc(), by=...)`` is the inter-group AUC of [1]_, Example 2, or xAUC; the difference
    between a group's two sides against the complement are the background-subgroup AUCs of Borkan
    et al. [2]_.

    Parameters
    ----------
    group : {"positives", "negatives"}, default="positives"
        Side that is of the group.
    background : {"others", "all"}, default="others"
        The other side: rows outside the group, or all rows.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    .. [2] Borkan, Dixon, Sorensen, Thain and Vasserman, "Nuanced Metrics for Measuring Unintended
       Bias with Real Data for Text Classification", 2019.
    """
    for name, value, choices in (
        ("group", group, ("positives", "negatives")),
        ("background", background, ("others", "all")),
    ):
        if value not in choices:
            raise ValueError(f"{name} must be one of {list(choices)}, got {value!r}.")
    negative, positive = classes_of(label)
    event = RankedAbove(
        target=positive,
        others=(negative,),
        group="first" if group == "positives" else "second",
        background=background,
    )
    return make_rate(name_with_label("cross_auc", label), event, Taken(on), (positive,))


@document_rate
def mean_rank(label: Hashable | None = None, *, on: Any = None) -> Rate:
    """Make the mean percentile of a group's scores among all rows, for use in groups.

    It is ``P(score of the group > score of all rows)``, ties counted by half. Of two groups,
    ``gap(mean_rank(), by=...)`` equals ``|AUC(g, h) - 1/2|``: the group AUC of [1]_, Example 1.
    With ``reference=overall`` among the rows of one label it is the average equality gap of
    Example 4, as the mean rank of all rows is one half.

    References
    ----------
    .. [1] Yao, Lin and Yang, "Stochastic Methods for AUC Optimization subject to AUC-based
       Fairness Constraints", 2023.
    """
    event = RankedAbove(target=classes_of(label)[1], group="first")
    return make_rate(name_with_label("mean_rank", label), event, Taken(on))
