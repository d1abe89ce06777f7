"""README and documentation are plain English, and the picture of the packages is true."""

import re
import runpy
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
if not DOCS.exists():
    pytest.skip("the documentation is not here", allow_module_level=True)

GENERATED = ("gallery", "generated", "_templates")
PAGES = [
    ROOT / "README.md",
    ROOT / "CONTRIBUTING.md",
    *sorted(p for p in DOCS.rglob("*.md") if p.relative_to(DOCS).parts[0] not in GENERATED),
]
LONGEST, SHARE = 30, 0.02  # Words in a sentence; share of the sentences that may have more.
SHORTEST = 5  # Words below which a heading, or a cell of a table, counts as no sentence.
AVOIDED = re.compile(
    r"\b(tells?|telling|told|bold\w*|hearts?|stray\w*|honest\w*|judg\w*|complain\w*|scout\w*)\b",
    re.IGNORECASE,
)
# A constraint is not called a rule, but other things are.
RULE = re.compile(r"(?<!decision )(?<!four-fifths )\brules?\b", re.IGNORECASE)


def read_prose(text):
    """Give the blocks of a page without code: paragraphs, items of lists, cells of tables."""
    text = re.sub(r"^(`{3,})[^`\n]*\n.*?^\1[ ]*$", "\n", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"`[^`]+`", "CODE", text)
    text = re.sub(r"!?\[([^\]]*)\]\([^)]*\)", r"\1", text)
    blocks = []
    for block in re.split(r"\n\s*\n", text):
        if block.lstrip().startswith("|"):
            blocks += [cell for line in block.splitlines() for cell in line.split("|")]
        else:
            blocks += re.split(r"\n\s*(?:[-*]|\d+\.) |^\s*(?:[-*]|\d+\.) |^#+ ", block)
    return [" ".join(block.split()) for block in blocks if block.strip(" -:\n")]


def split_sentences(block):
    """Split a block where a sentence ends and another begins."""
    return re.split(r"(?<=[.!?])[)\"*]*\s+(?=[\"*(]*[A-Z0-9])", block)


def count_words(sentence):
    return len(re.findall(r"[\w<][\w.,'<=>/-]*", sentence))


def test_sentences_are_found_and_counted():
    text = "# Head\n\nOne `a b c` two. Three [four five](x.md).\n\n- six\n  seven\n- eight\n\n"
    text += "```python\nnine ten\n```\n| a b | c |\n|---|---|\n| d. E | f |\n"
    sentences = [s for block in read_prose(text) for s in split_sentences(block)]
    assert sentences == [
        "Head", "One CODE two.", "Three four five.", "six seven", "eight",
        "a b", "c", "d.", "E", "f",
    ]  # fmt: skip
    assert [count_words(s) for s in sentences] == [1, 3, 3, 2, 1, 2, 1, 1, 1, 1]


def test_few_sentences_are_long():
    sentences = [
        (page.name, sentence)
        for page in PAGES
        for block in read_prose(page.read_text())
        for sentence in split_sentences(block)
        if count_words(sentence) >= SHORTEST
    ]
    long = [(name, s) for name, s in sentences if count_words(s) > LONGEST]
    assert len(sentences) > 1000
    assert len(long) < SHARE * len(sentences), "\n".join(f"{name}: {s}" for name, s in long)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
@pytest.mark.parametrize("words", [AVOIDED, RULE], ids=["avoided", "rule"])
def test_words_are_those_of_the_field(page, words):
    prose = "\n".join(read_prose(page.read_text()))
    found = [prose[max(m.start() - 40, 0) : m.end() + 20] for m in words.finditer(prose)]
    assert not found


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_files_that_a_page_names_are_there(page):
    text = re.sub(r"^(`{3,})[^`\n]*\n.*?^\1[ ]*$", "", page.read_text(), flags=re.M | re.S)
    named = set(re.findall(r"`((?:[a-z_]+/)+(?:[a-z_]+\.py)?)`", text))
    folders = (ROOT, ROOT / "gbm_constrained", ROOT / "gbm_constrained" / "problem")
    results = ROOT / "benchmarks" / "results"
    missing = [n for n in named if not any((f / n).exists() for f in (*folders, results))]
    assert not missing


def test_the_page_about_one_fit_has_the_lines_of_the_code():
    sys.path.insert(0, str(DOCS / "contributing"))
    try:
        import line_numbers
    finally:
        sys.path.pop(0)
    written = line_numbers.PAGE.read_text()
    assert line_numbers.with_lines(written) == written, "run docs/contributing/line_numbers.py"


pytest.importorskip("matplotlib")
SCRIPT = Path(__file__).resolve().parents[2] / "docs" / "contributing" / "draw_imports.py"
if not SCRIPT.exists():
    pytest.skip("the documentation is not here", allow_module_level=True)


def test_the_picture_shows_every_package_and_arrows_that_point_down(tmp_path):
    script = runpy.run_path(str(SCRIPT))
    arrows = script["draw"](tmp_path / "imports.svg")
    assert (tmp_path / "imports.svg").read_text().startswith("<?xml")
    depth = {name: i for i, floor in enumerate(script["read_floors"]()) for name in floor}
    # These re-export, or hold data.
    faces = {"presets", "plotting", "datasets", "xgboost", "lightgbm", "dask", "spark", "mlflow"}
    packages = {
        path.stem for path in script["PACKAGE"].iterdir() if not path.stem.startswith("__")
    }
    assert packages - faces - {"py"} == set(depth)
    ground = max(depth.values())  # whose modules may import each other
    assert all(
        depth[above] < depth[below] or depth[above] == depth[below] == ground
        for above, below in arrows
    )
    assert ("data", "constraints") in arrows


def test_an_arrow_that_follows_from_others_is_left_out():
    reduce_arrows = runpy.run_path(str(SCRIPT))["reduce_arrows"]
    imports = {"a": {"b", "c"}, "b": {"c"}, "c": set(), "d": {"c"}}
    assert reduce_arrows(imports) == [("a", "b"), ("b", "c"), ("d", "c")]
