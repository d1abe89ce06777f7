"""Audits and estimators as HTML without scripts and without links, for light and dark screens.

The templates escape every text that a user chose. Verdicts differ by word, symbol and colour.
"""

from __future__ import annotations

import functools
import importlib.util
import math
from typing import Any

import pandas as pd

from gbm_constrained._optional import import_optional
from gbm_constrained.evaluation.audit import VERDICTS

SYMBOLS: dict[str, str] = {
    "met": "\N{CHECK MARK}",
    "met on training rows": "?",
    "missed within sampling error": "\N{ALMOST EQUAL TO}",
    "cannot be told": "?",
    "missed": "\N{BALLOT X}",
    "cannot be met": "\N{EMPTY SET}",
}


def page(audit: Any) -> str:
    """Write an audit as a document of its own, with figures."""
    from gbm_constrained.reporting.figures import audit_figures

    return _render_audit("page.html", "main", audit, audit_figures(audit))


def section(audit: Any) -> str:
    """Write an audit as one element, with figures where matplotlib is installed."""
    figures: dict[str, str] = {}
    if importlib.util.find_spec("matplotlib") is not None:
        from gbm_constrained.reporting.figures import audit_figures

        figures = audit_figures(audit)
    return _render_audit("audit.html", "div", audit, figures)


def _render_audit(template: str, element: str, audit: Any, figures: dict[str, str]) -> str:
    history = () if audit.history is None else audit.history
    return render(
        template,
        element=element,
        audit=audit,
        figures=figures,
        verdicts=VERDICTS,
        has_held_out=any(str(name).startswith("held_out[") for name in history),
    )


def render(template: str, **context: Any) -> str:
    """Fill in a template of ``reporting/templates``."""
    written: str = _environment().get_template(template).render(context)
    return written


@functools.cache
def _environment() -> Any:
    jinja2 = import_optional("jinja2", "Pages", "report")
    environment = jinja2.Environment(
        loader=jinja2.PackageLoader(__package__),
        autoescape=True,
        trim_blocks=True,
        lstrip_blocks=True,
        undefined=jinja2.StrictUndefined,
    )
    environment.filters |= {
        "decimal": decimal, "drift": drift, "interval": interval, "symbol": SYMBOLS.get,
    }  # fmt: skip
    return environment


def decimal(value: float) -> str:
    """Write a number with four decimals, and a dash where there is none."""
    if math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:.4f}" if math.isfinite(value) else "\N{INFINITY}".rjust(1 + (value < 0), "-")


def drift(drifts: Any) -> str:
    """Write whether a value drifts, and a dash where that is not known."""
    return "\N{EN DASH}" if drifts is pd.NA else "yes" if drifts else "no"


def interval(record: dict[str, Any]) -> str:
    """Write both ends of an interval, ``low`` to ``high``."""
    low, high = record["low"], record["high"]
    return decimal(low) if math.isnan(low) else f"{decimal(low)} to {decimal(high)}"
