"""Audits and estimators as HTML without scripts and without links, with figures as inline SVG.

The templates escape every text that a user chose. Verdicts differ by word, symbol and colour.
"""

from __future__ import annotations

import functools
import io
import math
import re
from collections.abc import Callable, Iterable
from html import escape
from typing import Any

import numpy as np
import pandas as pd

from gbm_constrained._optional import import_optional
from gbm_constrained.evaluation.audit import VERDICTS
from gbm_constrained.reporting.plotting.history import ConstraintHistoryDisplay, MultipliersDisplay
from gbm_constrained.reporting.plotting.parts import GapPartsDisplay
from gbm_constrained.reporting.plotting.style import COLOURS, TEXT_COLOURS, literal, shorten
from gbm_constrained.reporting.plotting.tradeoff import (
    ConstraintIntervalsDisplay,
    TradeoffDisplay,
    plot_periods,
    plot_segments,
)

# Colours of matplotlib, and the variables of the style sheet that replace them.
TEXT, SOFT = "#010203", "#737373"
VARIABLES = {TEXT: "--text", SOFT: "--soft"} | {
    colour.lower(): f"--s{i}"
    for colours in (COLOURS, TEXT_COLOURS.values())
    for i, colour in enumerate(colours)
}
SYMBOLS: dict[str, str] = {
    "met": "\N{CHECK MARK}",
    "met on training rows": "?",
    "missed within sampling error": "\N{ALMOST EQUAL TO}",
    "cannot be told": "?",
    "missed": "\N{BALLOT X}",
    "cannot be met": "\N{EMPTY SET}",
}


def audit_figures(audit: Any) -> dict[str, str]:
    """Draw the figures of an audit as ``<svg>`` elements.

    The keys are ``intervals``, ``periods``, ``segments``, ``gap_parts``, ``tradeoff``,
    ``values`` and ``multipliers``, where data exist.
    """
    import_optional("matplotlib.figure", "Pages", "report")
    figures = {}
    if len(audit.frame):
        figures["intervals"] = inline_svg(
            ConstraintIntervalsDisplay(audit.frame).plot,
            0.25 + 0.8 * len(audit.frame),
            "Values and intervals of the constraints",
            "; ".join(
                f"{r['constraint']}: {r['value']:.4f}, interval {r['low']:.4f} to "
                f"{r['high']:.4f}, {r['verdict']}"
                for r in audit.frame.to_dict("records")
            ),
        )
    if len(audit.periods):
        shown = audit.periods.assign(constraint=_legend_names(audit.periods["constraint"]))
        figures["periods"] = inline_svg(
            lambda ax: plot_periods(shown, ax),
            3.2,
            "Values of the constraints by period",
            "; ".join(
                f"{name}: {', '.join(f'{value:.4f}' for value in part['value'])}"
                for name, part in shown.groupby("constraint", sort=False)
            ),
        )
    if len(audit.segments):
        figures["segments"] = inline_svg(
            lambda ax: plot_segments(audit.segments, ax),
            0.5 + 0.6 * len(audit.segments),
            "Values of segments and of the rest of the rows",
            "; ".join(
                f"{r['segment']}: {r['value']:.4f}, rest {r['rest']:.4f}"
                for r in audit.segments.to_dict("records")
            ),
        )
    if len(audit.gap_parts):
        figures["gap_parts"] = inline_svg(
            lambda ax: GapPartsDisplay(audit.gap_parts).plot(ax),
            1.2 + 0.32 * min(audit.gap_parts["feature"].nunique(), 13),
            "Parts of the features in a gap",
            "; ".join(
                f"{r['model']}, {r['feature']}: {r['part']:+.4f}"
                for r in audit.gap_parts.to_dict("records")
            ),
        )
    if len(audit.frame) and np.isfinite(audit.models["violation"]).sum() > 1:
        figures["tradeoff"] = _tradeoff(audit.models, audit.quality)
    if audit.history is not None and len(audit.history) > 1:
        figures |= _history(audit.history)
    return figures


def _legend_names(names: Iterable[str]) -> list[str]:
    """Cut names to what a legend has room for."""
    return [shorten(name, 80) for name in names]


def inline_svg(
    draw: Callable[[Any], object], height: float, title: str, description: str = ""
) -> str:
    """Draw into new axes, and write them as an ``<svg>`` element that a page can hold.

    The element follows the light or dark colours of the page, refers to nothing outside of itself,
    and is equal for equal data. `height` is that of the axes in inches; the legend goes below.
    """
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    coloured = ("text.color", "axes.edgecolor", "axes.labelcolor", "xtick.color", "ytick.color")
    style = {"svg.fonttype": "none", "font.size": 9.0, "axes.unicode_minus": False}
    style |= dict.fromkeys(coloured, TEXT)
    with rc_context({**style, "svg.hashsalt": title}):
        figure = Figure(figsize=(7.2, height), layout="constrained")
        ax = figure.subplots()
        draw(ax)
        if (legend := ax.get_legend()) is not None:  # Below the axes it hides no line.
            handles: Any = legend.legend_handles
            names = [text.get_text() for text in legend.get_texts()]
            legend.remove()
            columns = max(1, 100 // (8 + max(map(len, names))))
            figure.set_size_inches(7.2, height + 0.2 * math.ceil(len(names) / columns))
            figure.legend(handles, names, loc="outside lower left", ncols=columns, frameon=False)
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


def _tradeoff(models: pd.DataFrame, quality: str) -> str:
    name = "r2" if quality == "R^2" else "accuracy"
    ends = {"accuracy": name, "low": f"{name}_low", "high": f"{name}_high"}
    curve = models.rename(columns=ends).assign(model=_legend_names(models["model"]))

    def draw(ax: Any) -> None:
        TradeoffDisplay(curve).plot(ax, x="violation", bound=None, series="model")
        ax.set_xlabel("largest violation (value beyond its bound)")

    return inline_svg(
        draw,
        3.2,
        f"{quality} against the largest violation of a constraint",
        "; ".join(
            f"{r['model']}: {quality} {r['accuracy']:.4f}, largest violation {r['violation']:.4f}"
            for r in models.to_dict("records")
        ),
    )


def _history(history: pd.DataFrame) -> dict[str, str]:
    """Draw values and multipliers over the rounds."""
    # A figure of this width shows no more than 400 points of a line.
    at = np.unique(np.linspace(0, len(history) - 1, 400).astype(int))
    shown, last = history.iloc[at], history.iloc[-1]
    # A linear model has iterations of one round each.
    is_linear = history["rounds"].equals(history["iteration"])
    step = "iterations" if is_linear else "boosting rounds"
    values = ConstraintHistoryDisplay(shown, step)
    constraints = values.constraints
    names = dict(zip(constraints, map(literal, _legend_names(constraints)), strict=True))

    def ends(kind: str) -> str:
        return "; ".join(f"{name}: ends at {last[f'{kind}[{name}]']:.4f}" for name in names)

    def draw_values(ax: Any) -> None:
        values.plot(ax, names=names)
        ax.set_ylabel(shorten(ax.get_ylabel(), 40))

    def draw_multipliers(ax: Any) -> None:
        MultipliersDisplay(shown, step).plot(ax, names=names)

    values_title, title = "Values of the constraints while training", "Multipliers while training"
    return {
        "values": inline_svg(draw_values, 3.2, values_title, ends("value")),
        "multipliers": inline_svg(draw_multipliers, 3.0, title, ends("multiplier")),
    }


def head_of(audit: Any) -> list[tuple[str, str]]:
    """List what the head of a page says about the audit: names and texts."""
    made, whole = audit.provenance, audit.base_rates.head(1).drop(columns=["group", "rows"])
    rates = [
        f"{_name_rate(name)}: {decimal(float(values.iloc[0]))}" for name, values in whole.items()
    ]
    found = {
        "Model file": made.get("file"),
        "Date": made.get("date"),
        "Rows": f"{audit.n_rows:,}",
        "Base rates" if audit.classes else "Targets": ", ".join(rates),
        "Versions": ", ".join(f"{name} {text}" for name, text in made.get("versions", {}).items()),
        "Parameters": ", ".join(f"{k}={text}" for k, text in made.get("parameters", {}).items()),
    }
    return [(name, text) for name, text in found.items() if text]


def _name_rate(column: str) -> str:
    """Name what a column of base rates is about: a class, or a measure of targets."""
    return {"std": "standard deviation"}.get(column, re.sub(r"^share\[(.*)\]$", r"\1", column))


def tabulate_base_rates(frame: pd.DataFrame) -> pd.DataFrame:
    """Write the base rates of groups as texts, in a table whose longer side runs down."""
    texts = pd.DataFrame({"Rows": frame["rows"].map("{:,}".format)})
    for name in frame.columns.drop(["group", "rows"]):
        of_class = name.startswith("share[")
        shown = f"Share of {_name_rate(name)}" if of_class else _name_rate(name).capitalize()
        texts[shown] = frame[name].map(decimal)
    texts.index = frame["group"]
    return texts.T if texts.shape[1] > max(7, len(texts)) else texts


def render_audit(template: str, element: str, audit: Any, figures: dict[str, str]) -> str:
    """Write an audit as a document of its own, or as one element."""
    history = () if audit.history is None else audit.history
    return render(
        template,
        element=element,
        audit=audit,
        figures=figures,
        verdicts=VERDICTS,
        head=head_of(audit),
        base_rates=tabulate_base_rates(audit.base_rates),
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
