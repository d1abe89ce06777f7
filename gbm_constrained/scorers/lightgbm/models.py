r"""Edits of LightGBM's models in their text form.

A booster trained on custom gradients says ``objective: custom`` and starts from scores that its
file does not hold. Two edits make the text that LightGBM writes under its own objective:

- the intercept is added to the leaves of the first tree of each class (leaf and internal values,
  constants of linear leaves, shrinkage one);
- the objective line is put where LightGBM writes it.

The note of this package is one more line, beside the line that LightGBM's Python package adds.
Readers ignore lines there that they do not know.

.. math:: s(x) = \frac{1}{K} \sum_k \sum_t f_{kt}(x)

The trees of all boosters stand one after another in LightGBM's own text, with their outputs
divided by :math:`K`. A random forest averages its trees: of the :math:`T` trees of all boosters
together, those of a booster of :math:`T_k` trees are multiplied by :math:`T / (K T_k)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.groups import GroupOffsets
from gbm_constrained.fit.black_box_fit import ScoreColumns
from gbm_constrained.scorers.trained_models import (
    GroupTree,
    check_number,
    collect_rounds,
    indicate_leaves,
    name_leaves,
)

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


SCALED_FIELDS = (*OUTPUT_FIELDS, "leaf_coeff", "shrinkage")
IMPORTANCES = re.compile(r"(?<=\nfeature_importances:\n)(?:.+=\d+\n)*")


def merge_boosters(boosters: Sequence[lgb.Booster]) -> lgb.Booster:
    """Merge boosters into one whose raw score is the mean of their raw scores.

    Parameters
    ----------
    boosters : sequence of Booster
        Boosters for the same columns and classes; of each, the rounds up to its best iteration
        are taken.

    Raises
    ------
    ValueError
        If the boosters number the categories of a column differently.
    """
    merged = lgb.Booster(model_str=merge_texts([one.model_to_string() for one in boosters]))
    merged.params = dict(boosters[0].params)
    merged.best_iteration = 0
    return merged


def merge_texts(texts: Sequence[str]) -> str:
    """Merge the texts of models into that of the model with the mean of their raw scores."""
    categories = {text.rpartition(PANDAS)[2].strip() for text in texts}
    if len(categories) > 1:
        raise ValueError(
            "ensemble='folds' merges boosters that number categories alike, and the rows of the "
            "folds have other lists of categories: give each column one fixed list of categories "
            "(pandas Categorical), or ensemble=None."
        )
    heads, forests, rests = zip(*map(split_trees, texts), strict=True)
    total = sum(map(len, forests))
    trees = []
    for head, forest in zip(heads, forests, strict=True):
        is_average = "\naverage_output\n" in head
        share = total / len(forest) if is_average else 1.0
        trees += [scale_tree(tree, share / len(texts)) for tree in forest]
    trees = [re.sub(r"\ATree=\d+", f"Tree={i}", tree) for i, tree in enumerate(trees)]
    infos = [_field(head, "feature_infos").split(" ") for head in heads]
    merged = " ".join(_merge_info(of_feature) for of_feature in zip(*infos, strict=True))
    head = heads[0].replace(f"\nfeature_infos={_field(heads[0], 'feature_infos')}\n",
                            f"\nfeature_infos={merged}\n")  # fmt: skip
    return join_trees(head, trees, IMPORTANCES.sub(_sum_importances(rests), rests[0], count=1))


def scale_tree(tree: str, factor: float) -> str:
    """Multiply the outputs of a tree in LightGBM's text."""
    for name in SCALED_FIELDS:
        tree = map_numbers(tree, name, lambda x: x * factor)
    return tree


def _field(head: str, name: str) -> str:
    found = re.search(rf"^{name}=(.*)$", head, flags=re.M)
    assert found is not None
    return found[1]


def _merge_info(infos: Sequence[str]) -> str:
    """Merge what the boosters have seen of a feature: a range, categories, or one value only.

    Categories stand in the order of their frequency, and those that one fold alone has seen come
    last.
    """
    known = [info for info in infos if info != "none"]
    if not known:
        return "none"
    ranges = [info[1:-1].split(":") for info in known if info.startswith("[")]
    if ranges:
        low = min((pair[0] for pair in ranges), key=float)
        high = max((pair[1] for pair in ranges), key=float)
        return f"[{low}:{high}]"
    return ":".join(dict.fromkeys(value for info in known for value in info.split(":")))


def _sum_importances(rests: Sequence[str]) -> str:
    """Add up the importances of the features, the largest first, as LightGBM writes them."""
    total: Counter[str] = Counter()
    for rest in rests:
        found = IMPORTANCES.search(rest)
        for line in found[0].splitlines() if found else ():
            name, _, count = line.rpartition("=")
            total[name] += int(count)
    return "".join(f"{name}={count}\n" for name, count in total.most_common())


WORD = 32  # Categories in a number of a bit set.
# Bits of a split: a category; missing values go left; missing values are NaN.
CATEGORICAL, MISSING_LEFT, MISSING_IS_NAN = 1, 2, 8


def append_group_tree(booster: lgb.Booster, tree: GroupTree) -> lgb.Booster:
    """Append a tree of offsets of groups, after the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster with one score for each row.
    tree : GroupTree
        The offsets.

    Returns
    -------
    Booster
        Its file is read by LightGBM alone.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    head, trees, rest = split_sum(booster.model_to_string())
    trees = [*trees, re.sub(r"\ATree=0", f"Tree={len(trees)}", _write(tree))]
    appended = with_text(booster, join_trees(head, trees, rest))
    appended.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return appended


def split_sum(text: str) -> tuple[str, list[str], str]:
    """Split the text of a booster that is the sum of one tree in each round, or refuse it."""
    head, trees, rest = split_trees(text)
    if "\naverage_output\n" in head:
        raise ValueError(
            "space='trees' weighs the trees of a sum, and boosting_type='rf' averages its trees: "
            "use another boosting_type."
        )
    if "\nnum_tree_per_iteration=1\n" not in head:
        raise ValueError(
            "space='trees' takes boosters of two classes, and this one has a tree for each of "
            "several classes in a round."
        )
    return head, trees, rest


def _write(tree: GroupTree) -> str:
    """Write a tree as LightGBM does; splits and leaves are numbered apart.

    A category goes left in LightGBM where the row has it, so that its children change sides.
    """
    splits = [i for i, node in enumerate(tree.nodes) if node.feature is not None]
    leaves = [i for i, node in enumerate(tree.nodes) if node.feature is None]
    number = {i: k for k, i in enumerate(splits)} | {i: ~k for k, i in enumerate(leaves)}
    left, right, threshold, kind, bits, ends = [], [], [], [], list[int](), [0]
    for node in (tree.nodes[i] for i in splits):
        children = number[node.left], number[node.right]
        if node.category is None:
            threshold.append(format(node.threshold, ".17g"))
            kind.append(MISSING_LEFT | MISSING_IS_NAN)
        else:
            children = children[::-1]
            threshold.append(str(len(ends) - 1))
            kind.append(CATEGORICAL | MISSING_IS_NAN)
            word, bit = divmod(node.category, WORD)
            bits += [0] * word + [1 << bit]
            ends.append(len(bits))
        left.append(children[0])
        right.append(children[1])
    of_leaves = [tree.nodes[i] for i in leaves]
    of_splits = [tree.nodes[i] for i in splits]
    lines: dict[str, Any] = {
        "num_leaves": len(leaves),
        "num_cat": len(ends) - 1,
        "split_feature": [node.feature for node in of_splits],
        "split_gain": [0] * len(splits),
        "threshold": threshold,
        "decision_type": kind,
        "left_child": left,
        "right_child": right,
        "leaf_value": [format(node.value, ".17g") for node in of_leaves],
        "leaf_weight": [node.weight for node in of_leaves],
        "leaf_count": [round(node.weight) for node in of_leaves],
        "internal_value": [0] * len(splits),
        "internal_weight": [node.weight for node in of_splits],
        "internal_count": [round(node.weight) for node in of_splits],
    }
    if bits:
        lines |= {"cat_boundaries": ends, "cat_threshold": bits}
    lines |= {"is_linear": 0, "shrinkage": 1}
    text = "".join(f"{name}={_join(values)}\n" for name, values in lines.items())
    return f"Tree=0\n{text}\n\n"


def _join(values: Any) -> str:
    return " ".join(map(str, values)) if isinstance(values, Iterable) else str(values)


class LGBMTreeWeights:
    """Weights of the rounds of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : LGBMClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """

    takes_offsets = True

    def __init__(self, model: Any) -> None:
        self.model = model
        split_sum(model.booster_.model_to_string(num_iteration=1))
        best = model.booster_.best_iteration
        n_rounds = best if best > 0 else model.booster_.current_iteration()
        self.names = [f"tree[{t}]" for t in range(n_rounds)]
        self.start = np.ones(n_rounds)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Score rows by each round, and put further columns beside the scores."""
        return ScoreColumns(score_rounds(self.model.booster_, X, beside), 0.0)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Weigh the rounds, and add to all scores."""
        self._take(weight_rounds(self.model.booster_, parameters, intercept))

    def append_offsets(self, X: Any, offsets: GroupOffsets, groups: Codes) -> None:
        """Append a tree with the offsets of groups."""
        self._take(append_group_tree(self.model.booster_, GroupTree.of(X, offsets, groups)))

    def _take(self, booster: lgb.Booster) -> None:
        self.model._Booster, self.model._best_iteration = booster, booster.best_iteration


def score_rounds(booster: lgb.Booster, X: Any, beside: Array) -> Array:
    """Score rows by each round, up to the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster of two classes that is the sum of its trees.
    X : array-like of shape (n_samples, n_features)
        Rows.
    beside : ndarray of shape (n_samples, k)
        Columns to put beside the scores.

    Returns
    -------
    ndarray of float32 of shape (n_samples, n_rounds + k)
    """
    best = booster.best_iteration
    n_rounds = best if best > 0 else booster.current_iteration()
    table = np.asarray(X) if isinstance(X, list) else X

    def score(t: int) -> Array:
        found = booster.predict(table, raw_score=True, start_iteration=t, num_iteration=1)
        return np.asarray(found)

    return collect_rounds(score, n_rounds, beside)


def weight_rounds(booster: lgb.Booster, weights: Float, intercept: float) -> lgb.Booster:
    """Make a booster whose rounds have weights, up to its best iteration.

    Parameters
    ----------
    booster : Booster
        A booster of two classes.
    weights : ndarray of shape (n_rounds,)
        Weight of each round up to the best iteration.
    intercept : float
        What is added to all scores.

    Returns
    -------
    Booster
        Its file is read by LightGBM alone.

    Raises
    ------
    ValueError
        If the booster averages its trees, or has several trees in a round.
    """
    head, trees, rest = split_sum(booster.model_to_string())
    check_number(weights, len(trees))
    scaled = [scale_tree(tree, w) for tree, w in zip(trees, weights.tolist(), strict=True)]
    text = add_intercept(join_trees(head, scaled, rest), [intercept])
    weighted = with_text(booster, text)
    weighted.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return weighted


class LGBMLeafValues(LGBMTreeWeights):
    """Values of the leaves of a trained classifier, up to its best iteration.

    Parameters
    ----------
    model : LGBMClassifier
        A classifier of two classes.

    Raises
    ------
    ValueError
        If the booster averages its trees, has several trees in a round, or linear leaves.
    """

    def __init__(self, model: Any) -> None:
        super().__init__(model)
        trees = split_trees(model.booster_.model_to_string())[1]
        if any("\nis_linear=1" in tree for tree in trees):
            raise ValueError(
                "space='leaves' changes one value of each leaf, and linear_tree=True has a linear "
                "function in it: use space='trees'."
            )
        booster = model.booster_
        values = [
            [booster.get_leaf_output(t, i) for i in range(_count_leaves(tree))]
            for t, tree in enumerate(trees)
        ]
        self._sizes = np.array([len(of_tree) for of_tree in values])
        self.names = name_leaves(self._sizes)
        self.start = np.concatenate(values).astype(np.float64)

    def score_columns(self, X: Any, beside: Array) -> ScoreColumns:
        """Make a column for each leaf, and put further columns beside them."""
        table = np.asarray(X) if isinstance(X, list) else X
        leaves = self.model.booster_.predict(table, pred_leaf=True)
        leaves = np.asarray(leaves).reshape(len(beside), -1).astype(np.intp)
        return ScoreColumns(indicate_leaves(leaves, self._sizes, beside), 0.0)

    def set_parameters(self, parameters: Float, intercept: float) -> None:
        """Change the values of the leaves, and add to all scores."""
        booster = self.model.booster_
        changed = with_text(booster, booster.model_to_string())
        values = np.split(parameters, np.cumsum(self._sizes)[:-1])
        for t, of_tree in enumerate(values):
            for i, value in enumerate(of_tree.tolist()):
                changed.set_leaf_output(t, i, value)
        changed.best_iteration = changed.num_trees() if booster.best_iteration > 0 else 0
        self._take(shift_intercept(changed, np.array([intercept])))


def _count_leaves(tree: str) -> int:
    return int(tree.partition("\nnum_leaves=")[2].partition("\n")[0])
