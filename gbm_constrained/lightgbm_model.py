"""LightGBM's own text form of a model: turn one trained without objective into a native one.

A booster trained on custom gradients says ``objective: custom`` and starts from scores that its
file does not hold. Both are mended in the text that LightGBM itself writes and reads:

- the intercept is added to the leaves of the first tree of each class, as LightGBM does under its
  own objective (leaf and internal values, constants of linear leaves, shrinkage one);
- the objective line is put where LightGBM writes it.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

OUTPUT_FIELDS = ("leaf_value", "internal_value", "leaf_const")


def restore_objective(text: str, objective: str) -> str:
    """Put the objective back into the text of a model that was trained without.

    Parameters
    ----------
    text : str
        Model text.
    objective : str
        The objective with its parameters, such as ``"binary sigmoid:1"``.
    """
    name = objective.partition(" ")[0]
    text = re.sub(r"^objective=.*\n", "", text, count=1, flags=re.M)
    text = text.replace("\nfeature_names=", f"\nobjective={objective}\nfeature_names=", 1)
    return re.sub(r"^\[objective: .*\]$", f"[objective: {name}]", text, count=1, flags=re.M)


def add_intercept(text: str, intercept: Sequence[float]) -> str:
    """Add each class's intercept to the outputs of its first tree."""

    def shift(index: int, tree: str) -> str:
        if index >= len(intercept) or intercept[index] == 0.0:
            return tree
        for name in OUTPUT_FIELDS:
            tree = _map_numbers(tree, name, lambda x: x + intercept[index])
        return re.sub(r"^shrinkage=.*$", "shrinkage=1", tree, count=1, flags=re.M)

    return _map_trees(text, shift)


def scale_trees(text: str, scale: Sequence[float]) -> str:
    """Multiply all outputs of tree i by ``scale[i]``."""

    def rescale(index: int, tree: str) -> str:
        for name in (*OUTPUT_FIELDS, "leaf_coeff"):
            tree = _map_numbers(tree, name, lambda x: x * scale[index])
        return tree

    return _map_trees(text, rescale)


def _map_trees(text: str, change: Callable[[int, str], str]) -> str:
    head, *trees = re.split(r"^(?=Tree=\d+\n)", text, flags=re.M)
    trees[-1], rest = trees[-1].split("end of trees", 1)
    trees = [change(i, tree) for i, tree in enumerate(trees)]
    # LightGBM finds trees by their size in bytes and aborts the process on a wrong one.
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, count=1, flags=re.M)
    return f"{head}{''.join(trees)}end of trees{rest}"


def _map_numbers(tree: str, field: str, change: Callable[[float], float]) -> str:
    line = re.search(rf"^{field}=(.*)$", tree, flags=re.M)
    if line is None:
        return tree
    values = re.sub(r"\S+", lambda number: format(change(float(number[0])), ".17g"), line[1])
    return tree[: line.start(1)] + values + tree[line.end(1) :]
