r"""The mean of several boosters of LightGBM, as one booster.

.. math:: s(x) = \frac{1}{K} \sum_k \sum_t f_{kt}(x)

The trees of all boosters stand one after another in LightGBM's own text, with their outputs
divided by :math:`K`. A random forest averages its trees: of the :math:`T` trees of all boosters
together, those of a booster of :math:`T_k` trees are multiplied by :math:`T / (K T_k)`.
"""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Sequence

import lightgbm as lgb

from gbm_constrained.boosters.lightgbm.model_text import (
    OUTPUT_FIELDS,
    PANDAS,
    join_trees,
    map_numbers,
    split_trees,
)

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
