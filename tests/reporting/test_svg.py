"""The few lines that draw charts: round ticks, scales that keep the order, escaped texts."""

import math
import xml.etree.ElementTree as ET

import pytest

from gbm_constrained.reporting import svg


@pytest.mark.parametrize("low", [-0.3, 0.0, 0.0199, 17.0])
@pytest.mark.parametrize("span", [1e-9, 0.013, 1.0, 7.3, 2.4e6])
@pytest.mark.parametrize("most", [4, 6, 8])
def test_ticks_are_round_few_and_inside(low, span, most):
    ticks = svg.nice_ticks(low, low + span, most)
    assert 2 <= len(ticks) + (span < 1e-6) <= most + 2
    assert all(low - 1e-6 * span <= tick <= low + span * (1 + 1e-6) for tick in ticks)
    step = ticks[1] - ticks[0]
    leading = step / 10.0 ** math.floor(math.log10(step) + 1e-4)
    assert min(abs(leading - f) for f in (1, 2, 5, 10)) < 1e-2


def test_ticks_of_nothing():
    assert svg.nice_ticks(0.5, 0.5) == [0.5]


@pytest.mark.parametrize("linear_below", [None, 0.05])
def test_scales_keep_order_and_ends(linear_below):
    scale = svg.Scale(0.0, 1.0, 100.0, 20.0, linear_below)
    values = [0.0, 0.01, 0.0499, 0.05, 0.0501, 0.2, 0.9, 1.0]
    pixels = [scale(value) for value in values]
    assert pixels == sorted(pixels, reverse=True)
    assert (pixels[0], pixels[-1]) == (100.0, 20.0)
    assert abs(pixels[2] - pixels[4]) < 1.0
    assert (scale(-1.0), scale(2.0)) == (100.0, 20.0)
    assert all(0.0 <= tick <= 1.0 for tick in scale.ticks())


@pytest.mark.parametrize(
    ("low", "high", "expected"),
    [
        (-0.1, 0.03, [-0.1, -0.05, -0.02, 0.0, 0.02]),
        (-0.1, 0.01, [-0.1, -0.05, -0.02, 0.0]),
        (0.0, 0.1, [0.0, 0.02, 0.05, 0.1]),
    ],
)
def test_ticks_stand_on_both_sides_of_zero(low, high, expected):
    scale = svg.Scale(low, high, 100.0, 20.0, 0.02)
    assert scale.ticks() == pytest.approx(expected)
    pixels = [scale(tick) for tick in expected]
    assert pixels == sorted(pixels, reverse=True)


@pytest.mark.parametrize("linear_below", [None, 0.1])
@pytest.mark.parametrize("values", [[-0.5, -0.3, -0.1], [-0.2, 0.1, 0.3], [0.1, 0.2, 0.5]])
def test_lines_fill_the_picture_on_either_side_of_zero(values, linear_below):
    drawn = svg.line_chart(
        [0, 1, 2], [svg.Line("l", values)], title="t", description="d", x_label="x", y_label="y",
        linear_below=linear_below,
    )  # fmt: skip
    (path,) = (e.get("points") for e in ET.fromstring(drawn).iter() if e.get("points") is not None)
    heights = [float(point.split(",")[1]) for point in path.split()]
    assert heights == sorted(heights, reverse=True)
    assert heights[0] - heights[2] > 90.0  # of 220 pixels, some of which are for zero


def test_texts_and_attributes_are_escaped():
    drawn = svg.figure(svg.text("a<b>&\"'", 1, 2), 10, "<title>", "<desc>")
    element = ET.fromstring(drawn)
    assert [child.text for child in element] == ["<title>", "<desc>", "a<b>&\"'"]
    assert ET.fromstring(svg.tag("g", data_name='"><x')).get("data-name") == '"><x'


def test_many_lines_are_told_apart():
    """Where colours come again, markers tell lines apart, in the legend as well."""

    def looks(elements):
        shapes = {"circle": "disc", "polygon": "corners"}
        marks = [
            (shapes[m.tag.rpartition("}")[2]], (m.get("points") or "").count(","))
            for e in elements for m in e if m.get("class") == "mark"
        ]  # fmt: skip
        return elements[0].get("class"), tuple(sorted(set(marks)))

    n = 4 * svg.N_COLOURS
    lines = [svg.Line(f"rule {j}", [0.1 * j] * 50, j) for j in range(n)]
    drawn = svg.line_chart(range(50), lines, title="t", description="d", x_label="x", y_label="y")
    groups = {"polyline": [], "line": []}
    for element in ET.fromstring(drawn):
        name = element.tag.rpartition("}")[2]
        if name in groups and "line " in element.get("class"):
            groups[name].append([element])
        elif name == "g":
            groups["line" if len(groups["line"]) else "polyline"][-1].append(element)
    for found in groups.values():
        assert len(found) == n
        assert len({looks(elements) for elements in found}) == n
        assert all(len(elements) == 1 for elements in found[: svg.N_COLOURS])


def test_a_path_of_missing_values_is_drawn():
    lines = [svg.Line("nothing", [math.nan, math.nan]), svg.Line("half", [math.nan, 1.0], 1)]
    drawn = svg.line_chart([0, 1], lines, title="t", description="d", x_label="x", y_label="y")
    points = [e.get("points") for e in ET.fromstring(drawn).iter() if e.get("points") is not None]
    assert points[0] == ""
    assert len(points[1].split()) == 1
