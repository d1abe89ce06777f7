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

import functools
import operator
import re
from collections import Counter
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import lightgbm as lgb
import numpy as np
from scipy import sparse

from gbm_constrained._typing import Array, Codes, Float
from gbm_constrained.decision.regression import Affine
from gbm_constrained.scorers.trained_models import Node, check_number

OUTPUT_FIELDS = ("leaf_value", "internal_value", "leaf_const")
SCALED_FIELDS = (*OUTPUT_FIELDS, "leaf_coeff")  # with the linear functions of leaves
END_OF_TREES = "\nend of trees\n"
PANDAS = "\npandas_categorical:"  # LightGBM looks for it in the last line
PARAMETER = re.compile(r"\[(\w+): (.*)\]")
IMPORTANCES = re.compile(r"(?<=\nfeature_importances:\n)(?:.+=\d+\n)*")
CLASSIFIERS = ("binary", "cross_entropy", "multiclass", "multiclassova")


def restore_objective(text: str, objective: str) -> str:
    """Put an objective such as ``"binary sigmoid:1"`` into a text that was trained without one."""
    name = objective.partition(" ")[0]
    text = re.sub(r"^objective=.*\n", "", text, count=1, flags=re.M)
    text = text.replace("\nfeature_names=", f"\nobjective={objective}\nfeature_names=", 1)
    return re.sub(r"^\[objective: .*\]$", f"[objective: {name}]", text, count=1, flags=re.M)


def add_intercept(text: str, intercept: Sequence[float]) -> str:
    """Add each class's intercept to the outputs of its first tree."""
    head, trees, rest = split_trees(text)
    for k, add in enumerate(intercept[: len(trees)]):
        if add != 0.0:
            shift = functools.partial(operator.add, add)
            for name in OUTPUT_FIELDS:
                trees[k] = _map_numbers(trees[k], name, shift)
            trees[k] = re.sub(r"^shrinkage=.*$", "shrinkage=1", trees[k], count=1, flags=re.M)
    return join_trees(head, trees, rest)


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
    # LightGBM may abort the process on a text that was cut or damaged.
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
    return text, note


def rescale(booster: lgb.Booster, affine: Affine) -> lgb.Booster:
    """Make a booster of one score whose scores are mapped."""
    head, trees, rest = split_trees(booster.model_to_string(num_iteration=-1))
    text = join_trees(head, [_scale(tree, SCALED_FIELDS, affine.scale) for tree in trees], rest)
    return shift_intercept(with_text(booster, text), np.array([affine.shift]))


def field_of(text: str, name: str) -> str:
    """Find a line such as the objective of a model, with its parameters; "" without one."""
    found = re.search(rf"^{name}=(.*)$", text, flags=re.M)
    return "" if found is None else found[1]


def read_kind(text: str, *, is_regressor: bool) -> tuple[str, int]:
    """Find the objective and the number of classes, none of a regressor, or refuse the model."""
    objective = field_of(text, "objective").partition(" ")[0]
    n_classes = field_of(text, "num_class")
    is_right = objective in CLASSIFIERS and n_classes.isdecimal()
    if is_regressor:
        is_right = objective not in ("", *CLASSIFIERS, "lambdarank", "rank_xendcg", "custom")
    if not is_right:
        known = repr(objective) if objective else "none"
        kind = "regressor" if is_regressor else "classifier"
        raise ValueError(f"its objective is {known}, which makes no {kind}")
    return objective, 0 if is_regressor else max(int(n_classes), 2)


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


def join_trees(head: str, trees: Sequence[str], rest: str) -> str:
    """Join what :func:`split_trees` splits, with the sizes of these trees."""
    # LightGBM finds trees by their size in bytes and aborts the process on a wrong one.
    sizes = " ".join(str(len(tree.encode())) for tree in trees)
    head = re.sub(r"^tree_sizes=.*$", f"tree_sizes={sizes}", head, count=1, flags=re.M)
    return f"{head}{''.join(trees)}{rest}"


def _map_numbers(tree: str, field: str, change: Callable[[float], float]) -> str:
    """Change the numbers in one line of a tree, if it has that line."""
    line = re.search(rf"^{field}=(.*)$", tree, flags=re.M)
    if line is None:
        return tree
    values = re.sub(r"\S+", lambda number: format(change(float(number[0])), ".17g"), line[1])
    return tree[: line.start(1)] + values + tree[line.end(1) :]


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
    texts = [booster.model_to_string() for booster in boosters]
    categories = {text.rpartition(PANDAS)[2].strip() for text in texts}
    if len(categories) > 1:
        raise ValueError(
            "Reduction(ensemble='folds') merges boosters that number categories alike, and the "
            "rows of the folds have other lists of categories: give each column one fixed list "
            "of categories (pandas Categorical), or Reduction(ensemble=None)."
        )
    heads, forests, rests = zip(*map(split_trees, texts), strict=True)
    total, trees = sum(map(len, forests)), list[str]()
    for head, forest in zip(heads, forests, strict=True):
        is_average = "\naverage_output\n" in head
        factor = (total / len(forest) if is_average else 1.0) / len(texts)
        trees += [_scale(tree, (*SCALED_FIELDS, "shrinkage"), factor) for tree in forest]
    trees = [re.sub(r"\ATree=\d+", f"Tree={i}", tree) for i, tree in enumerate(trees)]
    infos = [field_of(head, "feature_infos") for head in heads]
    of_features = zip(*(info.split(" ") for info in infos), strict=True)
    info = " ".join(map(_merge_info, of_features))
    head = heads[0].replace(f"\nfeature_infos={infos[0]}\n", f"\nfeature_infos={info}\n")
    counts: Counter[str] = Counter()
    for rest in rests:
        for line in "".join(IMPORTANCES.findall(rest)).splitlines():
            name, _, count = line.rpartition("=")
            counts[name] += int(count)
    # The largest comes first, as LightGBM writes them.
    importances = "".join(f"{name}={count}\n" for name, count in counts.most_common())
    rest = IMPORTANCES.sub(importances, rests[0], count=1)
    merged = lgb.Booster(model_str=join_trees(head, trees, rest))
    merged.params = dict(boosters[0].params)
    merged.best_iteration = 0
    return merged


def _scale(tree: str, names: Iterable[str], factor: float) -> str:
    """Multiply numbers of a tree in LightGBM's text."""
    for name in names:
        tree = _map_numbers(tree, name, functools.partial(operator.mul, factor))
    return tree


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


def append_group_tree(booster: lgb.Booster, nodes: Sequence[Node]) -> lgb.Booster:
    """Append a tree of offsets of groups, after the best iteration.

    Parameters
    ----------
    booster : Booster
        A booster with one score for each row.
    nodes : sequence of Node
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
    trees = [*trees, re.sub(r"\ATree=0", f"Tree={len(trees)}", _write(nodes))]
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


def _write(nodes: Sequence[Node]) -> str:
    """Write a tree as LightGBM does; splits and leaves are numbered apart.

    A category goes left in LightGBM where the row has it, so that its children change sides.
    """
    splits = [i for i, node in enumerate(nodes) if node.feature is not None]
    leaves = [i for i, node in enumerate(nodes) if node.feature is None]
    number = {i: k for k, i in enumerate(splits)} | {i: ~k for k, i in enumerate(leaves)}
    of_splits, of_leaves = [nodes[i] for i in splits], [nodes[i] for i in leaves]
    children, threshold, bits, ends = [], [], list[int](), [0]
    for node in of_splits:
        if node.category is None:
            children.append((number[node.left], number[node.right]))
            threshold.append(format(node.threshold, ".17g"))
        else:
            children.append((number[node.right], number[node.left]))
            threshold.append(str(len(ends) - 1))
            word, bit = divmod(node.category, 32)  # A set of bits is a row of such words.
            bits += [0] * word + [1 << bit]
            ends.append(len(bits))
    # Bits of a split: 1 is a category, 2 sends missing values left, 8 takes NaN for missing.
    kinds = [2 | 8 if node.category is None else 1 | 8 for node in of_splits]
    lines: dict[str, Any] = {
        "num_leaves": len(leaves),
        "num_cat": len(ends) - 1,
        "split_feature": [node.feature for node in of_splits],
        "split_gain": [0] * len(splits),
        "threshold": threshold,
        "decision_type": kinds,
        "left_child": [left for left, _ in children],
        "right_child": [right for _, right in children],
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
    text = "".join(
        f"{name}={' '.join(map(str, values if isinstance(values, list) else [values]))}\n"
        for name, values in lines.items()
    )
    return f"Tree=0\n{text}\n\n"


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
    names = (*SCALED_FIELDS, "shrinkage")
    scaled = [_scale(tree, names, w) for tree, w in zip(trees, weights.tolist(), strict=True)]
    text = add_intercept(join_trees(head, scaled, rest), [intercept])
    weighted = with_text(booster, text)
    weighted.best_iteration = len(trees) if booster.best_iteration > 0 else 0
    return weighted


def best_iteration(booster: lgb.Booster) -> int:
    """Count the rounds that ``predict`` takes."""
    best: int = booster.best_iteration
    return best if best > 0 else booster.current_iteration()


def describe_sum(booster: lgb.Booster) -> tuple[float, int]:
    """Find the intercept, which is none, and the rounds of a sum of trees for two classes."""
    split_sum(booster.model_to_string(num_iteration=1))
    return 0.0, best_iteration(booster)


def score_round(model: lgb.LGBMClassifier, X: Any, t: int) -> Array:
    """Score rows by the tree of one round."""
    table = np.asarray(X) if isinstance(X, list) else X
    found = model.booster_.predict(table, raw_score=True, start_iteration=t, num_iteration=1)
    return np.asarray(found)


def contributions(booster: lgb.Booster, X: Any, *, tree_shap: bool) -> tuple[Float, Array]:
    """Compute the contributions of the features to the score of each row, and the score.

    LightGBM has TreeSHAP alone. The others add up how the value of a tree's node changes along the
    path of a row (Saabas, "Interpreting random forests", 2014), which is one vector for each leaf.

    Returns
    -------
    tuple of ndarray
        Contributions (n_samples, n_features + 1), with a constant as the last one, and scores.
    """
    table = np.asarray(X) if isinstance(X, list) else X
    score = np.asarray(booster.predict(table, raw_score=True))
    if tree_shap:
        return np.asarray(booster.predict(table, pred_contrib=True), dtype=np.float64), score
    n_features, trees = booster.num_feature(), booster.dump_model()["tree_info"]
    of_leaves, starts = [], [0]
    for tree in trees[: best_iteration(booster)]:
        root = tree["tree_structure"]
        found = np.zeros((tree["num_leaves"], n_features + 1))
        below = [(root, np.zeros(n_features + 1))]
        below[0][1][-1] = root.get("internal_value", root.get("leaf_value"))
        while below:
            node, gained = below.pop()
            if "left_child" not in node:
                found[node.get("leaf_index", 0)] = gained
                continue
            for child in (node["left_child"], node["right_child"]):
                moved = gained.copy()
                value = child.get("internal_value", child.get("leaf_value"))
                moved[node["split_feature"]] += value - node["internal_value"]
                below.append((child, moved))
        of_leaves.append(found)
        starts.append(starts[-1] + len(found))
    leaves = np.asarray(booster.predict(table, pred_leaf=True)).reshape(-1, len(of_leaves))
    n_samples, n_trees = leaves.shape
    columns = (leaves.astype(np.intp) + starts[:-1]).ravel()
    ends = np.arange(n_samples + 1) * n_trees
    indicators = sparse.csr_array((np.ones(columns.size), columns, ends), (n_samples, starts[-1]))
    return np.asarray(indicators @ np.vstack(of_leaves)), score


def read_leaves(booster: lgb.Booster) -> list[list[float]]:
    """Read the values of the leaves of each tree, up to the best iteration.

    Raises
    ------
    ValueError
        If leaves are linear functions.
    """
    trees = split_trees(booster.model_to_string())[1]
    if any("\nis_linear=1" in tree for tree in trees):
        raise ValueError(
            "space='leaves' changes one value of each leaf, and linear_tree=True has a linear "
            "function in it: use space='trees'."
        )
    sizes = [int(field_of(tree, "num_leaves")) for tree in trees]
    return [[booster.get_leaf_output(t, i) for i in range(n)] for t, n in enumerate(sizes)]


def find_leaves(model: lgb.LGBMClassifier, X: Any) -> Codes:
    """Find the leaf of each row in each tree, counted from zero within the tree."""
    table = np.asarray(X) if isinstance(X, list) else X
    return np.asarray(model.booster_.predict(table, pred_leaf=True)).astype(np.intp)


def set_leaves(booster: lgb.Booster, values: Sequence[Float], intercept: float) -> lgb.Booster:
    """Make a booster whose leaves have other values, and add to all scores."""
    changed = with_text(booster, booster.model_to_string())
    for t, of_tree in enumerate(values):
        for i, value in enumerate(of_tree.tolist()):
            changed.set_leaf_output(t, i, value)
    changed.best_iteration = changed.num_trees() if booster.best_iteration > 0 else 0
    return shift_intercept(changed, np.array([intercept]))
