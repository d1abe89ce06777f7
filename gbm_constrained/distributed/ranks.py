"""A fit on the rows of one of several machines, and its arguments.

Every machine runs the same fit on its own rows. Numbers that depend on the rows of all machines
are sums of tables of cells, so that all machines take the same decisions. Rows never move.
"""

from __future__ import annotations

import inspect
import pickle
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

import numpy as np
from joblib import wrap_non_picklable_objects

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained._findings import Issued, collect_warnings, issue_again
from gbm_constrained._typing import Codes
from gbm_constrained.data.exact_sums import Communicator, Machine
from gbm_constrained.data.fit_data import concatenate_rows, take_values
from gbm_constrained.data.validation import columns_of
from gbm_constrained.fit.fitted_report import remove_report

Library: TypeAlias = Literal["xgboost", "lightgbm"]
# Arguments of ``fit`` with the weights of evaluation sets.
SET_WEIGHTS = {"xgboost": "sample_weight_eval_set", "lightgbm": "eval_sample_weight"}


@dataclass(frozen=True, eq=False)
class Shard:
    """Rows of one machine.

    Parameters
    ----------
    X : array or table of shape (n_samples, n_features)
        Features; a machine without rows has the columns nevertheless.
    y : array of shape (n_samples,)
        Labels.
    numbers : ndarray of shape (n_samples,), int64
        Number of each row among those of all machines.
    sample_weight : array of shape (n_samples,), default=None
        Weights, on all machines or on none.
    sensitive_features : table or mapping from name to array, default=None
        Columns that constraints group by, on all machines or on none.
    evaluation : sequence of Shard, default=()
        Rows of the evaluation sets.
    """

    X: Any
    y: Any
    numbers: Codes
    sample_weight: Any = None
    sensitive_features: Any = None
    evaluation: Sequence[Shard] = ()

    def take(self, index: Codes) -> Shard:
        """Take some of the rows, without evaluation sets; none of them leaves the columns.

        Parameters
        ----------
        index : ndarray of int
            Positions of the rows.
        """
        weight, columns = (
            None if part is None else take_values(part, index)
            for part in (self.sample_weight, self.sensitive_features)
        )
        X, y = take_rows(self.X, index), self.y[index]
        return Shard(X, y, self.numbers[index], weight, columns)

    def divide(self, n_parts: int) -> list[Shard]:
        """Divide the rows into runs of nearly equal length.

        Parameters
        ----------
        n_parts : int
            Number of runs.
        """
        return [self.take(part) for part in np.array_split(np.arange(len(self.y)), n_parts)]


@dataclass(frozen=True)
class Plan:
    """What all machines do alike.

    Parameters
    ----------
    library : {"xgboost", "lightgbm"}
        Library that grows the trees.
    params : mapping
        Parameters of the classifier of one machine.
    fit : mapping, default=empty
        Arguments of its ``fit`` that are not about rows, such as ``checkpoint``.
    network : mapping, default=empty
        Parameters by which LightGBM finds the other machines. XGBoost's machines are in a
        ``CommunicatorContext`` before.
    """

    library: Library
    params: Mapping[str, Any]
    fit: Mapping[str, Any] = field(default_factory=dict)
    network: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True)
class RankResult:
    """What a machine returns.

    Parameters
    ----------
    model : bytes or None
        The fitted classifier of one machine, pickled, from the first machine alone.
    issued : sequence of Issued
        Warnings of the fit, from the first machine alone.
    """

    model: bytes | None = None
    issued: Sequence[Issued] = ()

    def load(self) -> Any:
        """Load the classifier, and issue the warnings of its fit."""
        assert self.model is not None
        issue_again(self.issued)
        return pickle.loads(self.model)

    def hand_over_to(self, classifier: Any) -> None:
        """Give what was learned to a classifier of the same parameters, and issue the warnings.

        Parameters
        ----------
        classifier : ConstrainedXGBClassifier or ConstrainedLGBMClassifier
            Classifier that takes over the fitted attributes.
        """
        learned, params = vars(self.load()), classifier.get_params(deep=False)
        remove_report(classifier)
        vars(classifier).update((name, learned[name]) for name in learned.keys() - params.keys())


def train_rank(shard: Shard, plan: Plan, communicator: Communicator) -> RankResult:
    """Train on the rows of one machine, together with the other machines.

    Parameters
    ----------
    shard : Shard
        Rows of this machine.
    plan : Plan
        The same on all machines.
    communicator : Communicator
        Adds tables over the machines.

    Returns
    -------
    RankResult
        The classifier, from the machine of rank 0; nothing of the length of the rows.
    """
    names = "sample_weight", "sensitive_features"
    given: dict[str, Any] = {name: getattr(shard, name) for name in names}
    if sets := shard.evaluation:
        given["eval_set"] = [(one.X, one.y) for one in sets]
        of_sets = SET_WEIGHTS[plan.library], "sensitive_features_eval_set"
        for name, of_set in zip(names, of_sets, strict=True):
            values = [getattr(one, name) for one in sets]
            if any(value is not None for value in values):
                given[of_set] = values
    with collect_warnings() as issued, ExitStack() as network:
        # Each machine loads its own library alone.
        model: Any
        if plan.library == "xgboost":
            from gbm_constrained.scorers.xgboost.estimators import ShardXGBClassifier

            model = ShardXGBClassifier(**plan.params)
        else:
            from gbm_constrained.scorers.lightgbm.estimators import (
                ShardLGBMClassifier,
                join_network,
            )

            model = ShardLGBMClassifier(**plan.params)
            model.network = network.enter_context(join_network(plan.network))
        numbers = {f"eval_set[{i}]": one.numbers for i, one in enumerate(sets)}
        model.machine = Machine(communicator, shard.numbers, numbers)
        model.fit(shard.X, shard.y, **given, **plan.fit)
        local = model.to_local()
    if communicator.rank > 0:  # All machines have the same model, and the same warnings.
        return RankResult()
    # A function of a notebook, such as a metric, is known by its name in the notebook alone.
    whole = wrap_non_picklable_objects(local, keep_wrapper=False)
    return RankResult(pickle.dumps(whole), issued)


def make_shard(
    X: Any, y: Any, sample_weight: Any = None, sensitive_features: Any = None, *, where: str
) -> Shard:
    """Make a shard of one partition, whose rows are numbered from zero.

    Parameters
    ----------
    X, y, sample_weight, sensitive_features : tables and arrays
        Partition of each argument of ``fit``.
    where : str
        Arguments and partition in messages, such as ``"partition 3"``.

    Raises
    ------
    ValueError
        If the partitions of two arguments have different numbers of rows.
    """
    n = number_of_rows(X)
    for name, values in (("y", y), ("sample_weight", sample_weight)):
        if values is not None and number_of_rows(values) != n:
            raise ValueError(
                f"{name} has {number_of_rows(values)} rows in {where}, where X has {n}: divide "
                f"both collections at the same rows."
            )
    columns = columns_of(sensitive_features, n, f"sensitive_features in {where}")
    weight = None if sample_weight is None else np.asarray(sample_weight)
    return Shard(X, np.asarray(y), np.arange(n), weight, columns or None)


def join_shards(shards: Sequence[Shard]) -> Shard:
    """Join shards with the same columns to one, in their order."""
    if len(shards) == 1:
        return shards[0]

    def join(name: str) -> Any:
        """Join one part of all shards; all of them have it, or none."""
        parts = [getattr(shard, name) for shard in shards]
        if parts[0] is None:
            return None
        if isinstance(parts[0], Mapping):
            return {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
        return np.concatenate(parts)

    of_rows = ("y", "numbers", "sample_weight", "sensitive_features")
    return Shard(concatenate_rows([shard.X for shard in shards]), *map(join, of_rows))


def check_fit_arguments(local_class: type, fit: Mapping[str, Any]) -> None:
    """Refuse further arguments of ``fit`` that are unknown, or about rows.

    Parameters
    ----------
    local_class : type
        Classifier of one machine.
    fit : mapping
        Arguments of its ``fit``, by name.

    Raises
    ------
    TypeError
        If the method has no such argument.
    ValueError
        If an argument is about the rows of one machine.
    """
    # These have a value for each row, or rows of their own, that machines do not share.
    of_one_machine = (
        "base_margin", "base_margin_eval_set", "datasets", "eval_X", "eval_init_score", "eval_y",
        "evaluation", "groups", "init_score", "validation",
    )  # fmt: skip
    known = list(inspect.signature(local_class.fit).parameters)[1:]  # type: ignore[attr-defined]
    for name, value in fit.items():
        if name not in known:
            raise TypeError(f"fit() has no argument {name!r}: it takes {', '.join(known)}.")
        if name in of_one_machine and value is not None:
            raise ValueError(
                f"{name}= is not supported where rows are on several machines: leave it out, or "
                f"fit gbm_constrained.{local_class.__name__} on one machine."
            )
