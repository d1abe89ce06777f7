"""Fits of the classifiers of one machine on several processes of a computer."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained.data.fit_data import take_values
from gbm_constrained.data.validation import (
    check_integer,
    check_sensitive_sets,
    preserve_random_state,
)
from gbm_constrained.distributed.fit_arguments import check_fit_arguments
from gbm_constrained.distributed.processes import run_processes
from gbm_constrained.distributed.rank import SET_WEIGHTS, Library, Plan, Shard, train_rank
from gbm_constrained.distributed.shards import make_shard

LIBRARIES: dict[str, Library] = {
    "ConstrainedXGBClassifier": "xgboost",
    "ConstrainedLGBMClassifier": "lightgbm",
}


def fit_on_processes(
    classifier: Any,
    X: Any,
    y: Any,
    *,
    n_processes: int,
    sample_weight: Any = None,
    sensitive_features: Any = None,
    eval_set: Sequence[tuple[Any, Any]] | None = None,
    sensitive_features_eval_set: Sequence[Any] | None = None,
    **fit: Any,
) -> Any:
    """Fit a classifier whose rows are divided among processes of this computer.

    Each process trains on a run of consecutive rows, and only tables of cells travel between
    them. A script calls this function under ``if __name__ == "__main__"``, since the processes
    import it.

    Parameters
    ----------
    classifier : ConstrainedXGBClassifier or ConstrainedLGBMClassifier
        Classifier to fit; its ``n_jobs`` are the threads of each process.
    X : array or table of shape (n_samples, n_features)
        Features.
    y : array of shape (n_samples,)
        Labels.
    n_processes : int
        Number of processes.
    sample_weight : array of shape (n_samples,), default=None
        Weights.
    sensitive_features : table, or mapping from name to array, default=None
        Columns that constraints may group by.
    eval_set : list of (X, y), default=None
        Evaluation sets, which are divided as well.
    sensitive_features_eval_set : list, default=None
        Columns of each evaluation set.
    **fit
        Further arguments of the classifier's ``fit`` that are not about rows, such as
        ``checkpoint``.

    Returns
    -------
    ConstrainedXGBClassifier or ConstrainedLGBMClassifier
        The classifier, fitted as by its own ``fit``.

    Raises
    ------
    MachineError
        If a process fails or is lost; the error names it.
    TypeError
        If `classifier` is none, or its ``fit`` has no argument of a name in `fit`.
    ValueError
        If an argument is about the rows of one machine or has another number of rows than X, or
        if there are more processes than rows.
    """
    check_integer("n_processes", n_processes, 1)
    n = number_of_rows(X)
    if n_processes > n:
        raise ValueError(f"n_processes={n_processes} is more than the {n} rows: give fewer.")
    check_fit_arguments(type(classifier), fit)
    plan = _plan_of(classifier, fit)
    sets = list(eval_set or ())
    check_sensitive_sets(sensitive_features_eval_set, len(sets))
    columns = sensitive_features_eval_set or [None] * len(sets)
    weights = fit.pop(SET_WEIGHTS[plan.library], None) or [None] * len(sets)
    whole = _divide(X, y, sample_weight, sensitive_features, n_processes, "fit")
    held = [
        _divide(X_i, y_i, weight, of_set, n_processes, f"eval_set[{i}]")
        for i, ((X_i, y_i), weight, of_set) in enumerate(zip(sets, weights, columns, strict=True))
    ]
    shards = [
        replace(shard, evaluation=[parts[rank] for parts in held])
        for rank, shard in enumerate(whole)
    ]
    results = run_processes(train_rank, shards, plan)
    results[0].hand_over_to(classifier)
    return classifier


def _plan_of(classifier: Any, fit: dict[str, Any]) -> Plan:
    """Make the plan of a classifier, without loading the other library."""
    kinds = {base.__name__ for base in type(classifier).__mro__}
    for name, library in LIBRARIES.items():
        if name in kinds:
            with preserve_random_state(classifier):
                return Plan(library, classifier.get_params(deep=False), fit)
    raise TypeError(
        f"classifier is a {type(classifier).__name__}: give a ConstrainedXGBClassifier or a "
        f"ConstrainedLGBMClassifier."
    )


def _divide(
    X: Any, y: Any, sample_weight: Any, columns: Any, n_parts: int, where: str
) -> list[Shard]:
    """Divide rows into runs of nearly equal length, numbered by their positions."""
    make_shard(X, y, sample_weight, columns, where=where)  # It compares the numbers of rows.
    given = (X, y, sample_weight, columns)
    shards = []
    for part in np.array_split(np.arange(number_of_rows(X)), n_parts):
        taken = [None if values is None else take_values(values, part) for values in given]
        shards.append(replace(make_shard(*taken, where=where), numbers=part))
    return shards
