"""Charts as inline SVG: what one page without scripts or libraries needs, and no more.

Every chart is one ``<svg>`` element whose colours are classes of the page's style sheet, so that
it follows a light or dark page. Texts are escaped here; nothing refers to anything outside.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from html import escape

WIDTH = 720
CHARACTER = 7.2  # pixels of one at the size of the charts, generously
N_COLOURS = 6  # of the style sheet: classes s0, s1, ...
MOST_POINTS = 400  # of a line; more are not told apart
MOST_MARKERS = 8  # of a line, about
# Shapes of points, by the kind of a verdict: disc, diamond, triangle, square.
SHAPES = {"met": 0, "missed": 1, "cannot be told": 2, "missed within sampling error": 3}


def tag(name: str, content: str = "", /, **attributes: object) -> str:
    """Write one element; names of attributes have ``_`` for ``-``, values are escaped."""
    written = "".join(
        f' {key.rstrip("_").replace("_", "-")}="{escape(_text(value))}"'
        for key, value in attributes.items()
        if value is not None
    )
    return f"<{name}{written}>{content}</{name}>"


def _text(value: object) -> str:
    return f"{value:.1f}".removesuffix(".0") if isinstance(value, float) else str(value)


def text(content: str, x: float, y: float, anchor: str = "start", **attributes: object) -> str:
    """Write a text at a point."""
    return tag("text", escape(content), x=float(x), y=float(y), text_anchor=anchor, **attributes)


def shorten(content: str, pixels: float) -> str:
    """Cut a text to a width, with an ellipsis."""
    most = max(int(pixels / CHARACTER), 2)
    return content if len(content) <= most else content[: most - 1] + "\N{HORIZONTAL ELLIPSIS}"


def figure(content: str, height: float, title: str, description: str) -> str:
    """Wrap a chart's elements, with what a screen reader says of it."""
    head = tag("title", escape(title)) + tag("desc", escape(description))
    return tag(
        "svg",
        head + content,
        xmlns="http://www.w3.org/2000/svg",
        viewBox=f"0 0 {WIDTH} {math.ceil(height)}",
        role="img",
        class_="chart",
    )


def class_of(verdict: str) -> str:
    """Return the class of elements that have the colour of a verdict."""
    return verdict.replace(" ", "-")


def marker(kind: int | str, x: float, y: float, **attributes: object) -> str:
    """Draw a point, told apart by shape: 0 or "met" a disc, 1 or "missed" a diamond, ..."""
    shape = SHAPES.get(str(kind), kind)
    assert isinstance(shape, int)
    attributes = {"class_": "mark", **attributes}
    if shape % 4 == 0:
        return tag("circle", cx=float(x), cy=float(y), r=6, **attributes)
    corners = {
        1: ((0, -7.5), (7.5, 0), (0, 7.5), (-7.5, 0)),
        2: ((0, -7), (7, 6), (-7, 6)),
        3: ((-5.5, -5.5), (5.5, -5.5), (5.5, 5.5), (-5.5, 5.5)),
    }[shape % 4]
    points = " ".join(f"{x + dx:.1f},{y + dy:.1f}" for dx, dy in corners)
    return tag("polygon", points=points, **attributes)


def nice_ticks(low: float, high: float, most: int = 6) -> list[float]:
    """Round numbers between two: multiples of 1, 2 or 5 times a power of ten."""
    span = high - low
    if not span > 0 or not math.isfinite(span):
        return [low]
    step = 10.0 ** math.floor(math.log10(span / most))
    step = next(step * f for f in (1, 2, 5, 10) if span / (step * f) <= most)
    first = math.ceil(low / step - 1e-9)
    return [i * step for i in range(first, math.floor(high / step + 1e-9) + 1)]


def number(value: float) -> str:
    """Write a tick or a value, short."""
    return f"{value + 0.0:.6g}" if math.isfinite(value) else str(value)


@dataclass(frozen=True)
class Scale:
    """From data to pixels.

    Parameters
    ----------
    low, high : float
        Ends in data.
    start, stop : float
        The same in pixels.
    linear_below : float, default=None
        Linear up to here, on both sides of zero, and logarithmic beyond, rather than linear
        throughout.
    """

    low: float
    high: float
    start: float
    stop: float
    linear_below: float | None = None

    def _bend(self, value: float) -> float:
        if self.linear_below is None:
            return value
        ratio = abs(value) / self.linear_below
        bent = ratio if ratio <= 1.0 else 1.0 + 2.0 * math.log10(ratio)
        return math.copysign(bent, value)

    def __call__(self, value: float) -> float:
        """Pixel of a value; values beyond the ends stay at them."""
        low, high = self._bend(self.low), self._bend(self.high)
        share = (self._bend(value) - low) / (high - low)
        return self.start + min(max(share, 0.0), 1.0) * (self.stop - self.start)

    def ticks(self, most: int = 6) -> list[float]:
        """Values to write at the axis."""
        linear, furthest = self.linear_below, max(self.high, -self.low)
        if linear is None or furthest <= linear:
            return nice_ticks(self.low, self.high, most)
        sizes = [linear]
        for power in range(math.floor(math.log10(linear)), math.ceil(math.log10(furthest)) + 1):
            sizes += [c for f in (1, 2, 5) if (c := f * 10.0**power) > linear * 1.5]
        near = 1 + 1e-9
        below = [-size for size in reversed(sizes) if -size >= self.low * near]
        return [*below, 0.0, *(size for size in sizes if size <= self.high * near)]


@dataclass(frozen=True)
class Line:
    """One line of a chart.

    Parameters
    ----------
    name : str
        What the legend calls it; empty for none.
    y : sequence of float
        Values; missing ones break nothing, they are left out.
    colour : int
        Position of its colour; beyond the last, colours come again with markers.
    style : {"solid", "dashed", "dotted"}
        How it is drawn.
    """

    name: str
    y: Sequence[float]
    colour: int = 0
    style: str = "solid"

    @property
    def css(self) -> str:
        """Classes of the style sheet."""
        return f"line {self.style} s{self.colour % N_COLOURS}"

    def markers(self, points: Sequence[tuple[float, float]]) -> str:
        """Draw markers at some pixels where another line has the same colour."""
        again = self.colour // N_COLOURS
        if not again:
            return ""
        drawn = "".join(marker(again - 1, *point) for point in points)
        return tag("g", drawn, class_=f"s{self.colour % N_COLOURS}")


@dataclass
class _Frame:
    """Axes with grid, ticks and labels."""

    x: Scale
    y: Scale
    x_label: str
    y_label: str
    parts: list[str] = field(default_factory=list)

    def draw(self) -> None:
        left, right, bottom, top = self.x.start, self.x.stop, self.y.start, self.y.stop
        for value in self.y.ticks():
            at = self.y(value)
            self.parts.append(tag("line", x1=left, x2=right, y1=at, y2=at, class_="grid"))
            self.parts.append(text(number(value), left - 8, at + 4, "end", class_="tick"))
        for value in self.x.ticks(8):
            at = self.x(value)
            self.parts.append(tag("line", x1=at, x2=at, y1=bottom, y2=top, class_="grid"))
            self.parts.append(text(number(value), at, bottom + 18, "middle", class_="tick"))
        self.parts.append(tag("line", x1=left, x2=right, y1=bottom, y2=bottom, class_="axis"))
        self.parts.append(tag("line", x1=left, x2=left, y1=bottom, y2=top, class_="axis"))
        middle = (left + right) / 2
        self.parts.append(text(self.x_label, middle, bottom + 40, "middle", class_="label"))
        self.parts.append(text(self.y_label, left, top - 12, "start", class_="label"))


def _legend(
    entries: Sequence[tuple[str, Callable[[float, float], str]]], top: float
) -> tuple[str, float]:
    """Lay out legend entries, as many in a line as fit; and the height they take."""
    parts, x, y = [], 64.0, top
    for name, draw in entries:
        shown = shorten(name, WIDTH - 64 - 60)
        width = 52 + CHARACTER * len(shown)
        if x + width > WIDTH and x > 64.0:
            x, y = 64.0, y + 22
        parts += [draw(x, y), text(shown, x + 36, y + 4)]
        x += width
    return "".join(parts), y - top + 22


def line_chart(
    x: Sequence[float],
    lines: Sequence[Line],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
    linear_below: float | None = None,
) -> str:
    """Draw lines over a common x, with a legend.

    Parameters
    ----------
    x : sequence of float
        Horizontal positions.
    lines : sequence of Line
        What is drawn.
    title, description, x_label, y_label : str
        What it is called, and what the axes are called.
    linear_below : float, default=None
        As in :class:`Scale`.
    """
    values = [v for line in lines for v in line.y if math.isfinite(v)]
    low, high = min([*values, 0.0]), max([*values, 0.0])
    high = 1.0 if high == low else high
    wide = max(max(x, default=1.0), min(x, default=0.0) + 1.0)
    across = Scale(min(x, default=0.0), wide, 64.0, WIDTH - 16.0)
    up = Scale(low * 1.03, high * 1.03, 254.0, 34.0, linear_below)
    frame = _Frame(across, up, x_label, y_label)
    frame.draw()
    for line in lines:
        points = [(a, b) for a, b in zip(x, line.y, strict=True) if math.isfinite(b)]
        every = max(len(points) // MOST_POINTS, 1)
        kept = points[::every] + ([points[-1]] if points and (len(points) - 1) % every else [])
        pixels = [(across(a), up(b)) for a, b in kept]
        path = " ".join(f"{a:.1f},{b:.1f}" for a, b in pixels)
        frame.parts.append(tag("polyline", points=path, class_=line.css))
        frame.parts.append(line.markers(pixels[:: max(len(pixels) // MOST_MARKERS, 1)]))

    def sample(line: Line) -> Callable[[float, float], str]:
        return lambda at, y: (
            tag("line", x1=at, x2=at + 28, y1=y, y2=y, class_=line.css)
            + line.markers([(at + 14, y)])
        )

    legend, taken = _legend([(line.name, sample(line)) for line in lines if line.name], 320.0)
    return figure("".join(frame.parts) + legend, 314.0 + taken, title, description)


def scatter(
    points: Sequence[tuple[str, float, float, float, float]],
    *,
    title: str,
    description: str,
    x_label: str,
    y_label: str,
) -> str:
    """Draw named points with vertical intervals, told apart by shape and colour.

    Parameters
    ----------
    points : sequence of (name, x, y, y_low, y_high)
        What is drawn.
    title, description, x_label, y_label : str
        What it is called, and what the axes are called.
    """
    ends = [v for _, _, *ys in points for v in ys if math.isfinite(v)]
    low, high = (min(ends), max(ends)) if ends else (0.0, 1.0)
    room = max(0.15 * (high - low), 1e-3)
    right = max([p[1] for p in points if math.isfinite(p[1])] + [0.0]) * 1.1 or 0.01
    across = Scale(-0.04 * right, right, 64.0, WIDTH - 16.0)
    up = Scale(low - room, high + room, 254.0, 34.0)
    frame = _Frame(across, up, x_label, y_label)
    frame.draw()
    for i, (_, x, y, y_low, y_high) in enumerate(points):
        if not (math.isfinite(x) and math.isfinite(y)):
            continue
        drawn = ""
        if math.isfinite(y_low) and math.isfinite(y_high):
            drawn += tag("line", x1=across(x), x2=across(x), y1=up(y_low), y2=up(y_high))
        drawn += marker(i, across(x), up(y))
        frame.parts.append(tag("g", drawn, class_=f"point s{i % N_COLOURS}"))

    def sample(i: int) -> Callable[[float, float], str]:
        return lambda x, y: tag("g", marker(i, x + 16, y), class_=f"point s{i % N_COLOURS}")

    legend, taken = _legend([(p[0], sample(i)) for i, p in enumerate(points)], 320.0)
    return figure("".join(frame.parts) + legend, 314.0 + taken, title, description)


@dataclass(frozen=True)
class Interval:
    """One rule of an interval chart.

    Parameters
    ----------
    name, sense, verdict : str
        The rule, ``"<="`` or ``">="``, and the kind of its verdict.
    bound, value, low, high : float
        Its bound, its value and the interval.
    """

    name: str
    sense: str
    verdict: str
    bound: float
    value: float
    low: float
    high: float


def interval_chart(rules: Sequence[Interval], *, title: str, description: str) -> str:
    """Draw for each rule, on an axis of its own, the bound, the allowed side and the interval."""
    parts, height = [], 84.0
    for i, rule in enumerate(rules):
        parts.append(_interval(rule, i * height + 4))
    return figure("".join(parts), height * len(rules) + 4, title, description)


def _interval(rule: Interval, top: float) -> str:
    left, right, axis = 24.0, WIDTH - 24.0, top + 50
    ends = [v for v in (rule.low, rule.high, rule.value) if math.isfinite(v)]
    low, high = min([*ends, rule.bound]), max([*ends, rule.bound])
    room = 0.2 * (high - low) or 0.1 * abs(rule.bound) or 0.01
    lowest = -math.inf if min([*ends, rule.bound]) < 0 else 0.0  # rates do not go below zero
    across = Scale(max(low - room, lowest), high + room, left, right)
    at = across(rule.bound)
    allowed = (left, at) if rule.sense == "<=" else (at, right)
    odd = " (no value)" if math.isnan(rule.value) else " (infinite)"
    verdict = "" if math.isfinite(rule.value) else odd
    parts = [
        text(shorten(rule.name, right - left - 215), left, top + 16, class_="name"),
        text(rule.verdict + verdict, right, top + 16, "end", class_="verdict"),
        tag("rect", x=allowed[0], width=max(allowed[1] - allowed[0], 0.0), y=axis - 22, height=22,
            class_="allowed"),
        tag("line", x1=left, x2=right, y1=axis, y2=axis, class_="axis"),
    ]  # fmt: skip
    for value in across.ticks(7):
        tick = across(value)
        parts.append(tag("line", x1=tick, x2=tick, y1=axis, y2=axis + 4, class_="axis"))
        parts.append(text(number(value), tick, axis + 17, "middle", class_="tick"))
    parts.append(tag("line", x1=at, x2=at, y1=axis - 26, y2=axis + 2, class_="bound"))
    middle = axis - 11
    if math.isfinite(rule.low) and math.isfinite(rule.high):
        a, b = across(rule.low), across(rule.high)
        wide = max(b - a, 1.0)  # a point is seen, too
        parts.append(tag("rect", class_="bar", x=a, width=wide, y=middle - 4, height=8, rx=2))
    if math.isfinite(rule.value):
        parts.append(marker(rule.verdict, across(rule.value), middle))
    name = f"{rule.name}: {rule.verdict}"
    return tag("g", tag("title", escape(name)) + "".join(parts), class_=class_of(rule.verdict))
