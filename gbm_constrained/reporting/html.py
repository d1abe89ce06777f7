"""An audit as one page of HTML: no scripts, nothing loaded, readable in light and dark.

Verdicts are told apart by word, shape and colour. Every text that a user chose is escaped.
"""

from __future__ import annotations

import math
from collections.abc import Iterable, Sequence
from html import escape
from typing import Any

import pandas as pd

from gbm_constrained.reporting import svg

ROOT = "gbm-audit"
SYMBOLS: dict[str, str] = {
    "met": "\N{CHECK MARK}",
    "missed within sampling error": "\N{ALMOST EQUAL TO}",
    "cannot be told": "?",
    "missed": "\N{BALLOT X}",
    "cannot be met": "\N{EMPTY SET}",
}
# Colours have a contrast of 4.5 at least with the background.
_LIGHT = """--text:#1b1f24;--soft:#57606a;--back:#ffffff;--band:#f3f5f7;--rule:#d0d7de;
--met:#00694d;--missed:#b03a00;--open:#6b5300;--allowed:#e3efe9;
--s0:#0060a0;--s1:#b34a00;--s2:#00734f;--s3:#9b3b76;--s4:#7d5a00;--s5:#3f5fae"""
_DARK = """--text:#e6e9ec;--soft:#a2abb4;--back:#15181c;--band:#1f242a;--rule:#3a424b;
--met:#4fd1a5;--missed:#ff9d6e;--open:#e3c45d;--allowed:#1d3129;
--s0:#69b7f0;--s1:#ffa061;--s2:#4fd1a5;--s3:#eaa0cd;--s4:#e3c45d;--s5:#a5b8ff"""
_RULES = (
    ("", "color:var(--text);background:var(--back);font:16px/1.5 system-ui,sans-serif;"
         "max-width:60rem;margin:0 auto;padding:1rem 1.5rem 2rem;color-scheme:light dark"),
    ("h1", "font-size:1.6rem;margin:.5rem 0 .25rem;font-weight:650;"
           "overflow-wrap:anywhere"),
    ("h2", "font-size:1.15rem;margin:2rem 0 .5rem;font-weight:650"),
    (".headline", "font-size:1.2rem;margin:0 0 .5rem"),
    ("p", "margin:.25rem 0 .5rem"),
    (".soft", "color:var(--soft);font-size:.9rem"),
    (".wide", "overflow-x:auto"),
    ("table", "border-collapse:collapse;width:100%;font-size:.92rem;margin:0;color:inherit"),
    ("th, td", "padding:.4rem .6rem;border-bottom:1px solid var(--rule);text-align:right;"
               "vertical-align:top;font-variant-numeric:tabular-nums;background:none;"
               "color:inherit"),
    ("thead th", "background:var(--band);font-weight:600;white-space:nowrap"),
    ("th.left, td.left", "text-align:left"),
    ("tbody th", "font-weight:400;overflow-wrap:anywhere;min-width:14rem"),
    ("td", "white-space:nowrap"),
    ("code", "font-family:ui-monospace,monospace;font-size:.95em;background:none;color:inherit"),
    (".badge", "font-weight:650;white-space:nowrap"),
    (".met", "--own:var(--met)"),
    (".missed, .cannot-be-met", "--own:var(--missed)"),
    (".missed-within-sampling-error, .cannot-be-told", "--own:var(--open)"),
    (".badge", "color:var(--own)"),
    ("figure", "margin:.5rem 0 0"),
    ("figcaption", "color:var(--soft);font-size:.9rem"),
    ("svg.chart", "display:block;width:100%;min-width:34rem;max-width:760px;height:auto;"
                  "font-size:13px;"
                  "font-family:system-ui,sans-serif"),
    ("svg text", "fill:var(--text);stroke:none"),
    ("svg .tick", "fill:var(--soft);font-size:12px"),
    ("svg .label", "fill:var(--soft)"),
    ("svg .name", "font-family:ui-monospace,monospace;font-size:12px"),
    ("svg .verdict", "fill:var(--own);font-weight:650"),
    ("svg .grid", "stroke:var(--rule);stroke-width:.6"),
    ("svg .axis", "stroke:var(--soft);stroke-width:1"),
    ("svg .allowed", "fill:var(--allowed)"),
    ("svg .bound", "stroke:var(--text);stroke-width:2"),
    ("svg .bar", "fill:var(--own);opacity:.45"),
    ("svg .mark", "fill:var(--own);stroke:var(--back);stroke-width:1.5"),
    ("svg .line", "fill:none;stroke:var(--own);stroke-width:2;stroke-linejoin:round"),
    ("svg .dashed", "stroke-dasharray:7 4;stroke-width:1.6"),
    ("svg .dotted", "stroke-dasharray:2 3;stroke-width:1.6"),
    ("svg .point line", "stroke:var(--own);stroke-width:2.5;opacity:.6"),
    *((f".s{i}", f"--own:var(--s{i})") for i in range(svg.N_COLOURS)),
)  # fmt: skip


def _style_sheet() -> str:
    """Write the style sheet, all of it below the class of the audit: a notebook has others."""
    lines = [f".{ROOT}{{{_LIGHT}}}", f"@media (prefers-color-scheme:dark){{.{ROOT}{{{_DARK}}}}}"]
    for selectors, declarations in _RULES:
        scoped = ",".join(f".{ROOT} {part.strip()}".strip() for part in selectors.split(","))
        lines.append(f"{scoped}{{{declarations}}}")
    lines.append(f"@media print{{.{ROOT} figure,.{ROOT} table{{break-inside:avoid}}}}")
    return "<style>\n" + "\n".join(lines) + "\n</style>"


def page(audit: Any) -> str:
    """Write an audit as a document of its own.

    Parameters
    ----------
    audit : Audit
        The audit.
    """
    title = escape(f"Audit of {audit.model}")
    back = f"<style>body{{margin:0;background:{_value(_LIGHT)}}}@media (prefers-color-scheme:dark)"
    back += f"{{body{{background:{_value(_DARK)}}}}}</style>"
    return (
        '<!DOCTYPE html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{title}</title>\n{back}\n</head>\n<body>\n{section(audit, 'main')}\n"
        "</body>\n</html>\n"
    )


def _value(palette: str) -> str:
    return palette.partition("--back:")[2].partition(";")[0]


def section(audit: Any, element: str = "div") -> str:
    """Write an audit as one element with its style, as a notebook shows it.

    Parameters
    ----------
    audit : Audit
        The audit.
    element : str
        Name of the element.
    """
    a = audit.accuracy
    percent = f"{100 * audit.level:g}%"
    about = (
        f"Accuracy {decimal(a.value)} ({percent} interval {decimal(a.low)} to "
        f"{decimal(a.high)})"
        f"{', all rates weighted' if audit.weighted else ''}. Classes: "
        f"{', '.join(map(str, audit.classes))}"
        f"{'; rates without a class are about 1' if audit.classes == (0, 1) else ''}."
    )
    parts = [
        f"<h1>Audit of {escape(audit.model)}</h1>",
        f'<p class="headline">{escape(audit.headline)}</p>',
        f'<p class="soft">{escape(about)}</p>',
    ]
    if len(audit.frame):
        parts += [*_rules(audit, percent), *_intervals(audit, percent)]
    if len(audit.groups):
        parts += _groups(audit, percent)
    parts += _trade_off(audit, percent)
    if audit.history is not None:
        parts += _training(audit.history)
    return framed(parts, element)


def framed(parts: Iterable[str], element: str = "div") -> str:
    """Put parts into one element, below the style sheet."""
    content = "\n".join(parts)
    return f'<{element} class="{ROOT}" lang="en">\n{_style_sheet()}\n{content}\n</{element}>'


def decimal(value: float) -> str:
    """Write a number with four decimals; a dash where there is none."""
    if math.isnan(value):
        return "\N{EN DASH}"
    return f"{value:.4f}" if math.isfinite(value) else "\N{INFINITY}".rjust(1 + (value < 0), "-")


def interval(low: float, high: float) -> str:
    """Write both ends of an interval."""
    return decimal(low) if math.isnan(low) else f"{decimal(low)} to {decimal(high)}"


def badge(verdict: str) -> str:
    """Write a verdict in its colour and with its symbol."""
    return f'<span class="badge {svg.class_of(verdict)}">{SYMBOLS[verdict]} {verdict}</span>'


def table(
    head: Sequence[str], rows: Iterable[Sequence[str]], *, left: Sequence[int] = (0,)
) -> str:
    """Write a table whose first column names the rows; cells are HTML."""

    def classed(j: int) -> str:
        return ' class="left"' if j in left else ""

    top = "".join(
        f'<th scope="col"{classed(j)}>{escape(name)}</th>' for j, name in enumerate(head)
    )
    body = []
    for row in rows:
        cells = "".join(f"<td{classed(j)}>{cell}</td>" for j, cell in enumerate(row) if j)
        body.append(f'<tr><th scope="row"{classed(0)}>{row[0]}</th>{cells}</tr>')
    joined = "\n".join(body)
    return (
        f'<div class="wide"><table>\n<thead><tr>{top}</tr></thead>\n<tbody>\n{joined}\n</tbody>\n'
        "</table></div>"
    )


def _rules(audit: Any, percent: str) -> list[str]:
    rows = [
        [
            f"<code>{escape(r['constraint'])}</code>",
            badge(r["verdict"]),
            decimal(r["value"]),
            interval(r["low"], r["high"]),
            escape(f"{'≤' if r['sense'] == '<=' else '≥'} {r['bound']:g}"),
            f"{r['rows']:,}",
            escape(r["detail"]),
        ]
        for r in audit.frame.to_dict("records")
    ]
    head = ["Rule", "Verdict", "Value", f"{percent} interval", "Bound", "Rows", "In words"]
    note = (
        "A rule is met when its value is on the right side of the bound. A rule is missed within "
        "sampling error when the value is on the wrong side and the interval reaches the bound, "
        "and missed when the whole interval is on the wrong side."
    )
    return ["<h2>Rules</h2>", table(head, rows, left=(0, 1, 6)), f'<p class="soft">{note}</p>']


def _intervals(audit: Any, percent: str) -> list[str]:
    columns = ("constraint", "sense", "verdict", "bound", "value", "low", "high")
    rules = [svg.Interval(*(r[name] for name in columns)) for r in audit.frame.to_dict("records")]
    spoken = "; ".join(
        f"{r.name}: {decimal(r.value)}, interval {interval(r.low, r.high)}, {r.verdict}"
        for r in rules
    )
    title = "Values and intervals of the rules"
    chart = svg.interval_chart(rules, title=title, description=spoken)
    caption = (
        f"Each rule has an axis of its own. Vertical line: the bound; shaded: the side that is "
        f"allowed; bar: the {percent} interval; point: the value (disc, met; square, missed "
        f"within sampling error; diamond, missed; triangle, cannot be told)."
    )
    return ["<h2>Intervals</h2>", _figure(chart, caption)]


def _figure(chart: str, caption: str) -> str:
    below = f"<figcaption>{escape(caption)}</figcaption>"
    return f'<figure><div class="wide">{chart}</div>{below}</figure>'


def _groups(audit: Any, percent: str) -> list[str]:
    rows = [
        [
            escape(r["group"]),
            f"<code>{escape(r['constraint'])}</code>",
            f"{r['rows']:,}",
            decimal(r["rate"]),
            interval(r["low"], r["high"]),
        ]
        for r in audit.groups.to_dict("records")
    ]
    head = ["Group", "Rule", "Rows", "Rate", f"{percent} interval"]
    return ["<h2>Groups</h2>", table(head, rows, left=(0, 1))]


def _trade_off(audit: Any, percent: str) -> list[str]:
    models = audit.models.to_dict("records")
    if not len(audit.frame) and len(models) == 1:
        return []
    parts = ["<h2>Trade-off</h2>"]
    drawn = [(r["model"], r["violation"], r["accuracy"], r["low"], r["high"]) for r in models]
    if any(math.isfinite(point[1]) for point in drawn):
        spoken = "; ".join(
            f"{name}: accuracy {decimal(y)}, largest violation {decimal(x)}"
            for name, x, y, _, _ in drawn
        )
        chart = svg.scatter(
            drawn,
            title="Accuracy against the largest violation of a rule",
            description=spoken,
            x_label="largest violation (value beyond its bound)",
            y_label="accuracy",
        )
        caption = f"Vertical bars: {percent} intervals of accuracy. A model that keeps all bounds "
        parts.append(_figure(chart, caption + "by value stands at zero, on the left."))
    kinds = [kind for kind in SYMBOLS if kind in audit.models]
    rows = [
        [
            escape(r["model"]),
            decimal(r["accuracy"]),
            interval(r["low"], r["high"]),
            decimal(r["violation"]),
            *(str(r[kind]) for kind in kinds),
        ]
        for r in models
    ]
    head = ["Model", "Accuracy", f"{percent} interval", "Violation"]
    head += [kind.capitalize() for kind in kinds]
    return [*parts, table(head, rows)]


def _training(history: pd.DataFrame) -> list[str]:
    columns = [str(column) for column in history]
    names = [c.removeprefix("value[")[:-1] for c in columns if c.startswith("value[")]
    rounds = history["rounds"].astype(float).tolist()
    # A linear model has no boosting rounds: it counts its iterations, of one round each.
    steps = "iterations" if history["rounds"].equals(history["iteration"]) else "boosting rounds"
    values, multipliers, bounds = [], [], []
    for j, name in enumerate(names):
        values.append(svg.Line(name, _floats(history, f"value[{name}]"), j))
        values.append(svg.Line("", _floats(history, f"bound[{name}]"), j, "dotted"))
        bounds += [abs(b) for b in _floats(history, f"bound[{name}]") if abs(b) > 0]
        if f"held_out[{name}]" in columns:
            values.append(svg.Line("", _floats(history, f"held_out[{name}]"), j, "dashed"))
        multipliers.append(svg.Line(name, _floats(history, f"multiplier[{name}]"), j))
    paths = svg.line_chart(
        rounds,
        values,
        title="Values of the rules while training",
        description=_ends("value", names, history),
        y_label="value (logarithmic beyond the smallest bound)" if bounds else "value",
        x_label=steps,
        linear_below=min(bounds) if bounds else None,
    )
    duals = svg.line_chart(
        rounds,
        multipliers,
        title="Multipliers while training",
        description=_ends("multiplier", names, history),
        x_label=steps,
        y_label="multiplier",
    )
    caption = "Solid: on the training rows; dotted: the bound"
    held_out = any(c.startswith("held_out[") for c in columns)
    caption += "; dashed: on rows that the trees had not seen." if held_out else "."
    return [
        "<h2>Training</h2>",
        _figure(paths, caption),
        _figure(duals, "Multipliers: what the objective would gain by a looser bound."),
    ]


def _floats(history: pd.DataFrame, column: str) -> list[float]:
    return [float(value) for value in history[column]]


def _ends(kind: str, names: Sequence[str], history: pd.DataFrame) -> str:
    """Where paths end, for those who do not see them."""

    def last(name: str) -> Any:
        return history[f"{kind}[{name}]"].iloc[-1]

    return "; ".join(f"{name}: ends at {decimal(float(last(name)))}" for name in names)
