"""The picture of the packages has every package, and arrows that point down."""

import runpy
from pathlib import Path

import pytest

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
    faces = {"presets", "plotting", "datasets", "xgboost", "lightgbm", "dask", "spark"}
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
