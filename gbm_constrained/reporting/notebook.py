"""Constrained estimators as notebooks show them: scikit-learn's own view, and the constraints."""

from __future__ import annotations

import importlib.util
from typing import Any

from sklearn import get_config
from sklearn.utils import estimator_html_repr

from gbm_constrained.constraints.base import Constraint, name_positive_class
from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.fit.model_note import constraints_of


def html_of(estimator: Any) -> str:
    """Write an estimator as HTML: its parameters, its constraints, and its reports once fitted.

    Without jinja2 the view is scikit-learn's alone.
    """
    whole: str = estimator_html_repr(estimator)
    classes = getattr(estimator, "classes_", None)
    constraints: tuple[Constraint, ...] = ()
    error = ""
    try:
        constraints = check_constraints(estimator.constraints)
        if constraints and classes is not None:
            constraints = constraints_of(estimator)
    except (TypeError, ValueError) as refusal:  # As fit would say; a view must not fail.
        error = str(refusal)
    models = vars(estimator).get("blackbox_report_")
    has_content = bool(constraints or error) or models is not None
    if not has_content or importlib.util.find_spec("jinja2") is None:
        return whole
    from gbm_constrained.reporting.html import render
    from gbm_constrained.reporting.mathml import formula_of, legend_of

    if classes is None and getattr(estimator, "positive", None) is not None:
        constraints = tuple(name_positive_class(c, estimator.positive) for c in constraints)
    known = None if classes is None else list(classes)
    formulas = [formula_of(c, known) for c in constraints]
    report = getattr(estimator, "constraint_report_", None)
    # A file that was loaded need not hold the metric of its estimator.
    goals = (getattr(estimator, name, None) for name in ("maximize", "minimize"))
    objective = next((goal for goal in goals if goal is not None), None)
    own = render(
        "estimator.html",
        element="div",
        error=error,
        formulas=list(zip(map(str, constraints), formulas, strict=True)),
        legend=legend_of(formulas) if formulas else "",
        report=[] if report is None else report.to_dict("records"),
        feasibility=getattr(estimator, "feasibility_", ""),
        blackbox=[] if models is None else models.to_dict("records"),
        objective="the metric" if objective is None else str(objective),
    )
    return f"{whole}\n{own}"


def mime_bundle(estimator: Any) -> dict[str, str]:
    """Make the forms that notebooks choose from; HTML where scikit-learn shows diagrams."""
    bundle = {"text/plain": repr(estimator)}
    if get_config()["display"] == "diagram":
        bundle["text/html"] = html_of(estimator)
    return bundle
