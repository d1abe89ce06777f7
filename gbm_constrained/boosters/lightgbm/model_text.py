"""LightGBM's own text form of a model: turn one trained without objective into a native one.

A booster trained on custom gradients says ``objective: custom`` and starts from scores that its
file does not hold. Both are mended in the text that LightGBM itself writes and reads:

- the intercept is added to the leaves of the first tree of each class, as LightGBM does under its
  own objective (leaf and internal values, constants of linear leaves, shrinkage one);
- the objective line is put where LightGBM writes it.

A line of its own, the note, is kept in a file next to what the Python package of LightGBM adds. No
reader looks at lines there that it does not know.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Sequence

import lightgbm as lgb

from gbm_constrained._typing import Array

OUTPUT_FIELDS = ("leaf_value", "internal_value", "leaf_const")
END_OF_TREES = "\nend of trees\n"
PANDAS = "\npandas_categorical:"  # LightGBM looks for it in the last line
PARAMETER = re.compile(r"\[(\w+): (.*)\]")
CLASSIFIERS = ("binary", "cross_entropy", "multiclass", "multiclassova")


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
            tree = map_numbers(tree, name, lambda x: x + intercept[index])
        return re.sub(r"^shrinkage=.*$", "shrinkage=1", tree, count=1, flags=re.M)

    return _map_trees(text, shift)


def add_note(text: str, name: str, note: str) -> str:
    """Add a line to the text of a model, before the last one.

    Parameters
    ----------
    text : str
        Model text, as ``Booster.model_to_string`` writes it.
    name : str
        How the line begins.
    note : str
        JSON, ASCII, without line breaks.
    """
    # Some readers refuse lines with two equality signs; in JSON these stand in strings only.
    note = note.replace("=", "\\u003d")
    head, mark, last = text.rpartition(PANDAS)
    return f"{head}\n{name}:{note}\n{mark}{last}"


def take_note(text: str, name: str) -> tuple[str, str | None]:
    """Split the text of a model into what LightGBM wrote and the note; None without one."""
    head, mark, last = text.rpartition(PANDAS)
    before, found, note = head.rpartition(f"\n{name}:")
    if not found or "\n" in note.removesuffix("\n"):
        return text, None
    return f"{before}{mark}{last}", note


def check_complete(text: str) -> None:
    """Check that the text of a model is whole: LightGBM may abort the process on one that is not.

    Raises
    ------
    ValueError
        If something is missing; the message says what.
    """
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


def classifier_of(text: str) -> tuple[str, int]:
    """Objective and number of classes of a model.

    Raises
    ------
    ValueError
        If it is no classifier.
    """
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
    """Add to all raw scores that a booster predicts, those of its prefixes included.

    Parameters
    ----------
    booster : Booster
        One with its objective, that has been trained or loaded.
    shift : ndarray of shape (1,) or (n_classes,)
        What to add to each class's score.

    Returns
    -------
    Booster
        A new one, for LightGBM cannot read a model into an existing one.
    """
    text = add_intercept(booster.model_to_string(num_iteration=-1), shift.tolist())
    shifted = lgb.Booster(model_str=text)
    shifted.best_iteration, shifted.best_score = booster.best_iteration, booster.best_score
    shifted.params = booster.params
    return shifted.set_train_data_name(booster._train_data_name)


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
