"""Draw which packages import which, from the imports themselves.

``python docs/contributing/draw_imports.py imports.svg`` writes the picture of the architecture
page. The documentation runs it each time it is built. Floors are those of the layer contract in
``pyproject.toml``. An arrow that follows from others is left out.
"""

from __future__ import annotations

import ast
import sys
import tomllib
from pathlib import Path

import matplotlib.pyplot as plt

ROOT = Path(__file__).resolve().parents[2]
PACKAGE = ROOT / "gbm_constrained"


def read_floors() -> list[list[str]]:
    """Read the floors of the contract from the top down, without packages that do not exist."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())
    layers = project["tool"]["importlinter"]["contracts"][0]["layers"]
    names = [layer.replace("|", " ").replace(":", " ").split() for layer in layers]
    floors = [[name.strip("()").partition(".")[2] for name in floor] for floor in names]
    exists = {path.stem for path in PACKAGE.iterdir()}
    return [[name for name in floor if name in exists] for floor in floors]


def find_imports(name: str) -> set[str]:
    """Find the packages and modules that a package, or a single module, imports."""
    path = PACKAGE / name
    files = path.rglob("*.py") if path.is_dir() else [path.with_suffix(".py")]
    nodes = [node for file in files for node in ast.walk(ast.parse(file.read_text()))]
    modules = {n.module for n in nodes if isinstance(n, ast.ImportFrom) and n.module}
    modules |= {alias.name for n in nodes if isinstance(n, ast.Import) for alias in n.names}
    own = {module.split(".")[1] for module in modules if module.startswith("gbm_constrained.")}
    return own - {name}


def reduce_arrows(imports: dict[str, set[str]]) -> list[tuple[str, str]]:
    """Keep the arrows that do not follow from longer ways."""

    def reached(start: str) -> set[str]:
        return imports[start].union(*(reached(below) for below in imports[start]))

    return [
        (above, below)
        for above, direct in imports.items()
        for below in sorted(direct)
        if not any(below in reached(between) for between in direct - {below})
    ]


def draw(path: Path) -> list[tuple[str, str]]:
    """Write the picture and return its arrows."""
    floors = read_floors()
    names = [name for floor in floors for name in floor]
    arrows = reduce_arrows({name: find_imports(name) & set(names) for name in names})
    place = {
        name: ((i + 0.5) / len(floor) * 10, -depth)
        for depth, floor in enumerate(floors)
        for i, name in enumerate(floor)
    }
    figure, ax = plt.subplots(figsize=(9, 9), layout="constrained")
    ax.set(xlim=(0, 10), ylim=(-len(floors) + 0.5, 0.5))
    style = {"boxstyle": "round,pad=0.4", "facecolor": "#e8f0fa", "edgecolor": "0.4"}
    boxes = {
        name: ax.text(x, y, name, ha="center", va="center", bbox=style).get_bbox_patch()
        for name, (x, y) in place.items()
    }
    figure.canvas.draw()  # which gives the boxes their sizes
    for above, below in arrows:
        ends = {"patchA": boxes[above], "patchB": boxes[below], "shrinkA": 0, "shrinkB": 2}
        arrow = {"arrowstyle": "->", "color": "0.5", **ends}
        ax.annotate("", xy=place[below], xytext=place[above], arrowprops=arrow)
    ax.axis("off")
    figure.savefig(path)
    plt.close(figure)
    return arrows


if __name__ == "__main__":
    draw(Path(sys.argv[1]))
