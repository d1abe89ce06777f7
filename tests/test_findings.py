"""Codes of warnings and findings: one table, one page, and a code for each warning."""

import re
import warnings
from pathlib import Path

import numpy as np
import pytest

import gbm_constrained as gc
from gbm_constrained._findings import FINDINGS, issue_warning
from gbm_constrained.evaluation.verdicts import findings_of_audit

PACKAGE = Path(gc.__file__).parent
PAGE = (PACKAGE.parent / "docs" / "warnings.md").read_text(encoding="utf-8")
SECTION = re.compile(
    r"### (GC\d{3}): (.+)\n\nSeverity: (\w+)\. (?:Category: `(\w+)`|Raised by no warning)\.\n\n"
    r"[^#]+\*\*What to do\.\*\* ([^#]+)"
)


def test_each_code_has_its_section_and_each_section_its_code():
    sections = SECTION.findall(PAGE)
    assert len(sections) == PAGE.count("\n### ")
    assert [section[0] for section in sections] == list(FINDINGS)
    for code, title, severity, category, what_to_do in sections:
        found = FINDINGS[code]
        assert (title, severity) == (found.title, found.severity)
        assert category == (found.category.__name__ if found.category else "")
        assert " ".join(what_to_do.split()).startswith(found.remedy)


def test_each_warning_has_a_code_and_each_code_is_used():
    used = set()
    for path in PACKAGE.rglob("*.py"):
        if path.name == "_findings.py":
            continue
        text = path.read_text(encoding="utf-8")
        assert "warnings.warn(" not in text, f"{path} warns without a code"
        used |= set(re.findall(r'"(GC\d{3})"', text))
    assert used == set(FINDINGS)


def test_a_warning_ends_with_its_codes_and_is_about_this_line():
    with pytest.warns(
        gc.FragileConstraintsWarning, match=r"^Beware\. \[GC112\] \[GC114\]$"
    ) as told:
        issue_warning("Beware.", "GC112", "GC114")
    assert told[0].filename == __file__
    with pytest.raises(ValueError, match="unpack"):
        issue_warning("Of two categories.", "GC101", "GC201")


@pytest.mark.parametrize(
    ("measure_on", "constraints", "codes"),
    [
        ("train", [gc.fpr() <= 0.9], ["GC118"]),
        ("train", [gc.log_loss() <= 0.1], ["GC103", "GC118"]),
        ("crossfit", [gc.fpr() <= 0.01, gc.fnr() <= 0.01], ["GC101"]),
    ],
)
def test_findings_of_a_fit_are_those_it_warns_of(measure_on, constraints, codes, binary):
    X, y = binary
    rng = np.random.default_rng(0)
    model = gc.ConstrainedLGBMClassifier(
        constraints=constraints, n_estimators=3, verbose=-1, n_jobs=1, measure_on=measure_on
    )
    with warnings.catch_warnings(record=True) as told:
        warnings.simplefilter("always")
        model.fit(rng.normal(size=X.shape), y)
    found = model.feasibility_.findings
    named = {code for w in told for code in re.findall(r"\[(GC1\d\d)\]", str(w.message))}
    assert named == {f.code for f in found if f.category not in (None, UserWarning)}
    assert [f.code for f in found if f.code in codes] == codes
    for w in told:
        for code in re.findall(r"\[(GC\d{3})\]", str(w.message)):
            assert w.category is FINDINGS[code].category


def test_findings_of_an_audit_are_its_verdicts():
    class Nobody:
        def predict(self, X):
            return np.zeros(len(X))

    X, y = np.ones((200, 1)), np.repeat([0, 1], 100)
    report = gc.audit(Nobody(), X, y, [gc.precision() >= 0.5, gc.fnr() <= 0.1, gc.fpr() <= 0.1])
    assert [f.code for f in report.findings] == ["GC103", "GC113"]
    assert findings_of_audit(report.frame.iloc[2:]) == ()
    page = report.to_html()
    remedies = " ".join(found.remedy for found in report.findings)
    assert "boosting rounds" not in remedies  # An audited model is not being trained.
    assert "audit another model, or state a bound that this one meets" in remedies
    for found in report.findings:
        assert found.remedy in page
        assert f"<code>{found.code}</code>" in page
        assert found.title in page
