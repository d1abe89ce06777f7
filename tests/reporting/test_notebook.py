"""What notebooks show: scikit-learn's view, the constraints as mathematics, and their report."""

import re
import sys
import xml.etree.ElementTree as ET
from html import escape
from html.parser import HTMLParser

import numpy as np
import pandas as pd
import pytest
import xgboost as xgb
from browsers import browser
from helpers import CLASSIFIERS
from sklearn import config_context
from sklearn.pipeline import make_pipeline
from sklearn.utils import estimator_html_repr

import gbm_constrained as gc
from gbm_constrained.metrics import BlackBox
from gbm_constrained.reporting.html import SYMBOLS

ALL = {**CLASSIFIERS, "linear": gc.ConstrainedLogisticRegression}
EVERYONE = pytest.mark.parametrize("library", list(ALL))
SMALL = {
    "xgboost": {"n_estimators": 4, "max_depth": 2, "n_jobs": 1, "measure_on": "crossfit"},
    "lightgbm": {"n_estimators": 4, "num_leaves": 4, "n_jobs": 1, "verbose": -1},
    "linear": {"n_iterations": 4},
}
NASTY = "<script>alert('1')</script>\"&<img src=x onerror=alert(2)>"


def make(library, constraints, **options):
    return ALL[library](constraints=constraints, **SMALL[library], **options)


class Reader(HTMLParser):
    """Tags with their attributes, and the text of each cell of a table."""

    def __init__(self, text):
        super().__init__()
        self.tags, self.cells, self.is_cell = [], [], False
        self.feed(text)
        self.close()

    def handle_starttag(self, tag, attributes):
        self.tags.append((tag, dict(attributes)))
        if tag in ("td", "th"):
            self.cells.append("")
            self.is_cell = True

    def handle_endtag(self, tag):
        self.is_cell = self.is_cell and tag not in ("td", "th")

    def handle_data(self, data):
        if self.is_cell:
            self.cells[-1] += data


def own_part(html):
    """What follows scikit-learn's view."""
    return html[html.index('<div class="gbm-audit"') :]


def without_numbers(html):
    """scikit-learn numbers its containers."""
    return re.sub(r"-id-\d+", "-id", html)


@EVERYONE
def test_before_fit_the_constraints_are_shown(library):
    model = make(library, [gc.fnr() <= 0.05, gc.gap(gc.fpr(), by="sex") <= 0.02])
    shown = model._repr_html_()
    assert without_numbers(shown).startswith(without_numbers(estimator_html_repr(model)))
    part = own_part(shown)
    cells = Reader(part).cells
    assert cells[:3] == ["Constraint", "In symbols", "fnr <= 0.05"]
    assert "P(y^≠y|y=+)≤0.05" in cells
    assert part.count("<math alttext") == 2
    assert "Constraint report" not in part
    bundle = model._repr_mimebundle_()
    assert bundle["text/plain"] == repr(model)
    assert without_numbers(bundle["text/html"]) == without_numbers(shown)


@EVERYONE
def test_after_fit_the_report_is_shown(library, binary):
    X, y = binary
    model = make(library, [gc.fnr() <= 0.2, gc.fpr() <= 0.9]).fit(X, y)
    part = own_part(model._repr_html_())
    cells = Reader(part).cells
    assert "P(y^=1|y=0)≤0.9" in cells  # the classes are known now
    report = model.constraint_report_
    for row in report.itertuples():
        at = [i for i, cell in enumerate(cells) if cell.strip() == row.constraint][1]
        verdict, *shown = [cell.strip() for cell in cells[at + 1 : at + 8]]
        assert verdict[2:] == row.verdict  # next to the constraint, so that it is seen first
        assert verdict[0] == SYMBOLS[row.verdict]
        assert shown[0] == f"{row.bound:g}"
        assert shown[1] == f"{row.train:.4f}"
        if library == "linear":
            assert shown[2:5] == ["\N{EN DASH}"] * 2 + ["training rows"]
        else:
            assert shown[2:5] == [
                f"{row.held_out:.4f}", f"{row.low:.4f} to {row.high:.4f}", "out of fold"
            ]  # fmt: skip
        assert shown[5] == f"{row.multiplier:.4f}"
    assert escape(str(model.feasibility_).splitlines()[0]) in part


def test_a_constraint_that_is_missed_says_so(binary):
    X, y = binary
    model = make("xgboost", [gc.fnr() <= 0.2]).fit(X, y)
    report = model.constraint_report_.copy()
    report["verdict"] = ["missed within sampling error"]
    model.constraint_report_ = report
    shown = "\N{ALMOST EQUAL TO} missed within sampling error"
    badge = f'<span class="badge missed-within-sampling-error">{shown}</span>'
    assert badge in model._repr_html_()


@EVERYONE
def test_without_constraints_it_is_scikit_learns_view(library, binary):
    for constraints in (None, []):
        model = make(library, constraints)
        for _ in range(2):
            shown, own = model._repr_html_(), estimator_html_repr(model)
            assert without_numbers(shown) == without_numbers(own)
            model.fit(*binary)


def test_boosters_of_xgboost_link_to_the_page_of_their_parent():
    """Its parameters are documented there; LightGBM's classes have no link of their own."""
    for kind in ("Classifier", "Regressor"):
        model = getattr(gc, f"ConstrainedXGB{kind}")()
        own = getattr(xgb, f"XGB{kind}")()._get_doc_link()
        assert own.endswith(f"#xgboost.XGB{kind}")
        assert model._get_doc_link() == own
        assert own in model._repr_html_()


@EVERYONE
def test_display_of_scikit_learn_is_obeyed(library):
    model = make(library, [gc.fnr() <= 0.05])
    with config_context(display="text"):
        assert not hasattr(model, "_repr_html_")
        assert model._repr_mimebundle_() == {"text/plain": repr(model)}
    assert "text/html" in model._repr_mimebundle_(include=None, exclude=None)
    # Inside a Pipeline it is scikit-learn's view of the steps.
    assert "gbm-audit" not in make_pipeline(model)._repr_html_()


@EVERYONE
@pytest.mark.parametrize("constraints", [3, "fnr <= <script>", [gc.fnr()], [NASTY]])
def test_constraints_that_are_none_do_not_break_the_view(library, constraints):
    part = own_part(make(library, constraints)._repr_html_())
    assert "constraint" in part
    assert "<script" not in part
    assert "<img" not in part


@EVERYONE
def test_nothing_of_the_users_is_run(library, binary):
    X, y = binary
    frame = pd.DataFrame(X, columns=[f"c{i}" for i in range(X.shape[1])])
    if library != "xgboost":  # which refuses such names
        frame = frame.rename(columns={"c0": NASTY[:27]})
    group = np.where(X[:, 3] > 0.2, NASTY, "b")
    labels = y if library == "xgboost" else np.where(y == 1, "z" + NASTY, "a")
    constraints = [gc.gap(gc.fpr(), by=NASTY) <= 0.02, gc.fpr(on={NASTY: NASTY}) <= 0.5]
    model = make(library, constraints)
    plain = Reader(estimator_html_repr(model))
    model.fit(frame, labels, sensitive_features={NASTY: group})
    shown = model._repr_html_()
    reader = Reader(shown)
    for tag in ("script", "img", "iframe", "object", "link"):
        assert [t for t, _ in reader.tags].count(tag) == [t for t, _ in plain.tags].count(tag)
    events = {name for _, attributes in reader.tags for name in attributes if name[:2] == "on"}
    assert events == {name for _, a in plain.tags for name in a if name[:2] == "on"}
    part = own_part(shown)
    assert "alert(&#39;1&#39;)" in part
    assert re.findall(r"url\(|@import|https?://|src=(?!x)|href=", part) == []
    for math in re.findall(r"<math.*?</math>", part, re.DOTALL):
        ET.fromstring(math)


def test_without_jinja2_it_is_scikit_learns_view(monkeypatch):
    model = make("lightgbm", [gc.fnr() <= 0.05])
    monkeypatch.setitem(sys.modules, "jinja2", None)
    shown, own = model._repr_html_(), estimator_html_repr(model)
    assert without_numbers(shown) == without_numbers(own)


def test_view_in_a_browser(binary, tmp_path):
    shoot = browser()
    X, y = binary
    model = make(
        "lightgbm", [gc.fnr() <= 0.2, gc.precision() >= 0.5, gc.gap(gc.fpr(), by="g") <= 0.1]
    )
    model.fit(X, y, sensitive_features={"g": np.where(X[:, 3] > 0.2, "a", "b")})
    page = tmp_path / "view.html"
    head = '<!DOCTYPE html><html lang="en"><head><meta charset="utf-8"><title>View</title></head>'
    page.write_text(f"{head}{model._repr_html_()}</html>", encoding="utf-8")
    (tmp_path / "profile").mkdir()
    said = shoot(page, tmp_path / "view.png", tmp_path / "profile")
    assert said == []
    from matplotlib.image import imread

    pixels = imread(tmp_path / "view.png")[..., :3]
    drawn = (np.abs(pixels - pixels[-2, -2]).sum(axis=2) > 0.2).mean()
    assert 0.005 < drawn < 0.6  # neither empty nor a blot


def test_the_report_on_a_black_box_metric_is_shown():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(400, 2))
    y = (X[:, 0] + rng.normal(size=400) > 0.5).astype(int)

    def error(y_true, scores):
        return float(((scores > 0) != y_true).mean())

    metric = BlackBox(error, max_calls=300)
    model = gc.ConstrainedLogisticRegression(minimize=metric)
    with pytest.warns(UserWarning, match="validation rows"):
        model.fit(X, y, validation=(X[:90], y[:90]))
    assert "gbm-audit" not in gc.ConstrainedLogisticRegression(minimize=metric)._repr_html_()
    html = own_part(model._repr_html_())
    assert "Report on BlackBox(error)" in html
    assert "<h2>Constraints</h2>" not in html
    cells = Reader(html).cells
    report = model.blackbox_report_
    for name, value in zip(report.model, report.evaluation, strict=True):
        assert f"{value:.4f}" == cells[cells.index(name) + 1]
