"""A fit on the rows of one of several machines, its arguments and its failures.

Every machine runs the same fit on its own rows. Numbers that depend on the rows of all machines
are sums of tables of cells, so that all machines take the same decisions. Rows never move.
"""

from __future__ import annotations

import inspect
import pickle
import socket
import traceback
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from multiprocessing.connection import Connection, wait
from time import monotonic
from typing import Any, Literal, NamedTuple, TypeAlias

import numpy as np
from joblib import wrap_non_picklable_objects
from numpy.typing import NDArray

from gbm_constrained._dataframes import number_of_rows, take_rows
from gbm_constrained._findings import Issued, collect_warnings, issue_again
from gbm_constrained._typing import Codes
from gbm_constrained.data.exact_sums import Communicator, Machine
from gbm_constrained.data.fit_data import concatenate_rows
from gbm_constrained.data.validation import columns_of
from gbm_constrained.exceptions import MachineError
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

    model: bytes | None
    issued: Sequence[Issued]

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
    with collect_warnings() as issued, _make_classifier(plan) as model:
        sets = {f"eval_set[{i}]": one.numbers for i, one in enumerate(shard.evaluation)}
        model.machine = Machine(communicator, shard.numbers, sets)
        model.fit(shard.X, shard.y, **_arguments(shard, plan.library), **plan.fit)
        local = model.to_local()
    if communicator.rank > 0:  # All machines have the same model, and the same warnings.
        return RankResult(None, ())
    # A function of a notebook, such as a metric, is known by its name in the notebook alone.
    whole = wrap_non_picklable_objects(local, keep_wrapper=False)
    return RankResult(pickle.dumps(whole), issued)


@contextmanager
def _make_classifier(plan: Plan) -> Iterator[Any]:
    """Make the classifier of a machine, in the network of its library; load no other library."""
    if plan.library == "xgboost":
        from gbm_constrained.scorers.xgboost.estimators import ShardXGBClassifier

        yield ShardXGBClassifier(**plan.params)
        return
    from gbm_constrained.scorers.lightgbm.estimators import ShardLGBMClassifier, join_network

    model = ShardLGBMClassifier(**plan.params)
    with join_network(plan.network) as model.network:
        yield model


def _arguments(shard: Shard, library: Library) -> dict[str, Any]:
    """Collect the arguments of ``fit`` about the rows of a machine."""
    given: dict[str, Any] = {
        "sample_weight": shard.sample_weight,
        "sensitive_features": shard.sensitive_features,
    }
    names = {
        "sample_weight": SET_WEIGHTS[library],
        "sensitive_features": "sensitive_features_eval_set",
    }
    if sets := shard.evaluation:
        given["eval_set"] = [(one.X, one.y) for one in sets]
        for name, of_sets in names.items():
            values = [getattr(one, name) for one in sets]
            if any(value is not None for value in values):
                given[of_sets] = values
    return given


def make_shard(
    X: Any,
    y: Any,
    sample_weight: Any = None,
    sensitive_features: Any = None,
    *,
    where: str,
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
    return Shard(
        X,
        np.asarray(y),
        np.arange(n),
        None if sample_weight is None else np.asarray(sample_weight),
        columns or None,
    )


def count_rows(shard: Shard) -> int:
    """Count the rows of a shard."""
    return number_of_rows(shard.X)


def without_rows(shard: Shard) -> Shard:
    """Keep the columns of a shard and none of its rows."""
    none = np.arange(0)
    columns = shard.sensitive_features
    return Shard(
        take_rows(shard.X, none),
        shard.y[none],
        shard.numbers[none],
        None if shard.sample_weight is None else shard.sample_weight[none],
        None if columns is None else {name: values[none] for name, values in columns.items()},
    )


def renumber(shard: Shard, offset: int) -> Shard:
    """Add an offset to the numbers of the rows."""
    return replace(shard, numbers=shard.numbers + offset)


def join_shards(shards: Sequence[Shard]) -> Shard:
    """Join shards with the same columns to one, in their order."""
    if len(shards) == 1:
        return shards[0]
    first = shards[0]

    def joined(read: Callable[[Shard], NDArray[Any]]) -> NDArray[Any]:
        return np.concatenate([read(shard) for shard in shards])

    def column(name: Hashable) -> NDArray[Any]:
        return joined(lambda shard: shard.sensitive_features[name])

    columns = first.sensitive_features
    return Shard(
        concatenate_rows([shard.X for shard in shards]),
        joined(lambda shard: shard.y),
        joined(lambda shard: shard.numbers),
        None if first.sample_weight is None else joined(lambda shard: shard.sample_weight),
        None if columns is None else {name: column(name) for name in columns},
    )


PATIENCE = 3.0  # Seconds in which a failed rank is heard of before its echo counts as a failure.


@dataclass(frozen=True, eq=False)
class FailureLine:
    """The line of a rank to whoever passes failures on: `collect_outcomes`.

    A rank that fails leaves the others in the middle of a sum, which then fails on them too. What
    they see is an echo that does not say why. So a rank waits a little before it reports an
    error that may be one.

    Parameters
    ----------
    connection : Connection
        Leads to `collect_outcomes`.
    rank : int
        Number of this rank, from zero on.
    size : int
        Number of ranks.
    echoes : tuple of type, default=()
        Errors of the library whose communicator a failed rank breaks. `MachineError` is one too.
    """

    connection: Connection
    rank: int
    size: int
    echoes: tuple[type[Exception], ...] = ()

    @contextmanager
    def guard(self) -> Iterator[None]:
        """Turn what goes wrong into the error that all ranks raise.

        The block must lie inside those that close the communicators, so that the failure is
        reported before the other ranks see an echo of it.

        Raises
        ------
        MachineError
            In place of any other exception.
        """
        try:
            yield
        except Exception as error:
            may_echo = isinstance(error, (MachineError, *self.echoes))
            failure = self._hear() if may_echo else None
            if failure is None:
                failure = describe_failure(error, self.rank, self.size)
            self.report(failure)
            if failure is error:
                raise
            raise failure from error

    def report(self, outcome: Any) -> None:
        """Send the result of this rank, or its failure."""
        self.connection.send(outcome)

    def _hear(self) -> MachineError | None:
        """Wait for the failure of another rank."""
        with suppress(EOFError, OSError):
            if self.connection.poll(PATIENCE):
                failure: MachineError = self.connection.recv()
                return failure
        return None


def describe_failure(error: Exception, rank: int, size: int) -> MachineError:
    """Say on which rank an error was raised; the traceback is a note of the result."""
    if isinstance(error, MachineError):
        return error
    failure = MachineError(rank, size, socket.gethostname(), f"{type(error).__name__}: {error}")
    failure.add_note("".join(traceback.format_exception(error)))
    return failure


class Outcomes(NamedTuple):
    """What became of the ranks.

    Attributes
    ----------
    by_rank : list
        The result of each rank, or the `MachineError` that it has raised.
    failure : MachineError or None
        The first failure.
    """

    by_rank: list[Any]
    failure: MachineError | None


def collect_outcomes(
    connections: list[Connection], describe_loss: Callable[[int], MachineError]
) -> Outcomes:
    """Wait for the result or the failure of each rank, and tell all ranks of the first failure.

    Parameters
    ----------
    connections : list of Connection
        Other ends of the lines of all ranks, by rank.
    describe_loss : callable
        Called with the number of a rank that has gone without a word.

    Returns
    -------
    Outcomes
        Results and failures. A rank from which nothing is heard within twice the patience after
        the first failure has this failure, and is named in a note of it.
    """
    outcomes: dict[int, Any] = {}
    failure: MachineError | None = None
    end = None
    silent = dict(zip(connections, range(len(connections)), strict=True))
    while silent and (end is None or monotonic() < end):
        ready: list[Any] = wait(list(silent), None if end is None else end - monotonic())
        for connection in ready:
            rank = silent.pop(connection)
            try:
                outcomes[rank] = connection.recv()
            except (EOFError, OSError):
                outcomes[rank] = describe_loss(rank)
            if failure is None and isinstance(outcomes[rank], MachineError):
                failure, end = outcomes[rank], monotonic() + 2 * PATIENCE
                for other in silent:
                    with suppress(OSError):
                        other.send(failure)
    if failure is not None and silent:
        missing = ", ".join(str(rank) for rank in silent.values())
        failure.add_note(f"No answer from rank {missing}: it hangs, or its library waits.")
    return Outcomes([outcomes.get(rank, failure) for rank in range(len(connections))], failure)


# Arguments with a value for each row, or with rows of their own, that machines do not share.
OF_ONE_MACHINE = (
    "base_margin",
    "base_margin_eval_set",
    "datasets",
    "eval_X",
    "eval_init_score",
    "eval_y",
    "evaluation",
    "groups",
    "init_score",
    "validation",
)


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
    known = list(inspect.signature(local_class.fit).parameters)[1:]  # type: ignore[attr-defined]
    for name, value in fit.items():
        if name not in known:
            raise TypeError(f"fit() has no argument {name!r}: it takes {', '.join(known)}.")
        if name in OF_ONE_MACHINE and value is not None:
            raise ValueError(
                f"{name}= is not supported where rows are on several machines: leave it out, or "
                f"fit gbm_constrained.{local_class.__name__} on one machine."
            )
