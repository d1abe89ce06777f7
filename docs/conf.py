"""Configuration of the documentation: ``make docs``, or ``sphinx-build docs build/docs``."""

import runpy
from pathlib import Path

import gbm_constrained

project = "gbm_constrained"
version = release = gbm_constrained.__version__
html_title = f"{project} {release}"

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
    "sphinx_gallery.gen_gallery",
]
exclude_patterns = ["gallery/*.ipynb", "gallery/*.py", "gallery/*.json", "gallery/*.md5"]
templates_path = ["_templates"]

# --- text ----------------------------------------------------------------------------------------
myst_enable_extensions = ["deflist"]
myst_heading_anchors = 3

# --- picture of the packages ---------------------------------------------------------------------
CONTRIBUTING = Path(__file__).parent / "contributing"
runpy.run_path(str(CONTRIBUTING / "draw_imports.py"))["draw"](CONTRIBUTING / "imports.svg")

# --- reference -----------------------------------------------------------------------------------
add_module_names = False
autosummary_generate = True
# Names of files that differ by more than case, as some file systems ask for.
autosummary_filename_map = {
    "gbm_constrained.reporting.audit.audit": "gbm_constrained.reporting.audit.audit-function"
}
autodoc_typehints = "none"  # docstrings give the types, with shapes and defaults
# What classes inherit is their parents' and is documented there.
numpydoc_show_class_members = False
numpydoc_class_members_toctree = False

# --- gallery -------------------------------------------------------------------------------------
sphinx_gallery_conf = {
    "examples_dirs": "../examples",
    "gallery_dirs": "gallery",
    "filename_pattern": r"\.py",
    "download_all_examples": False,
    "show_signature": False,
}

# --- pages ---------------------------------------------------------------------------------------
html_theme = "pydata_sphinx_theme"
html_theme_options = {"show_toc_level": 2, "navigation_with_keys": False}
html_show_sourcelink = False
html_sidebars = {"installation": []}
