"""Tags by which scikit-learn knows what an estimator takes under its constraints."""

from __future__ import annotations

from typing import Any

from gbm_constrained.constraints.checking import check_constraints


def with_constraints(tags: Any, constraints: Any, positive: Any = None) -> Any:
    """Restrict the tags of a parent to what its constraints allow, in place.

    Constraints are on one label of a row, and some of them on two classes. The constructor
    parameters may be invalid.
    """
    try:
        checked = check_constraints(constraints)
    except (TypeError, ValueError):
        return tags
    if checked:
        tags.target_tags.multi_output = False
    if checked and tags.classifier_tags is not None:
        tags.classifier_tags.multi_label = False
        is_binary = positive is None and any(constraint.is_binary for constraint in checked)
        tags.classifier_tags.multi_class &= not is_binary
    return tags
