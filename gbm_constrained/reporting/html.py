"""Audits and estimators as HTML without scripts and without links, with figures as inline SVG.

The templates escape every text that a user chose. Verdicts differ by word, symbol and colour.
"""

from __future__ import annotations

import functools
import importlib.util
import io
import math
import re
from collections.abc import Callable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._optional import import_optional
from gbm_constrained.evaluation.audit import VERDICTS
from gbm_constrained.reporting.plotting.history import ConstraintHistoryDisplay, MultipliersDisplay
from gbm_constrained.reporting.plotting.style import COLOURS, literal, shorten
from gbm_constrained.reporting.plotting.tradeoff import (
    ConstraintIntervalsDisplay,
    TradeoffDisplay,
    plot_periods,
)

MAX_NAME = 80  # Most characters of a name in a legend.
MAX_POINTS = 400  # Most points of a line; a figure of this width shows no more.
WIDTH = 7.2  # Width of a figure in inches.
# Colours of matplotlib, and the variables of the style sheet that replace them.
TEXT, SOFT = "#010203", "#737373"
VARIABLES = {TEXT: "--text", SOFT: "--soft"} | {
    colour.lower(): f"--s{i}" for i, colour in enumerate(COLOURS)
}
STYLE = {
    "svg.fonttype": "none",
    "font.size": 9.0,
    "axes.unicode_minus": False,
    **dict.fromkeys(
        ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color"), TEXT
    ),
}


def audit_figures(audit: Any) -> dict[str, str]:
    """Draw the figures of an audit as ``<svg>`` elements.

    The keys are ``intervals``, ``periods``, ``tradeoff``, ``values`` and ``multipliers``, where
    data exist.
    """
    import_optional("matplotlib.figure", "Pages", "report")
    figures = {}
    if len(audit.frame):
        figures["intervals"] = _intervals(audit.frame)
    if len(audit.periods):
        figures["periods"] = _periods(audit.periods)
    if np.isfinite(audit.models["violation"]).any():
        figures["tradeoff"] = _tradeoff(audit.models)
    if audit.history is not None:
        figures |= _history(audit.history)
    return figures


def inline_svg(
    draw: Callable[[Any], object], height: float, title: str, description: str = ""
) -> str:
    """Draw into new axes, and write them as an ``<svg>`` element that a page can hold.

    The element follows the light or dark colours of the page, refers to nothing outside of itself,
    and is equal for equal data. `height` is that of the axes in inches; the legend goes below.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    with rc_context({**STYLE, "svg.hashsalt": title}):
        figure = Figure(figsize=(WIDTH, height), layout="constrained")
        ax = figure.subplots()
        draw(ax)
        if ax.get_legend() is not None:
            _move_legend_below(figure, ax)
        file = io.StringIO()
        figure.savefig(file, format="svg", transparent=True)
    svg = file.getvalue()
    for colour, variable in VARIABLES.items():
        svg = svg.replace(colour, f"var({variable})")
    # The head has the date and links; the style would be that of the whole page.
    svg = re.sub(r"<(metadata|style).*?</\1>", "", svg[svg.index("<svg") :], flags=re.DOTALL)
    references = set(re.findall(r'(?:href="|url\()#([^")]+)', svg))
    svg = re.sub(r' id="([^"]+)"', lambda m: m[0] if m[1] in references else "", svg)
    box = re.search('viewBox="[^"]*"', svg)
    assert box is not None
    spaces = 'xmlns="http://www.w3.org/2000/svg" xmlns:xlink="http://www.w3.org/1999/xlink"'
    return (
        f'<svg class="chart" role="img" {box[0]} {spaces}><title>{escape(title)}</title>'
        f"<desc>{escape(description)}</desc>{svg[svg.index('>') + 1 :].strip()}"
    )


def _move_legend_below(figure: Any, ax: Any) -> None:
    """Replace the legend of axes by one below them, where it hides no line."""
    handles = ax.get_legend().legend_handles
    names = [text.get_text() for text in ax.get_legend().get_texts()]
    ax.get_legend().remove()
    columns = max(1, 100 // (8 + max(map(len, names))))
    width, height = figure.get_size_inches()
    figure.set_size_inches(width, height + 0.2 * math.ceil(len(names) / columns))
    figure.legend(handles, names, loc="outside lower left", ncols=columns, frameon=False)


def _intervals(frame: pd.DataFrame) -> str:
    display = ConstraintIntervalsDisplay(frame)
    return inline_svg(
        display.plot,
        0.25 + 0.8 * len(frame),
        "Values and intervals of the constraints",
        "; ".join(
            f"{r['constraint']}: {r['value']:.4f}, interval {r['low']:.4f} to {r['high']:.4f}, "
            f"{r['verdict']}"
            for r in frame.to_dict("records")
        ),
    )


def _periods(periods: pd.DataFrame) -> str:
    names = [shorten(name, MAX_NAME) for name in periods["constraint"]]
    shown = periods.assign(constraint=names)
    return inline_svg(
        lambda ax: plot_periods(shown, ax),
        3.2,
        "Values of the constraints by period",
        "; ".join(
            f"{name}: {', '.join(f'{value:.4f}' for value in part['value'])}"
            for name, part in shown.groupby("constraint", sort=False)
        ),
    )


def _tradeoff(models: pd.DataFrame) -> str:
    curve = models.rename(columns={"low": "accuracy_low", "high": "accuracy_high"})
    curve = curve.assign(model=[shorten(name, MAX_NAME) for name in curve["model"]])

    def draw(ax: Any) -> None:
        TradeoffDisplay(curve).plot(ax, x="violation", bound=None, series="model")
        right = ax.get_xlim()[1]
        ax.set_xlim(-0.04 * right, right)  # Models that meet all bounds stand at zero.
        ax.set_xlabel("largest violation (value beyond its bound)")

    return inline_svg(
        draw,
        3.2,
        "Accuracy against the largest violation of a constraint",
        "; ".join(
            f"{r['model']}: accuracy {r['accuracy']:.4f}, largest violation {r['violation']:.4f}"
            for r in models.to_dict("records")
        ),
    )


def _history(history: pd.DataFrame) -> dict[str, str]:
    """Draw values and multipliers over the rounds."""
    at = np.unique(np.linspace(0, len(history) - 1, MAX_POINTS).astype(int))
    shown, last, step = history.iloc[at], history.iloc[-1], find_step(history)
    values = ConstraintHistoryDisplay(shown, step)
    names = {name: literal(shorten(name, MAX_NAME)) for name in values.constraints}

    def ends(kind: str) -> str:
        return "; ".join(f"{name}: ends at {last[f'{kind}[{name}]']:.4f}" for name in names)

    def draw_values(ax: Any) -> None:
        values.plot(ax, names=names)
        ax.set_ylabel(shorten(ax.get_ylabel(), 40))

    def draw_multipliers(ax: Any) -> None:
        MultipliersDisplay(shown, step).plot(ax, names=names)

    title = "Values of the constraints while training"
    values_svg = inline_svg(draw_values, 3.2, title, ends("value"))
    title = "Multipliers while training"
    return {
        "values": values_svg,
        "multipliers": inline_svg(draw_multipliers, 3.0, title, ends("multiplier")),
    }


def find_step(history: pd.DataFrame) -> str:
    """Name the unit of a history: a linear model has iterations of one round each."""
    is_linear = history["rounds"].equals(history["iteration"])
    return "iterations" if is_linear else "boosting rounds"


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
    return _render_audit("page.html", "main", audit, audit_figures(audit))


def section(audit: Any) -> str:
    """Write an audit as one element, with figures where matplotlib is installed."""
    figures: dict[str, str] = {}
    if importlib.util.find_spec("matplotlib") is not None:
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
