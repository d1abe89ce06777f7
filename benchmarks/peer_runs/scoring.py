"""A run as a row of the results."""

from __future__ import annotations

from typing import Any

import numpy as np

from gbm_constrained.statistics.binomial import clopper_pearson, newcombe_difference

from .catalogue import Peer
from .rules import Rule, counts, value
from .split import Split

COLUMNS = (
    "task", "rate", "data", "split", "peer", "asked", "trees", "test_accuracy", "test_value",
    "test_violation", "is_beyond_sampling", "train_accuracy", "train_value", "held_out_value",
    "majority_accuracy", "seconds", "predict_seconds", "peak_mib", "deterministic",
    "needs_group", "error",
)  # fmt: skip


def score(
    rule: Rule, asked: float, split: Split, y_test: Any, answer: dict[str, Any], peer: Peer
) -> dict[str, Any]:
    """Figures of a run whose decisions are in the file of `answer`.

    ``held_out_value`` is the peer's own measure on unseen rows where it makes one, and that on the
    calibration rows where it has these. A penalty's rate (``peer.asks``) is no bound, so that
    nothing is violated.
    """
    with np.load(answer["file"]) as decisions:
        train, test = decisions["train"], decisions["test"]
    observed = value(rule, y_test, test, split.groups_test)
    held_out = answer["held_out"]
    if held_out is None and peer.calibrates:
        _, y, groups = split.part(split.calibration)
        held_out = value(rule, y, train[split.calibration], groups)
    row = {
        "test_accuracy": np.mean(test == y_test),
        "test_value": observed,
        "train_accuracy": np.mean(train == split.y),
        "train_value": value(rule, split.y, train, split.groups),
        "held_out_value": held_out,
        "majority_accuracy": max(np.mean(y_test), 1 - np.mean(y_test)),
        "seconds": answer["seconds"],
        "predict_seconds": answer["predict_seconds"],
        "peak_mib": answer["peak_mib"],
    }
    row = {name: "" if x is None else f"{x:.6g}" for name, x in row.items()}
    if not peer.asks:
        row["test_violation"] = f"{max(observed - asked, 0.0):.6g}"
        row["is_beyond_sampling"] = str(
            is_beyond_sampling(rule, asked, y_test, test, split.groups_test)
        )
    return row


def is_beyond_sampling(rule: Rule, asked: float, y: Any, decisions: Any, groups: Any) -> bool:
    """Whether the 95 % interval of what the rule bounds is above the bound.

    Clopper and Pearson's interval of a rate, Newcombe's of a difference of two groups. Of several
    rates each has its share of the 5 %.
    """
    level = 1 - 0.05 / len(rule.rates)
    for rate in rule.rates:
        events, rows = counts(rate, y, decisions, groups if rule.is_gap else None)
        if not rule.is_gap:
            low, _ = clopper_pearson(events[0], rows[0], level)
            if low > asked:
                return True
            continue
        shares = events / np.maximum(rows, 1)
        high, low = np.argmax(shares), np.argmin(shares)
        least, _ = newcombe_difference(events[high], rows[high], events[low], rows[low], level)
        if least > asked:
            return True
    return False
