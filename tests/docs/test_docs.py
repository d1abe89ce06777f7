"""The documentation says what happens: its code runs, its output is printed, its links lead there.

Every fence of README.md and docs/*.md with the info string ``python`` is executed, in order, in
one namespace for each page, and so is every ``bash`` fence with a command of this package. A fence
``output`` is compared with what the block before it printed: words and whole numbers as they
stand, ``...`` for anything, fractions to within `TOLERANCE`. Code that cannot run here, of other
packages, says so: ``python no-run``. Blocks for engines of many machines run where these are.
"""

from __future__ import annotations

import ast
import contextlib
import doctest
import fnmatch
import importlib
import importlib.util
import inspect
import io
import os
import pkgutil
import re
import shutil
import subprocess
import sys
import tomllib
import warnings
from dataclasses import dataclass
from decimal import Decimal
from pathlib import Path

import pytest
import sklearn
from threadpoolctl import threadpool_limits

import gbm_constrained

ROOT = Path(__file__).resolve().parents[2]
DOCS = ROOT / "docs"
if not DOCS.exists():
    pytest.skip("the documentation is not here", allow_module_level=True)

GENERATED = ("gallery", "generated", "_templates")
PAGES = sorted(p for p in DOCS.rglob("*.md") if p.relative_to(DOCS).parts[0] not in GENERATED)
EVERY_PAGE = pytest.mark.parametrize(
    "page",
    [ROOT / "README.md", ROOT / "CONTRIBUTING.md", *PAGES],
    ids=lambda page: str(page.relative_to(ROOT)),
)
# Of numbers with decimals. XGBoost 3.1 and 3.2, LightGBM 4.6 and 4.7, numpy 2.0 to 2.4 with and
# without AVX, on one thread and on two, print the same digits; another booster, or another
# machine's exp, may break a tie of splits the other way, which moves a rate by a few thousandths.
TOLERANCE = Decimal("0.003")


# --- code blocks --------------------------------------------------------------------------------


@dataclass(frozen=True)
class Fence:
    info: str
    text: str
    line: int


def fences(text):
    """Fenced blocks of a page, in order."""
    found = re.finditer(r"^(`{3,})([^`\n]*)\n(.*?)^\1[ ]*$", text, re.MULTILINE | re.DOTALL)
    return [Fence(m[2].strip(), m[3], text.count("\n", 0, m.start(3)) + 1) for m in found]


NUMBER = re.compile(r"(?<![\w.])-?\d[\d,]*(?:\.\d+)?(?:e[+-]\d+)?")


def differences(printed, shown):
    """What is printed otherwise than it is shown; empty if nothing is."""
    pattern, expected, end = "", [], 0

    def number(text):
        return Decimal(text.replace(",", ""))

    def literal(text):
        parts = [re.escape(re.sub(r"\s+", " ", part)) for part in text.split("...")]
        return ".*?".join(parts).replace(r"\ ", r"\s+")

    shown, printed = (re.sub(r"\s+", " ", text).strip() for text in (shown, printed))
    for found in NUMBER.finditer(shown):
        pattern += literal(shown[end : found.start()]) + f"({NUMBER.pattern})"
        expected.append(found[0])
        end = found.end()
    found = re.fullmatch(pattern + literal(shown[end:]), printed, re.DOTALL)
    if found is None:
        return [f"printed:\n{printed}\nshown:\n{shown}"]
    return [
        f"printed {a}, shown {b}"
        for a, b in zip(found.groups(), expected, strict=True)
        if abs(number(a) - number(b)) > (TOLERANCE if "." in b else 0)
    ]


@pytest.mark.parametrize(
    ("printed", "shown", "alike"),
    [
        ("a  0.501\nb 16,281", "a 0.50\nb  16,281", True),
        ("a 0.55", "a 0.50", False),
        ("high 0.066", "high 0.062", False),
        ("b 16,282", "b 16,281", False),
        ("class 1", "class 0", False),
        ("satisfied False", "satisfied True", False),
        ("x 0.1\nmultiplier 3.2\ny", "x 0.1\n... y", True),
        ("x 0.1\nmultiplier 3.2\nz", "x 0.1\n... y", False),
        ("", "a", False),
        ("-0.5", "0.5", False),
    ],
)
def test_comparison_finds_what_differs(printed, shown, alike):
    assert (not differences(printed, shown)) == alike


def imported(fence):
    """Top-level packages that a block imports."""
    for node in ast.walk(ast.parse(fence.text)):
        if isinstance(node, ast.Import):
            yield from (alias.name.partition(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            yield node.module.partition(".")[0]


# Engines of many machines, and the command that each needs beside its package.
ENGINES = {"dask": None, "pyspark": "java", "ray": None}


def lacks_engine(fence):
    """Whether a block needs an engine that is not here."""
    for name in ENGINES.keys() & {*imported(fence)}:
        command = ENGINES[name]
        if importlib.util.find_spec(name) is None or (command and not shutil.which(command)):
            return True
    return False


def commands():
    """Console scripts of this package: name to module and function."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    return {name: target.split(":") for name, target in project.get("scripts", {}).items()}


def run_shell(fence, folder):
    """Execute a block of shell commands; scripts of this package need not be installed."""
    scripts = folder / ".scripts"
    scripts.mkdir(exist_ok=True)
    for name, (module, function) in commands().items():
        call = f"import sys; from {module} import {function}; sys.exit({function}())"
        (scripts / name).write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{call}" "$@"\n')
        (scripts / name).chmod(0o755)
    paths = {"PATH": f"{scripts}{os.pathsep}{os.environ['PATH']}"}
    paths["PYTHONPATH"] = os.pathsep.join([str(ROOT), os.environ.get("PYTHONPATH", "")])
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", fence.text],
        cwd=folder,
        env={**os.environ, **paths, "OMP_THREAD_LIMIT": "1"},
        capture_output=True,
        text=True,
        timeout=300,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


def is_ours(fence):
    """Whether a block of shell commands calls this package."""
    called = set(re.findall(r"(?:^|[|&;(])[ ]*([\w-]+)", fence.text, re.MULTILINE))
    return fence.info in ("bash", "console", "sh", "shell") and bool(called & set(commands()))


def test_shell_blocks_run_commands_of_this_package_alone(tmp_path, monkeypatch):
    monkeypatch.setitem(globals(), "commands", lambda: {"tidy-json": ["json.tool", "main"]})
    ours = Fence("bash", "echo '[1]' > list\ncat list | tidy-json --compact\n", 1)
    assert is_ours(ours)
    assert run_shell(ours, tmp_path) == "[1]\n"
    assert not is_ours(Fence("bash", "pip install tidy-json\n", 1))
    assert not is_ours(Fence("text", "tidy-json list\n", 1))
    with pytest.raises(AssertionError, match="No such file"):
        run_shell(Fence("bash", "tidy-json nothing\n", 1), tmp_path)


@EVERY_PAGE
@pytest.mark.filterwarnings("ignore::ResourceWarning")  # sockets of Py4J
def test_code_runs_and_prints_what_is_shown(page, tmp_path, monkeypatch):
    blocks = fences(page.read_text())
    for fence in blocks:
        for name in {*imported(fence)} - {*ENGINES} if fence.info == "python" else ():
            pytest.importorskip(name, reason=f"a block of {page.name} imports it")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MPLBACKEND", "Agg")
    monkeypatch.setenv("LOKY_MAX_CPU_COUNT", "1")  # LightGBM takes as many threads
    monkeypatch.setenv("PYSPARK_PYTHON", sys.executable)
    monkeypatch.setenv("SPARK_LOCAL_IP", "127.0.0.1")
    namespace, printed, is_left_out = {"__name__": "__main__"}, None, False
    with sklearn.config_context(), threadpool_limits(1):
        for fence in blocks:
            if fence.info == "python":
                is_left_out = lacks_engine(fence)
                if is_left_out:
                    continue
                code = compile("\n" * (fence.line - 1) + fence.text, page, "exec")
                with contextlib.redirect_stdout(io.StringIO()) as out, warnings.catch_warnings():
                    if ENGINES.keys() & {*imported(fence)}:
                        warnings.simplefilter("ignore")  # Engines warn of their own code.
                    exec(code, namespace)
                printed = out.getvalue()
            elif is_ours(fence):
                assert shutil.which("bash"), "shell blocks need bash"
                printed = run_shell(fence, tmp_path)
            elif fence.info == "output" and not is_left_out:
                assert printed is not None, f"{page.name}:{fence.line} shows no block's output"
                assert not differences(printed, fence.text), f"{page.name}:{fence.line}"


@EVERY_PAGE
def test_python_blocks_say_whether_they_run(page):
    kinds = {fence.info for fence in fences(page.read_text()) if "py" in fence.info.lower()}
    assert kinds <= {"python", "python no-run"}


@pytest.mark.parametrize(
    "module",
    [
        name
        for _, name, _ in pkgutil.walk_packages(gbm_constrained.__path__, "gbm_constrained.")
        if not name.rpartition(".")[2].startswith("__")
        and ">>> " in Path(importlib.util.find_spec(name).origin).read_text()
    ],
)
def test_examples_in_docstrings_run(module):
    assert doctest.testmod(importlib.import_module(module)).failed == 0


# --- links and the table of contents ------------------------------------------------------------


def prose(path):
    """Text of a page without its code."""
    text = path.read_text()
    for fence in fences(text):
        text = text.replace(fence.text, "")
    return re.sub(r"`[^`]*`", "", text)


def anchors(path):
    """What headings of a page can be linked as."""
    headings = re.findall(r"^#+ +(.*)$", path.read_text(), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", h.lower()).strip().replace(" ", "-") for h in headings}


@EVERY_PAGE
def test_links_between_pages_resolve(page):
    for target in re.findall(r"\]\(([^)\s]+)\)", prose(page)):
        if re.match(r"\w+:", target):  # other sites are not asked
            continue
        file, _, anchor = target.partition("#")
        linked = (page.parent / file).resolve() if file else page
        assert linked.exists(), f"{page.name} links to {target}"
        if page.parent == DOCS:
            assert DOCS in linked.parents, f"{target} is no page of the site"
        assert not anchor or anchor in anchors(linked), f"{page.name} links to {target}"


def entries(path):
    """Pages that the tables of contents of a page name."""
    text = path.read_text()
    directives = [f.text for f in fences(text) if f.info.startswith("{toctree}")]
    directives += re.findall(r"^\.\. toctree::\n((?:[ ].*\n|\n)*)", text, re.MULTILINE)
    lines = [line.strip() for directive in directives for line in directive.splitlines()]
    named = [line for line in lines if line and not line.startswith(":")]
    return [re.sub(r".*<(.*)>$", r"\1", line) for line in named]


def test_every_page_is_in_the_table_of_contents():
    pages = {p.relative_to(DOCS).with_suffix("").as_posix(): p for p in PAGES}
    pages |= {p.stem: p for p in DOCS.glob("*.rst") if p.stem != "sg_execution_times"}
    reached, left = set(), ["index"]
    while left:
        name = left.pop()
        reached.add(name)
        for listed in entries(pages[name]):
            entry = (Path(name).parent / listed).as_posix()
            found = set(fnmatch.filter(pages, entry))
            assert found or "*" in entry or entry.startswith(GENERATED), f"{name} lists {entry}"
            left += found - reached
    assert reached == set(pages)


# --- reference ----------------------------------------------------------------------------------

# Machinery of other modules, whose `__all__` is for these.
FACES = (
    *("presets", "plotting", "datasets", "solvers", "linear_model", "metrics"),
    *("xgboost", "lightgbm", "distributed", "dask", "spark", "mlflow"),
)


def documented():
    """Names in the reference: module to names."""
    found, module, listing = {}, "", False
    for line in (DOCS / "api.rst").read_text().splitlines():
        if line.startswith((".. currentmodule:: ", ".. module:: ")):
            module = line.split()[-1]
        listing = line.startswith(".. autosummary::") or (listing and line[:1] in ("", " "))
        if listing and (name := re.fullmatch(r" +(\w+)", line)):
            found.setdefault(module, []).append(name[1])
    return found


def public():
    """Public names: module to `__all__`."""
    found = {"gbm_constrained": gbm_constrained.__all__}
    for face in FACES:
        found[f"gbm_constrained.{face}"] = importlib.import_module(
            f"gbm_constrained.{face}"
        ).__all__
    return found


def exists(module, name):
    return hasattr(importlib.import_module(module), name)


def objects(names):
    return {id(getattr(importlib.import_module(m), n)) for m, of in names.items() for n in of}


def test_every_public_name_is_in_the_reference():
    listed = documented()
    names = [(module, name) for module, of in listed.items() for name in of]
    assert sorted(names) == sorted(set(names)), "listed twice"
    gone = [f"{m}.{n}" for m, of in listed.items() for n in of if not exists(m, n)]
    assert not gone, f"docs/api.rst lists {gone}, which are not there"
    for module, of in public().items():
        missing = [n for n in of if not objects({module: [n]}) & objects(listed)]
        assert not missing, f"docs/api.rst lacks {missing} of {module}"


def callables():
    """Everything in the reference that takes parameters, methods included, by its full name."""
    for module, names in documented().items():
        for name in names:
            thing = getattr(importlib.import_module(module), name, None)
            if callable(thing):
                yield f"{module}.{name}"
            if inspect.isclass(thing):
                for method, value in vars(thing).items():
                    bare = getattr(value, "__func__", value)  # of a class method
                    if inspect.isfunction(bare) and not method.startswith("_"):
                        yield f"{module}.{name}.{method}"


def parents(name):
    """Parameters that a constructor or a method has from the parent, which documents them."""
    *path, last = name.split(".")
    thing = pkgutil.resolve_name(name)
    if inspect.isclass(thing):
        found = [base.__init__ for base in thing.__mro__[1:]]
    else:
        owner = pkgutil.resolve_name(".".join(path))
        bases = owner.__mro__[1:] if inspect.isclass(owner) else ()
        found = [vars(base)[last] for base in bases if last in vars(base)]
    return {p for f in found if inspect.isfunction(f) for p in inspect.signature(f).parameters}


@pytest.mark.parametrize("name", list(callables()))
def test_parameters_are_documented(name):
    pytest.importorskip("numpydoc", reason="reads the docstrings")
    from numpydoc.validate import Validator, get_doc_object

    doc = Validator(get_doc_object(pkgutil.resolve_name(name)))
    assert doc.summary, "no docstring"
    signature = {p.lstrip("*"): p for p in doc.signature_parameters}
    known = {part.strip(" *") for key in doc.doc_all_parameters for part in key.split(",")}
    others, missing = known - set(signature), set(signature) - known - parents(name)
    keywords = {name for name, written in signature.items() if written.startswith("**")}
    if others and keywords:  # the keywords are documented one by one
        others, missing = set(), missing - keywords
    assert not missing, f"not documented: {missing}"
    assert not others, f"not parameters: {others}"
    untyped = [
        key
        for key in doc.doc_all_parameters
        if not doc.parameter_type(key) and "*" not in key and key not in parents(name)
    ]
    assert not untyped, f"no type: {untyped}"
