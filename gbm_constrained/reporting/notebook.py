"""Constrained estimators as notebooks show them: scikit-learn's own view, and the constraints.

scikit-learn's view stays as it is, with its scripts; what follows it has none, loads nothing, and
escapes every text that a user chose.
"""

from __future__ import annotations

from collections.abc import Sequence
from html import escape
from typing import Any

from sklearn import get_config
from sklearn.utils import estimator_html_repr

from gbm_constrained.constraints.checking import check_constraints
from gbm_constrained.constraints.positive_class import name_positive_class
from gbm_constrained.reporting.html import badge, decimal, framed, interval, table
from gbm_constrained.reporting.latex import legend_of, math_of
from gbm_constrained.training.model_note import rules_of


def html_of(estimator: Any) -> str:
    """Write an estimator as HTML: its parameters, its constraints, and their report once fitted.

    Parameters
    ----------
    estimator : constrained classifier
        The estimator, fitted or not.
    """
    whole: str = estimator_html_repr(estimator)
    parts = [*_constraints(estimator), *_report(estimator)]
    return f"{whole}\n{framed(parts)}" if parts else whole


def mime_bundle(estimator: Any) -> dict[str, str]:
    """Make what notebooks choose from: the text, and HTML unless scikit-learn is told otherwise.

    Parameters
    ----------
    estimator : constrained classifier
        The estimator.
    """
    bundle = {"text/plain": repr(estimator)}
    if get_config()["display"] == "diagram":
        bundle["text/html"] = html_of(estimator)
    return bundle


def _constraints(estimator: Any) -> list[str]:
    classes = getattr(estimator, "classes_", None)
    try:
        constraints = check_constraints(estimator.constraints)
        if constraints and classes is not None:
            constraints = rules_of(estimator)
    except (TypeError, ValueError) as error:  # as fit would say; a view must not fail
        return ["<h2>Constraints</h2>", f"<p>{escape(str(error))}</p>"]
    if not constraints:
        return []
    if classes is None and estimator.positive is not None:
        constraints = tuple(name_positive_class(c, estimator.positive) for c in constraints)
    known: Sequence[Any] | None = None if classes is None else list(classes)
    formulas = [math_of(c, known) for c in constraints]
    names = [f"<code>{escape(str(c))}</code>" for c in constraints]
    rows = [list(row) for row in zip(names, formulas, strict=True)]
    shown = table(["Rule", "In symbols"], rows, left=(0, 1))
    return ["<h2>Constraints</h2>", shown, f'<p class="soft">{legend_of(formulas)}</p>']


def _report(estimator: Any) -> list[str]:
    report = getattr(estimator, "constraint_report_", None)
    if report is None:
        return []
    rows = [
        [
            f"<code>{escape(r['constraint'])}</code>",
            badge(r["verdict"]),
            f"{r['bound']:g}",
            decimal(r["train"]),
            decimal(r["held_out"]),
            interval(r["low"], r["high"]),
            escape(r["rows"]),
            decimal(r["multiplier"]),
        ]
        for r in report.to_dict("records")
    ]
    head = ["Rule", "Verdict", "Bound", "Training rows", "Unseen rows", "95% interval",
            "Verdict by", "Multiplier"]  # fmt: skip
    note = (
        "A rule is met when its value is on the right side of the bound, on the rows that the "
        "verdict is by; the interval says how sure that is. Values on training rows prove nothing "
        "about others."
    )
    shown = table(head, rows, left=(0, 1, 6))
    found = "<br>".join(escape(str(estimator.feasibility_)).splitlines())
    return [
        "<h2>Constraint report</h2>",
        shown,
        f"<p>{found}</p>",
        f'<p class="soft">{note}</p>',
    ]
