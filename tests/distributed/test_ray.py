"""The recipe of the documentation for Ray, where Ray is installed."""

import re
from pathlib import Path

import numpy as np
import pytest
from engine_ranks import table

from gbm_constrained import fpr

ray = pytest.importorskip("ray")
PAGE = Path(__file__).parents[2] / "docs" / "scale.md"


def test_the_recipe_trains_on_two_workers(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (recipe,) = re.findall(r"### Ray.*?```python no-run\n(.*?)```", PAGE.read_text(), re.DOTALL)
    rows = table(500).rename(columns={"y": "label", "group": "sex"})
    names = {"fpr": fpr, "ray": ray, "features": ["a", "b"]}
    names["rows"] = rows.assign(id=np.arange(len(rows)))
    exec(recipe.replace('"clf.pickle"', repr(str(tmp_path / "clf.pickle"))), names)
    assert names["clf"].constraint_report_["constraint"].tolist() == ["fpr <= 0.25"]
