"""Classifiers of both libraries whose rows are Dask collections.

Each worker trains on the partitions that it holds. Partitions stay where the scheduler has placed
them, and workers that hold none take part without rows.
"""

from __future__ import annotations

import functools
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass, replace
from typing import Any, ClassVar, TypeVar
from uuid import uuid4

import dask.array as da
import dask.dataframe as dd
import distributed
import numpy as np
from dask.base import compute, unpack_collections
from dask.delayed import Delayed, delayed
from distributed import Client, Future, MultiLock, Scheduler, Worker
from distributed.comm.addressing import get_address_host
from scipy import sparse
from sklearn.exceptions import NotFittedError
from sklearn.utils import check_random_state

from gbm_constrained._dataframes import number_of_rows
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.distributed import networks, ranks
from gbm_constrained.distributed.ranks import Plan, RankResult, Shard, make_shard
from gbm_constrained.exceptions import MachineError
from gbm_constrained.scorers.base import ConstrainedBoosterMixin
from gbm_constrained.scorers.lightgbm import estimators as of_lightgbm
from gbm_constrained.scorers.xgboost import estimators as of_xgboost


def is_collection(values: Any) -> bool:
    """Whether values are an array or a table of Dask."""
    return isinstance(values, da.Array | dd.DataFrame | dd.Series)


def partitions_of(values: Any, name: str) -> list[Delayed]:
    """List the partitions of a Dask collection; each holds all columns of its rows.

    Raises
    ------
    TypeError
        If the values are no Dask collection.
    ValueError
        If categories are unknown, so that partitions may number them differently.
    """
    if isinstance(values, da.Array):
        if values.ndim == 2 and values.numblocks[1] > 1:
            values = values.rechunk({1: -1})
        return list(values.to_delayed().ravel())
    if not is_collection(values):
        raise TypeError(
            f"{name} is a {type(values).__name__}, and no Dask array or Dask DataFrame: make one "
            f"with dask.array.from_array or dask.dataframe.from_pandas, or fit the classifier of "
            f"one machine, gbm_constrained.ConstrainedXGBClassifier or ConstrainedLGBMClassifier."
        )
    is_table = isinstance(values, dd.DataFrame)
    for column in [values[c] for c in values.columns] if is_table else [values]:
        if str(column.dtype) == "category" and not column.cat.known:
            raise ValueError(
                f"{name}: the categories of column {column.name!r} are unknown, and may differ "
                f"between partitions: call .categorize() first."
            )
    return list(values.to_delayed())


@dataclass(frozen=True, eq=False)
class DaskRows:
    """Arguments of ``fit`` about rows, as Dask collections with the same partitions.

    Parameters
    ----------
    X, y, sample_weight : Dask DataFrame, Series or Array
        Features, labels and weights; None for no weights.
    sensitive_features : Dask DataFrame, Series or Array, or dict of these, default=None
        Columns that constraints group by.
    name : str, default=""
        Evaluation set in messages, such as ``"eval_set[0]"``; empty for the training rows.
    """

    X: Any
    y: Any
    sample_weight: Any = None
    sensitive_features: Any = None
    name: str = ""

    def partitions(self) -> list[tuple[Any, Any, Any, Any]]:
        """Divide all arguments at the same rows; nothing is computed.

        Returns
        -------
        list of tuple
            X, y, weights and sensitive features of some rows, each None or what stands for its
            values.

        Raises
        ------
        TypeError
            If an argument is no Dask collection.
        ValueError
            If an argument has another number of partitions than X, or unknown categories.
        """
        where = f" of {self.name}" if self.name else ""
        X = partitions_of(self.X, f"X{where}")
        n = len(X)

        def aligned(argument: str, values: Any) -> Sequence[Any]:
            if values is None and argument != "y":
                return [None] * n
            found = partitions_of(values, f"{argument}{where}")
            if len(found) != n:
                raise ValueError(
                    f"{argument} has {len(found)} partitions and X has {n}: divide both "
                    f"collections at the same rows, with repartition or rechunk."
                )
            return found

        y, weight = aligned("y", self.y), aligned("sample_weight", self.sample_weight)
        columns: Sequence[Any]
        if isinstance(self.sensitive_features, Mapping):
            parts = {
                name: aligned(f"sensitive_features[{name!r}]", values)
                for name, values in self.sensitive_features.items()
            }
            columns = [{name: part[i] for name, part in parts.items()} for i in range(n)]
        else:
            columns = aligned("sensitive_features", self.sensitive_features)
        return list(zip(X, y, weight, columns, strict=True))


@dataclass(frozen=True, eq=False)
class PlacedRows:
    """Partitions in the memory of workers.

    Parameters
    ----------
    shards : list of Future
        Shard of each partition.
    lengths : list of int
        Number of rows of each partition.
    workers : list of str
        Address of the worker that holds each partition.
    empty : Future
        Shard with all columns and no row, for workers that hold no partition.
    """

    shards: list[Future[Shard]]
    lengths: list[int]
    workers: list[str]
    empty: Future[Shard]

    @classmethod
    def from_rows(cls, client: Client, rows: DaskRows) -> PlacedRows:
        """Compute the partitions where the scheduler places them, and make shards there."""
        parts, repack = unpack_collections(rows.partitions())
        computed = client.compute(parts)
        distributed.wait(computed)
        (partitions,) = repack(computed)
        held = client.who_has([X for X, *_ in partitions])
        workers = [min(held[X.key]) for X, *_ in partitions]
        where = f"partition {{}} of {rows.name or 'the training rows'}"
        shards = [
            client.submit(make_shard, *part, where=where.format(i), workers=[worker], pure=False)
            for i, (part, worker) in enumerate(zip(partitions, workers, strict=True))
        ]
        counts = client.map(lambda shard: len(shard.y), shards, pure=False)
        empty = client.submit(Shard.take, shards[0], np.arange(0), pure=False)
        return cls(shards, client.gather(counts), workers, empty)

    def assign(self, workers: Sequence[str]) -> list[list[tuple[Future[Shard], int]]]:
        """Give each worker the partitions that it holds; the first takes those of no worker.

        Each partition comes with the number of its first row among all rows.
        """
        offsets = [0, *np.cumsum(self.lengths)[:-1].tolist()]
        given: dict[str, list[tuple[Future[Shard], int]]] = {worker: [] for worker in workers}
        for shard, offset, worker in zip(self.shards, offsets, self.workers, strict=True):
            given[worker if worker in given else workers[0]].append((shard, offset))
        return [given[worker] or [(self.empty, 0)] for worker in workers]


Method = TypeVar("Method", bound=Callable[..., Any])


def by_partition(method: Method) -> Method:
    """Make a prediction of a classifier take Dask collections as well as tables in memory."""

    @functools.wraps(method)
    def predict(self: Any, X: Any, *args: Any, **options: Any) -> Any:
        if is_collection(X):
            return predict_partitions(self.to_local(), method.__name__, X, args, options)
        return method(self, X, *args, **options)

    if not method.__module__.startswith("gbm_constrained."):  # Its text is for other pages.
        name = f"{method.__module__}.{method.__qualname__}"
        predict.__doc__ = f"""Predict each partition of a Dask collection, or tables in memory.

        The arguments are those of :meth:`~{name}`.
        """
    return predict  # type: ignore[return-value]


def predict_partitions(
    local: Any, method: str, X: Any, args: tuple[Any, ...], options: Mapping[str, Any]
) -> da.Array | list[da.Array]:
    """Predict each partition where it is, when the result is computed.

    Parameters
    ----------
    local : classifier
        Fitted classifier of one machine.
    method : str
        Name of its method.
    X : Dask DataFrame or Array of shape (n_samples, n_features)
        Features.
    args, options : tuple, mapping
        Further arguments of the method.

    Returns
    -------
    Dask Array of shape (n_samples,) or (n_samples, n_outputs), or a list of these
        Its chunks are the partitions of X, of unknown length where X is a table. Sparse matrices
        stay sparse, and those in columns are one chunk. LightGBM's contributions of sparse rows to
        several classes are a list.

    Raises
    ------
    TypeError
        If another argument is a Dask collection, too.
    """
    for name, value in options.items():
        if is_collection(value):
            raise TypeError(
                f"{name} is a Dask collection, and {method} takes no collection but X: predict "
                f"each partition with to_local()."
            )
    parts = partitions_of(X, "X")
    is_array = isinstance(X, da.Array)
    # A row or two with the columns of the collection type the result.
    sample = np.zeros((1, X.shape[1])) if is_array else X._meta_nonempty
    if is_array and hasattr(X._meta, "tocsr"):
        sample = type(X._meta)(sample)
    like = _without_rows(getattr(local, method)(sample, *args, **options))

    def predict(model: Any, part: Any, own: dict[str, Any]) -> Any:
        if number_of_rows(part) == 0:
            return like
        found = getattr(model, method)(part, *args, **own)
        return np.asarray(found) if isinstance(like, np.ndarray) else found

    model = delayed(local, name=f"classifier-{uuid4()}", traverse=False)
    source = check_random_state(options.get("random_state"))
    predicted = []
    for part in parts:
        own = dict(options)
        if own.get("random_state") is not None:  # Partitions draw for different rows.
            own["random_state"] = int(source.randint(2**31 - 1))
        predicted.append(delayed(predict, pure=False)(model, part, own))
    rows = list(X.chunks[0]) if is_array else [np.nan] * len(parts)
    if not isinstance(like, list):
        return _join(predicted, rows, like)
    return [_join([part[k] for part in predicted], rows, one) for k, one in enumerate(like)]


def _join(parts: list[Delayed], rows: list[float], like: Any) -> da.Array:
    """Join predictions of all partitions to one array, whose blocks are as `like`."""
    joined: da.Array
    if getattr(like, "format", "csr") != "csr":  # Dask would join these as another format.
        whole = delayed(sparse.vstack)(parts, format=like.format)
        joined = da.from_delayed(whole, (sum(rows), like.shape[1]), meta=like)
        return joined
    chunks = [
        da.from_delayed(part, (n, *like.shape[1:]), meta=like)
        for part, n in zip(parts, rows, strict=True)
    ]
    joined = da.concatenate(chunks, allow_unknown_chunksizes=True)
    return joined


def _without_rows(predicted: Any) -> Any:
    """Keep the type of a prediction, or of a list of these, and none of its rows."""
    if isinstance(predicted, list):
        return [_without_rows(one) for one in predicted]
    return (predicted if hasattr(predicted, "tocsr") else np.asarray(predicted))[:0]


def count_right(model: Any, X: Any, y: Any, sample_weight: Any) -> tuple[float, float]:
    """Sum the weights of the rows that are decided right, and of all rows."""
    shard = make_shard(X, y, sample_weight, where="a partition")
    if len(shard.y) == 0:
        return 0.0, 0.0
    weight = np.ones(shard.y.size) if shard.sample_weight is None else shard.sample_weight
    return float(weight[model.predict(X) == shard.y].sum()), float(weight.sum())


CAUSE_LIMIT = 60.0  # Seconds that workers have to say why the sums of another one have failed.


def train(
    client: Client,
    rows: DaskRows,
    evaluation: Sequence[DaskRows],
    plan: Plan,
    function: networks.RankFunction = ranks.train_rank,
) -> RankResult:
    """Train on the rows of Dask collections, each row on the worker that holds it.

    Parameters
    ----------
    client : Client
        Connected to the cluster, each worker of which takes part.
    rows : DaskRows
        Training rows. The number of a row is its position in the whole collection.
    evaluation : sequence of DaskRows
        Rows of the evaluation sets.
    plan : Plan
        The same for all workers.
    function : callable, default=train_rank
        Trains on the rows of one worker.

    Returns
    -------
    RankResult
        Result of the first worker.

    Raises
    ------
    MachineError
        If the function raises on a worker, or a worker is lost; names the worker.
    """
    placed, *sets = [PlacedRows.from_rows(client, one) for one in (rows, *evaluation)]
    holders = zip(placed.workers, placed.lengths, strict=True)
    workers = list(dict.fromkeys(worker for worker, length in holders if length))
    if plan.library == "xgboost":  # LightGBM refuses machines without rows.
        workers += sorted(client.nthreads().keys() - workers)
    size = len(workers)
    held = zip(*(one.assign(workers) for one in (placed, *sets)), strict=True)
    name = f"gbm_constrained-{uuid4()}"
    with MultiLock(workers, client):  # Two fits that each hold some workers would never end.
        of_ranks: list[dict[str, Any]] = [{}] * size
        if plan.library == "lightgbm":
            found = client.run(_find_address, workers=workers)
            of_ranks = networks.lightgbm_networks([found[worker] for worker in workers])
        futures: list[Future[Any]] = []
        try:
            tracker = client.run_on_scheduler(_open_network, name, size)
            given = zip(of_ranks, held, workers, strict=True)
            for rank, (network, parts, worker) in enumerate(given):
                own = replace(plan, network=network)
                task = networks.RankTask(rank, size, tracker, own, function)
                given_to = {"workers": [worker], "pure": False, "retries": 0}
                futures.append(client.submit(_run, task, list(parts), **given_to))
            read = functools.partial(_read_outcomes, client, futures, workers)
            result: RankResult = networks.collect(read, size, CAUSE_LIMIT)[0]
            return result
        finally:
            client.cancel(futures)
            client.run_on_scheduler(_close_network, name)


_NETWORKS: dict[str, ExitStack] = {}  # In the process of a scheduler: those of running fits.


def _open_network(name: str, size: int, dask_scheduler: Scheduler) -> dict[str, Any]:
    """Run the tracker of a network beside the scheduler, which all workers can reach."""
    host = get_address_host(dask_scheduler.address)
    _NETWORKS[name] = ExitStack()
    return _NETWORKS[name].enter_context(networks.xgboost_network(size, host))


def _close_network(name: str) -> None:
    # The tracker may wait for ranks that do not know yet of the loss of another one.
    threading.Thread(target=_NETWORKS.pop(name).close, daemon=True).start()


def _find_address(dask_worker: Worker) -> tuple[str, int]:
    """Find the host of a worker, and a port of it that is free; Dask gives the argument."""
    (port,) = networks.find_free_ports(dask_worker.ip, 1)
    return dask_worker.ip, port


def _run(task: networks.RankTask, held: list[list[tuple[Shard, int]]]) -> Any:
    """Train on the rows of this worker; `held` are its partitions of each set of rows."""

    def read() -> Shard:
        shard, *sets = [
            ranks.join_shards(
                [replace(part, numbers=part.numbers + start) for part, start in parts]
            )
            for parts in held
        ]
        return replace(shard, evaluation=sets)

    return task.run(read, distributed.get_worker().state.nthreads)


def _read_outcomes(
    client: Client,
    futures: Sequence[Future[Any]],
    workers: Sequence[str],
    waiting: set[int],
    limit: float,
) -> dict[int, Any]:
    """Wait for a second until one of some ranks is done, and look for the workers of the others.

    LightGBM may wait for ever for a machine whose own LightGBM has failed.
    """
    try:
        distributed.wait(
            [futures[rank] for rank in waiting], timeout=1.0, return_when="FIRST_COMPLETED"
        )
    except TimeoutError:
        present = client.nthreads()
        for rank in waiting:
            if workers[rank] not in present:
                reason = "this worker of Dask was lost: it was killed, or ran out of memory"
                raise MachineError(rank, len(futures), workers[rank], reason) from None
    return {rank: futures[rank].result() for rank in waiting if futures[rank].done()}


# Parameters of LightGBM by which machines find each other, with their other names.
OWN_NETWORK = (
    "machines", "workers", "nodes",
    "local_listen_port", "local_port", "port",
    "machine_list_filename", "machine_list_file", "machine_list", "mlist",
    "time_out",
)  # fmt: skip

Fitted = TypeVar("Fitted", bound="DaskClassifierMixin")


class DaskClassifierMixin(ConstrainedBoosterMixin):
    """A classifier of one machine that is trained on the workers of a Dask cluster."""

    _local_class: ClassVar[type]
    _library: ClassVar[ranks.Library]

    client: Client | None = None
    """Cluster to train on; it is no parameter, and is left out of copies and files."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        scoring = "apply", "decision_function", "decision_probabilities"
        for name in (*scoring, "predict", "predict_proba"):
            if (method := getattr(cls, name, None)) is not None:
                setattr(cls, name, by_partition(method))

    def set_params(self, **params: Any) -> Any:
        """Set parameters, and the client of the cluster to train on as ``client``."""
        if "client" in params:
            self.client = params.pop("client")
        return super().set_params(**params)

    def __getstate__(self) -> Any:
        state: Any = super().__getstate__()
        return {name: value for name, value in state.items() if name != "client"}

    def __copy__(self) -> Any:
        made = super().__copy__()
        vars(made).pop("client", None)
        return made

    def to_local(self) -> Any:
        """Return the classifier of one machine with the same parameters and the same model."""
        local = self._local_class()
        vars(local).update(vars(self))
        vars(local).pop("client", None)
        return local

    def score(self, X: Any, y: Any, sample_weight: Any = None, **columns: Any) -> float:
        """Compute the accuracy on Dask collections, or on tables in memory as the parent does.

        Parameters
        ----------
        X : Dask DataFrame or Array, or table of shape (n_samples, n_features)
            Features.
        y : Dask Series or Array, or array of shape (n_samples,)
            Labels; those of Dask in the partitions of X.
        sample_weight : Dask Series or Array, or array of shape (n_samples,), default=None
            Weights; those of Dask in the partitions of X.
        **columns
            Arguments of the parent for tables in memory.
        """
        if not is_collection(X):
            return super().score(X, y, sample_weight, **columns)
        model = delayed(self.to_local(), name=f"classifier-{uuid4()}", traverse=False)
        count = delayed(count_right, pure=False)
        partitions = DaskRows(X, y, sample_weight).partitions()
        right, total = np.sum(compute(*(count(model, *part[:3]) for part in partitions)), axis=0)
        return float(right / total)

    def fit(
        self: Fitted,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        sensitive_features: Any = None,
        sensitive_features_eval_set: Sequence[Any] | None = None,
        client: Client | None = None,
        **fit: Any,
    ) -> Fitted:
        """Fit the classifier on Dask collections, each partition on the worker that holds it.

        Parameters
        ----------
        X : Dask DataFrame or Array of shape (n_samples, n_features)
            Features; categories must be known.
        y : Dask Series or Array of shape (n_samples,)
            Labels, in the partitions of X.
        sample_weight : Dask Series or Array of shape (n_samples,), default=None
            Weights, in the partitions of X.
        eval_set : list of (X, y), default=None
            Evaluation sets of Dask collections.
        sensitive_features : Dask DataFrame, Series or Array, or dict of these, default=None
            Columns that constraints may group by, in the partitions of X.
        sensitive_features_eval_set : list, default=None
            Sensitive features of each evaluation set.
        client : distributed.Client, default=None
            Cluster to train on; by default that of the current client.
        **fit
            The weights of each evaluation set, which are ``sample_weight_eval_set`` of XGBoost and
            ``eval_sample_weight`` of LightGBM, and arguments of the ``fit`` of one machine that
            are not about rows.

        Raises
        ------
        TypeError, ValueError
            If an argument is no Dask collection, has other partitions than X, or is one that only
            one machine takes.
        MachineError
            If a worker raises an error or is lost; names the worker.
        """
        sets, columns = eval_set or [], sensitive_features_eval_set
        weights = fit.pop(ranks.SET_WEIGHTS[self._library], None)
        for name, values in (("weights", weights), ("sensitive features", columns)):
            if values is not None and len(values) != len(sets):
                raise ValueError(
                    f"eval_set has {len(sets)} sets, and {name} are given for {len(values)}: give "
                    f"one entry for each set."
                )
        none: list[Any] = [None] * len(sets)
        of_sets = enumerate(zip(sets, weights or none, columns or none, strict=True))
        evaluation = [
            DaskRows(*rows, weight, of_set, f"eval_set[{i}]")
            for i, (rows, weight, of_set) in of_sets
        ]
        ranks.check_fit_arguments(self._local_class, fit)
        with preserve_random_state(self):
            params = self.get_params(deep=False)  # type: ignore[attr-defined]
        if "client" in params:
            raise TypeError(
                "client= is no parameter of XGBoost's classifiers: give it to fit, or set it as "
                "the attribute client."
            )
        for name in OWN_NETWORK:
            if self._library == "lightgbm" and params.get(name) is not None:
                raise ValueError(
                    f"{name}={params[name]!r} is about LightGBM's own network, which is made of "
                    f"the workers here, that wait {networks.TIME_LIMIT:.0f} s for each other: "
                    f"leave it out."
                )
        rows = DaskRows(X, y, sample_weight, sensitive_features)
        with _use_client(self.client if client is None else client) as used:
            plan = Plan(self._library, params, fit)
            train(used, rows, evaluation, plan).hand_over_to(self)
        return self


@contextmanager
def _use_client(client: Client | None) -> Iterator[Client]:
    """Use the client given, or the one there is.

    A task of a cluster that fits a classifier leaves its thread to the tasks of the fit.
    """
    if client is not None:
        yield client
        return
    try:
        distributed.get_worker()
    except ValueError:
        pass
    else:
        with distributed.worker_client() as client:
            yield client
        return
    try:
        client = distributed.get_client()
    except ValueError:
        raise ValueError(
            "client: there is no Dask client. Make one with dask.distributed.Client(...), or "
            "give it as client=."
        ) from None
    yield client


class ConstrainedXGBClassifier(DaskClassifierMixin, of_xgboost.ConstrainedXGBClassifier):
    """XGBoost classifier under constraints, trained on the workers of a Dask cluster.

    Parameters, attributes, reports and saved files are those of
    :class:`gbm_constrained.ConstrainedXGBClassifier`. Tables in memory are predicted as there,
    and Dask collections partition by partition.

    Parameters
    ----------
    **kwargs
        Parameters of :class:`gbm_constrained.ConstrainedXGBClassifier`. ``n_jobs`` is by default
        the number of threads of a worker.

    Examples
    --------
    >>> from gbm_constrained import fpr, gap
    >>> from gbm_constrained.dask import ConstrainedXGBClassifier
    >>> constraints = [fpr() <= 0.05, gap(fpr(), by="sex") <= 0.02]
    >>> clf = ConstrainedXGBClassifier(constraints=constraints, n_estimators=300)
    """

    _local_class = of_xgboost.ConstrainedXGBClassifier
    _library = "xgboost"


class ConstrainedLGBMClassifier(  # type: ignore[misc]
    DaskClassifierMixin, of_lightgbm.ConstrainedLGBMClassifier
):
    """LightGBM classifier under constraints, trained on the workers of a Dask cluster.

    Parameters, attributes, reports and saved files are those of
    :class:`gbm_constrained.ConstrainedLGBMClassifier`. Tables in memory are predicted as there,
    and Dask collections partition by partition.

    Parameters
    ----------
    **kwargs
        Parameters of :class:`gbm_constrained.ConstrainedLGBMClassifier`. ``n_jobs`` is by default
        the number of threads of a worker. A `client` among them is kept as the attribute, which
        copies and files leave out.

    Examples
    --------
    >>> from gbm_constrained import fnr
    >>> from gbm_constrained.dask import ConstrainedLGBMClassifier
    >>> clf = ConstrainedLGBMClassifier(constraints=[fnr() <= 0.05], n_estimators=300)
    """

    _local_class = of_lightgbm.ConstrainedLGBMClassifier
    _library = "lightgbm"

    @property
    def client_(self) -> Client:
        """Cluster of a fitted classifier: the attribute `client`, or the current client."""
        if not self.__sklearn_is_fitted__():
            raise NotFittedError("Cannot access property client_ before calling fit().")
        with _use_client(self.client) as client:
            return client
