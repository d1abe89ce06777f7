"""Edit the text form of LightGBM's models.

A booster trained on custom gradients says ``objective: custom`` and starts from scores that its
file does not hold. Two edits make the text that LightGBM writes under its own objective:

- the intercept is added to the leaves of the first tree of each class (leaf and internal values,
  constants of linear leaves, shrinkage one);
- the objective line is put where LightGBM writes it.

The note of this package is one more line, beside the line that LightGBM's Python package adds.
Readers ignore lines there that they do not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array

OUTPUT_FIELDS = ("leaf_value", "internal_value", "leaf_const")
END_OF_TREES = "\nend of trees\n"
PANDAS = "\npandas_categorical:"  # LightGBM looks for it in the last line
PARAMETER = re.compile(r"\[(\w+): (.*)\]")
LINEAR_FIELDS = ("leaf_coeff",)  # of trees with a linear function in each leaf
CLASSIFIERS = ("binary", "cross_entropy", "multiclass", "multiclassova")


def restore_objective(text: str, objective: str) -> str:
    """Put an objective such as ``"binary sigmoid:1"`` into a text that was trained without one."""
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
            tree = map_numbers(tree, name, lambda x: x + intercept[index])
        return re.sub(r"^shrinkage=.*$", "shrinkage=1", tree, count=1, flags=re.M)

    return _map_trees(text, shift)


def add_note(text: str, name: str, note: str) -> str:
    """Add a line before the last one: a name, and a note in JSON, ASCII, without line breaks."""
    # Some readers refuse lines with two equality signs; in JSON these stand in strings only.
    note = note.replace("=", "\\u003d")
    head, mark, last = text.rpartition(PANDAS)
    return f"{head}\n{name}:{note}\n{mark}{last}"


def take_note(text: str, name: str) -> tuple[str, str | None]:
    """Split a text into the part that LightGBM wrote and the note; None without one."""
    head, mark, last = text.rpartition(PANDAS)
    before, found, note = head.rpartition(f"\n{name}:")
    if not found or "\n" in note.removesuffix("\n"):
        return text, None
    return f"{before}{mark}{last}", note


def read_file(fname: Any, name: str) -> tuple[str, str | None]:
    """Read a file and split it into the part that LightGBM wrote and the note."""
    if Path(fname).read_bytes()[:1] == b"{":
        raise ValueError(
            "it is a model of XGBoost, which ConstrainedXGBClassifier().load_model reads"
        )
    text, note = take_note(Path(fname).read_text(encoding="utf-8"), name)
    _check_complete(text)
    return text, note


def _check_complete(text: str) -> None:
    """Refuse a text that was cut or damaged, on which LightGBM may abort the process."""
    if not text.startswith("tree\n"):
        raise ValueError("it does not begin with 'tree', as models of LightGBM do")
    head, trees, rest = split_trees(text)
    sizes = re.search(r"^tree_sizes=([\d ]*)$", head, flags=re.M)
    if sizes is None or not rest:
        raise ValueError("it ends before its trees do")
    if [len(tree.encode()) for tree in trees] != [int(size) for size in sizes[1].split()]:
        raise ValueError("its trees do not have the sizes that it says")
    if not re.search(r"(\npandas_categorical:(null|\[.*\])|\nend of parameters)\n+\Z", text):
        raise ValueError("its end is missing")
    _, begins, parameters = rest.partition("\nparameters:\n")
    lines, ends, _ = parameters.partition("\nend of parameters\n")
    strange = [line for line in lines.split("\n") if line and not PARAMETER.fullmatch(line)]
    if begins and (strange or not ends):
        raise ValueError(f"its parameters are damaged: {(strange or ['they do not end'])[0]!r}")


def rescale(booster: lgb.Booster, scale: float, shift: float) -> lgb.Booster:
    """Make a booster of one score whose scores are mapped to ``scale * score + shift``."""

    def change(index: int, tree: str) -> str:
        for name in (*OUTPUT_FIELDS, *LINEAR_FIELDS):
            tree = map_numbers(tree, name, lambda x: x * scale)
        return tree

    text = _map_trees(booster.model_to_string(num_iteration=-1), change)
    return shift_intercept(with_text(booster, text), np.array([shift]))


def objective_line(text: str) -> str:
    """Find the objective of a model, with its parameters as LightGBM writes them."""
    found = re.search(r"^objective=(.*)$", text, flags=re.M)
    return "" if found is None else found[1]


def regressor_of(text: str) -> tuple[str, int]:
    """Find the objective of a regressor, which has no classes, and refuse another model."""
    objective = objective_line(text).partition(" ")[0]
    if not objective or objective in (*CLASSIFIERS, "lambdarank", "rank_xendcg", "custom"):
        known = repr(objective) if objective else "none"
        raise ValueError(f"its objective is {known}, which makes no regressor")
    return objective, 0


def classifier_of(text: str) -> tuple[str, int]:
    """Find the objective and the number of classes, and refuse what is no classifier."""
    objective = re.search(r"^objective=(\w+)", text, flags=re.M)
    n_classes = re.search(r"^num_class=(\d+)$", text, flags=re.M)
    if objective is None or n_classes is None or objective[1] not in CLASSIFIERS:
        known = "none" if objective is None else repr(objective[1])
        raise ValueError(f"its objective is {known}, which makes no classifier")
    return objective[1], max(int(n_classes[1]), 2)


def count_trees(text: str) -> int:
    """Count the trees in the text of a model."""
    return len(split_trees(text)[1])


def split_trees(text: str) -> tuple[str, list[str], str]:
    """Split a model's text into its head, its trees, and all that follows them."""
    before, mark, rest = text.partition(END_OF_TREES)
    head, *trees = re.split(r"^(?=Tree=\d+\n)", before + mark[:1], flags=re.M)
    return head, trees, mark[1:] + rest


def shift_intercept(booster: lgb.Booster, shift: Array) -> lgb.Booster:
    """Make a booster that adds ``shift[k]`` to each raw score of class k, also in prefixes.

    A booster has one shift for two classes, and must have its objective.
    """
    text = add_intercept(booster.model_to_string(num_iteration=-1), shift.tolist())
    return with_text(booster, text)


def with_text(booster: lgb.Booster, text: str) -> lgb.Booster:
    """Make a booster of another text that is `booster` in all else, as callbacks have left it."""
    made = lgb.Booster(model_str=text)
    of_text = ("_handle", "_network", "pandas_categorical")
    for name, value in vars(booster).items():
        if name not in of_text and not name.startswith("_Booster__"):
            setattr(made, name, value)
    made.params = dict(booster.params)
    return made


def _map_trees(text: str, change: Callable[[int, str], str]) -> str:
    head, trees, rest = split_trees(text)
    return join_trees(head, [change(i, tree) for i, tree in enumerate(trees)], rest)


def join_trees(head: str, trees: Sequence[str], rest: str) -> str:
    """Join what :func:`split_trees` splits, with the sizes of these trees."""
    # LightGBM finds trees by their size in bytes and aborts the process on a wrong one.
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, count=1, flags=re.M)
    return f"{head}{''.join(trees)}{rest}"


def map_numbers(tree: str, field: str, change: Callable[[float], float]) -> str:
    """Change the numbers in one line of a tree, if it has that line."""
    line = re.search(rf"^{field}=(.*)$", tree, flags=re.M)
    if line is None:
        return tree
    values = re.sub(r"\S+", lambda number: format(change(float(number[0])), ".17g"), line[1])
    return tree[: line.start(1)] + values + tree[line.end(1) :]
