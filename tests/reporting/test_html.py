"""Audits print and are read back; pages are well-formed, hold no scripts, and escape all texts."""

import html.parser
import json
import re
import sys
import xml.etree.ElementTree as ET

import numpy as np
import pandas as pd
import pytest
from audited import Decides
from browsers import browser
from sklearn.linear_model import LinearRegression, LogisticRegression

import gbm_constrained as gc
from gbm_constrained.evaluation.verdicts import KINDS
from gbm_constrained.reporting.html import SYMBOLS, decimal, tabulate_base_rates
from gbm_constrained.reporting.plotting.tradeoff import LOOKS

VOID = {"meta", "br", "link", "img", "hr", "input"}


class Checker(html.parser.HTMLParser):
    """Every element is closed in order; texts and attributes are collected."""

    def __init__(self, page):
        super().__init__()
        self.open, self.tags, self.texts = [], [], []
        self.feed(page)
        self.close()
        assert self.open == []

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag not in VOID:
            self.open.append(tag)

    def handle_startendtag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))

    def handle_endtag(self, tag):
        assert self.open.pop() == tag

    def handle_data(self, data):
        self.texts.append(data)

    def count(self, tag):
        return [name for name, _ in self.tags].count(tag)


def check_page(page):
    assert page.startswith("<!DOCTYPE html>")
    checker = Checker(page)
    tags = [tag for tag, _ in checker.tags]
    assert dict(checker.tags)["html"] == {"lang": "en"}
    assert checker.count("h1") == checker.count("main") == 1
    assert tags.index("h1") < (tags.index("h2") if "h2" in tags else len(tags))
    assert not {"script", "link", "img", "iframe", "object", "a", "image"} & set(tags)
    ids = [attributes["id"] for _, attributes in checker.tags if "id" in attributes]
    assert len(set(ids)) == len(ids)
    for tag, attributes in checker.tags:
        assert "src" not in attributes
        assert not any(name.startswith("on") for name in attributes)
        for name in {"href", "xlink:href"} & set(attributes):
            assert attributes[name].removeprefix("#") in ids
        if tag == "th":
            assert attributes["scope"] in ("row", "col")
    assert re.findall(r"url\((?!#)|@import|https?://(?!www\.w3\.org/)", page) == []
    for drawn in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        svg = ET.fromstring(drawn)
        assert svg.find("{*}title").text
        assert svg.find("{*}desc") is not None
        assert svg.find(".//{*}style") is None  # it would be that of the whole page
    return checker


def test_page(full, page, tmp_path):
    assert full.to_html(tmp_path / "audit.html") == page
    assert (tmp_path / "audit.html").read_text(encoding="utf-8") == page
    checker = check_page(page)
    text = "".join(checker.texts)
    for expected in (
        "Audit of ConstrainedLGBMClassifier", full.headline, "<script>alert('&')</script>",
        "x<y=<b>&\"'", "x<y=</table>", "\N{SNOWMAN}", "boosting rounds", "multiplier",
        "largest violation (value beyond its bound)", *full.frame["constraint"],
        *full.frame["detail"], *full.groups["group"], *map(decimal, full.frame["value"]),
    ):  # fmt: skip
        assert expected in text
    assert checker.count("svg") == 4
    # By word, not by colour alone.
    for verdict in ("met", "missed within sampling error", "missed"):
        count = (full.frame["verdict"] == verdict).sum()
        named = f"badge {verdict.replace(' ', '-')}"
        assert checker.tags.count(("span", {"class": named})) == count > 0
    assert "prefers-color-scheme:dark" in page


def test_colours_follow_the_page(page):
    """Every colour of a figure is a variable that the style sheet has for light and dark."""
    figures = "".join(re.findall(r"<svg.*?</svg>", page, re.DOTALL))
    used = set(re.findall(r"var\((--\w+)\)", figures))
    assert used >= {"--text", "--s0", "--s1", "--s2"}
    for variable in used:
        assert len(re.findall(rf"{variable}:#", page)) == 2
    # What is left is the grey of grids, the same on both.
    assert set(re.findall(r"#[0-9a-f]{6}\b", figures)) <= {"#808080"}


def test_each_verdict_has_a_symbol_and_a_look():
    assert set(SYMBOLS) == set(LOOKS) == set(KINDS)
    assert len(set(LOOKS.values())) == len(KINDS)


@pytest.mark.parametrize(
    ("kind", "counted", "has_held_out"),
    [("crossfit", "boosting rounds", True), ("train", "boosting rounds", False),
     ("linear", "iterations", False)],
)  # fmt: skip
def test_the_page_says_what_it_draws_of_training(kind, counted, has_held_out, held_out):
    X, y, _ = held_out
    if kind == "linear":
        model = gc.ConstrainedLogisticRegression(constraints=[gc.fnr() <= 0.9], n_iterations=3)
    else:
        model = gc.ConstrainedLGBMClassifier(
            constraints=[gc.fnr() <= 0.9], n_estimators=4, verbose=-1, n_jobs=1, measure_on=kind
        )
    of = gc.audit(model.fit(X, y), X, y, model.constraints)
    text = "".join(check_page(gc.Audit.from_json(of.to_json()).to_html()).texts)
    for words in ("boosting rounds", "iterations"):
        assert (words in text) == (words == counted)
    assert ("dashed: on rows that the trees had not seen" in text) == has_held_out
    assert ("held-out rows" in text.partition("Training")[2]) == has_held_out


def test_an_audit_without_constraints_is_a_page(held_out, constrained):
    X, y, _ = held_out
    of = gc.audit(constrained, X, y, [])
    checker = check_page(of.to_html())
    assert of.headline in "".join(checker.texts)
    assert checker.count("svg") == 2  # of training


def test_notebooks_get_a_part_of_the_page(full):
    part = full._repr_html_()
    assert part.startswith('<div class="gbm-audit"')
    constraints = re.sub(
        r"<style>(.*?)</style>.*", r"\1", part[part.index("<style>") :], flags=re.DOTALL
    )
    selectors = re.findall(r"(?:^|[}{])([^{}@]+)(?={)", constraints.replace("\n", ""))
    assert selectors
    assert all(s.strip().startswith(".gbm-audit") for each in selectors for s in each.split(","))


def test_long_names_and_long_histories_stay_in_the_picture(constrained, held_out):
    X, y, _ = held_out
    names = np.array([f"{'very ' * 40}long {i}" for i in range(2)])[np.arange(y.size) % 2]
    constraints = [gc.fpr(on={"group": names[0]}) <= 0.1, gc.gap(gc.fpr(), by="group") <= 0.1]
    of = gc.audit(
        constrained, X, y, constraints, sensitive_features={"group": names},
        others={"m" * 200: constrained},
    )  # fmt: skip
    history = pd.concat([of.history] * 300, ignore_index=True)
    history["rounds"] = np.arange(len(history))
    for name in history.columns[2:]:
        history = history.rename(columns={name: name.replace("fnr", names[0])})
    page = gc.Audit(**{**vars(of), "history": history}).to_html()
    check_page(page)
    assert len(page) < 200_000
    for drawn in re.findall(r"<svg.*?</svg>", page, re.DOTALL):
        svg = ET.fromstring(drawn)
        width = float(svg.get("viewBox").split()[2])
        for text in svg.iterfind(".//{*}text"):
            assert len(text.text) <= 100
            x = float(re.search(r"translate\(([-\d.]+)|$", text.get("transform", ""))[1] or 0)
            assert 0 <= x <= width


def test_what_is_missing_is_named(full, monkeypatch):
    monkeypatch.setitem(sys.modules, "matplotlib.figure", None)
    with pytest.raises(ImportError, match=r'need matplotlib: pip install "gbm_constrained\[rep'):
        full.to_html()


def test_page_in_a_browser(page, tmp_path):
    shoot = browser()
    (tmp_path / "audit.html").write_text(page, encoding="utf-8")
    (tmp_path / "profile").mkdir()
    image = tmp_path / "audit.png"
    said = shoot(tmp_path / "audit.html", image, tmp_path / "profile")
    assert said == []
    from matplotlib.image import imread

    pixels = imread(image)[..., :3]
    assert pixels.shape[1] >= 900
    assert pixels.shape[0] >= 1500
    back = pixels[2, 2]
    drawn = (np.abs(pixels - back).sum(axis=2) > 0.2).mean()
    assert 0.01 < drawn < 0.6  # neither empty nor a blot


def test_the_head_has_base_rates_versions_and_parameters(full, page):
    head, _, folded = page.partition("<h2>")[0].partition("<details>")
    assert f"<dt>Rows</dt><dd>{full.n_rows:,}</dd>" in head
    assert full.provenance["date"] in head
    assert "Model file" not in head
    whole = full.base_rates.iloc[0]
    assert f"0: {decimal(whole['share[0]'])}, 1: {decimal(whole['share[1]'])}" in head
    assert f"lightgbm {full.provenance['versions']['lightgbm']}" in head
    assert "n_estimators=20" in head
    assert "learning_rate" not in head
    assert "learning_rate=0.1" in folded
    assert page.index("<h2>Base rates</h2>") < page.index("<h2>Constraints</h2>")
    of_file = gc.Audit(**{**vars(full), "provenance": {**full.provenance, "file": "<m>.json"}})
    assert "<dt>Model file</dt><dd>&lt;m&gt;.json</dd>" in of_file.to_html()


def test_the_page_compares_the_selection_of_groups(full, page):
    section = page.partition("<h2>Selection of groups</h2>")[2].partition("<h2>")[0]
    for row in full.disparities.itertuples():
        assert decimal(row.air) in section
        assert decimal(row.smd) in section
    assert section.count("(reference)") == full.disparities["reference"].nunique() == 2


def test_many_classes_run_down():
    """A table of base rates has its longer side down: it is cut at no width."""
    y = np.resize(list("abcdefghij"), 200)
    of = gc.audit(
        Decides(y), np.ones((200, 1)), y, gc.gap(gc.accuracy(), by="g") <= 0.5,
        sensitive_features={"g": np.repeat(["u", "v"], 100)},
    )  # fmt: skip
    rates = tabulate_base_rates(of.base_rates)
    assert rates.columns.tolist() == ["all rows", "g=u", "g=v"]
    assert rates.index.tolist() == ["Rows", *(f"Share of {c}" for c in "abcdefghij")]
    check_page(of.to_html())


def test_one_model_has_no_figure_of_one_point(held_out, constrained):
    X, y, _ = held_out
    alone = gc.audit(constrained, X, y, [gc.fnr() <= 0.2])
    page = gc.Audit(**{**vars(alone), "history": alone.history.iloc[:1]}).to_html()
    assert "<h2>Models</h2>" not in page
    assert page.count("<svg") == 1  # of the intervals


def test_the_quality_of_regressors_is_named():
    x = np.random.default_rng(0).normal(size=(100, 1))
    model = LinearRegression().fit(x, x[:, 0])
    page = gc.audit(
        model, x, x[:, 0] ** 2, [gc.mean_loss("squared") <= 0.1], others={"again": model}
    ).to_html()
    check_page(page)
    assert "<h2>Models</h2>" in page
    assert "accuracy" not in page.lower()


def test_a_page_has_the_periods():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y, day = (X[:, 0] + rng.normal(size=400) > 0).astype(int), np.repeat(["<a>", "b"], 200)
    model = LogisticRegression().fit(X, y)
    found = gc.audit(model, X, y, [gc.fnr() <= 0.2, gc.fpr() <= 0.5], time=day, n_periods=2)
    page = found.to_html()
    check_page(page)
    assert "<h2>Periods</h2>" in page
    assert "Values of the constraints by period" in page
    assert page.count("&lt;a&gt;") >= 2
    assert "<td>yes</td>" in page or "<td>no</td>" in page
    without = gc.audit(model, X, y, [gc.fnr() <= 0.2]).to_html()
    assert "Periods" not in without


def test_headlines():
    """45 of 1,000 positives are missed."""
    X, y = np.ones((2000, 1)), np.repeat([1, 0], 1000)
    model = Decides(np.where(np.arange(2000) < 45, 0, y))
    bounds = [gc.fnr() <= 0.1, gc.fnr() <= 0.05, gc.fnr() <= 0.01]
    missed = [gc.fnr() <= 0.044, gc.fnr() <= 0.01, gc.fnr() <= 0.1]
    for constraints, headline in (
        (bounds[:1], "The constraint is met"),
        (bounds[:2], "Both constraints are met"),
        (bounds, "2 of 3 constraints are met on 2,000 held-out rows; 1 missed."),
        ([bounds[0]] * 3, "All 3 constraints are met"),
        (missed, "1 of 3 constraints is met on 2,000 held-out rows; 1 missed within sampling "
                 "error, 1 missed."),
        (missed[:1], "The constraint is missed within sampling error"),
    ):  # fmt: skip
        end = "" if headline.endswith(".") else " on 2,000 held-out rows."
        assert gc.audit(model, X, y, constraints).headline == headline + end
    nobody = gc.audit(Decides(np.zeros(2000)), X, y, gc.precision() >= 0.5).headline
    assert nobody == "Whether the constraint is met cannot be told on 2,000 held-out rows."


def test_it_prints_a_compact_table(full):
    text = str(full)
    assert text.startswith("Audit of ConstrainedLGBMClassifier. ")
    assert full.headline in text
    for row in full.frame.itertuples():
        lines = [line for line in text.splitlines() if line.lstrip().startswith(row.constraint)]
        assert lines[0].endswith(row.verdict)
    assert repr(full) == text


def test_json_round_trips(full, page):
    def refuse(constant):
        raise AssertionError(constant)

    text = full.to_json()
    content = json.loads(text, parse_constant=refuse)  # NaN and Infinity are no JSON
    assert list(content) == [
        "format", "model", "headline", "n_rows", "level", "weighted", "classes", "accuracy",
        "quality", "constraints", "groups", "models", "history", "metrics", "periods",
        "base_rates", "disparities", "segments", "gap_parts", "provenance",
    ]  # fmt: skip
    assert list(content["constraints"][0]) == [
        "constraint", "sense", "bound", "value", "low", "high", "rows", "satisfied", "verdict",
        "detail",
    ]  # fmt: skip
    again = gc.Audit.from_json(text)
    assert again.to_json() == text
    assert again.to_html() == page
    for name in ("frame", "groups", "models", "history", "base_rates", "disparities"):
        pd.testing.assert_frame_equal(getattr(again, name), getattr(full, name))
    assert again.accuracy == full.accuracy
    with pytest.raises(ValueError, match="text must be what Audit"):
        gc.Audit.from_json("{}")
    with pytest.raises(ValueError, match=r"its format is 'gbm_constrained\.audit/1': audit the"):
        gc.Audit.from_json(text.replace("audit/2", "audit/1", 1))


def test_json_of_older_versions_has_fewer_entries(full):
    content = json.loads(full.to_json())
    for name in ("metrics", "base_rates", "disparities", "provenance"):
        del content[name]
    old = gc.Audit.from_json(json.dumps(content))
    assert old.base_rates.empty
    assert old.disparities.empty
    assert "Selection of groups" not in "".join(check_page(old.to_html()).texts)


def test_json_of_infinite_values():
    y = np.repeat([0, 1], 50)
    wins = gc.wins(over=1 - y) / gc.losses(to=1 - y) >= 2.0
    of = gc.audit(Decides(y), np.ones((100, 1)), y, wins)
    assert of.frame["value"].tolist() == [np.inf]
    assert json.loads(of.to_json())["constraints"][0]["value"] == "Infinity"
    again = gc.Audit.from_json(of.to_json())
    assert again.frame["value"].tolist() == [np.inf]
    assert "\N{INFINITY}" in again.to_html()
