"""Classifiers of both libraries whose rows are Dask collections."""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any, ClassVar, TypeVar

from distributed import Client, get_client, get_worker, worker_client

from gbm_constrained.boosters.base import ConstrainedBoosterMixin
from gbm_constrained.boosters.lightgbm import classifier as of_lightgbm
from gbm_constrained.boosters.xgboost import classifier as of_xgboost
from gbm_constrained.data.validation import preserve_random_state
from gbm_constrained.distributed.dask import train
from gbm_constrained.distributed.dask_prediction import by_partition, score_partitions
from gbm_constrained.distributed.dask_rows import DaskRows, is_collection
from gbm_constrained.distributed.fit_arguments import check_fit_arguments
from gbm_constrained.distributed.outcomes import TIME_LIMIT
from gbm_constrained.distributed.rank import Library, Plan

# Methods that take collections, in so far as the parent has them.
PREDICTIONS = ("apply", "decision_function", "decision_probabilities", "predict", "predict_proba")

Fitted = TypeVar("Fitted", bound="DaskClassifierMixin")


class DaskClassifierMixin(ConstrainedBoosterMixin):
    """A classifier of one machine that is trained on the workers of a Dask cluster."""

    _local_class: ClassVar[type]
    _library: ClassVar[Library]

    client: Client | None = None
    """Cluster to train on; it is no parameter, and is left out of copies and files."""

    def __init_subclass__(cls, **given: Any) -> None:
        super().__init_subclass__(**given)
        for name in PREDICTIONS:
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

    def to_local(self) -> Any:
        """Return the classifier of one machine with the same parameters and the same model."""
        local = self._local_class()
        kept = {name: value for name, value in vars(self).items() if name != "client"}
        vars(local).update(kept)
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
        if is_collection(X):
            return score_partitions(self.to_local(), DaskRows(X, y, sample_weight))
        return super().score(X, y, sample_weight, **columns)

    def _train(
        self: Fitted,
        client: Client | None,
        rows: DaskRows,
        evaluation: Sequence[DaskRows],
        fit: Mapping[str, Any],
    ) -> Fitted:
        """Train on the cluster, and take over what the classifier of one machine has learned."""
        check_fit_arguments(self._local_class, fit)
        with preserve_random_state(self):
            params = self.get_params(deep=False)  # type: ignore[attr-defined]
        if "client" in params:
            raise TypeError(
                "client= is no parameter of XGBoost's classifiers: give it to fit, or set it as "
                "the attribute client."
            )
        if params.get("time_out") is not None:
            raise ValueError(
                f"time_out={params['time_out']!r} is about LightGBM's own network, and machines "
                f"wait {TIME_LIMIT:.0f} s for each other here: leave it out."
            )
        plan = Plan(self._library, params, fit)
        given = self.client if client is None else client
        with _use_client(given) as used:
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
        get_worker()
    except ValueError:
        pass
    else:
        with worker_client() as client:
            yield client
        return
    try:
        client = get_client()
    except ValueError:
        raise ValueError(
            "client: there is no Dask client. Make one with dask.distributed.Client(...), or "
            "give it as client=."
        ) from None
    yield client


def _evaluation_rows(
    eval_set: Sequence[tuple[Any, Any]] | None,
    sample_weight: Sequence[Any] | None,
    sensitive_features: Sequence[Any] | None,
) -> list[DaskRows]:
    """Collect the collections of each evaluation set."""
    sets = eval_set or []
    for name, values in (("weights", sample_weight), ("sensitive features", sensitive_features)):
        if values is not None and len(values) != len(sets):
            raise ValueError(
                f"eval_set has {len(sets)} sets, and {name} are given for {len(values)}: give one "
                f"entry for each set."
            )
    none: list[Any] = [None] * len(sets)
    given = zip(sets, sample_weight or none, sensitive_features or none, strict=True)
    return [
        DaskRows(X, y, weight, columns, f"eval_set[{i}]")
        for i, ((X, y), weight, columns) in enumerate(given)
    ]


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

    def fit(
        self,
        X: Any,
        y: Any,
        *,
        sample_weight: Any = None,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        sample_weight_eval_set: Sequence[Any] | None = None,
        sensitive_features: Any = None,
        sensitive_features_eval_set: Sequence[Any] | None = None,
        client: Client | None = None,
        **fit: Any,
    ) -> ConstrainedXGBClassifier:
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
        sample_weight_eval_set : list, default=None
            Weights of each evaluation set.
        sensitive_features : Dask DataFrame, Series or Array, or dict of these, default=None
            Columns that constraints may group by, in the partitions of X.
        sensitive_features_eval_set : list, default=None
            Sensitive features of each evaluation set.
        client : distributed.Client, default=None
            Cluster to train on; by default that of the current client.
        **fit
            Arguments of :meth:`gbm_constrained.ConstrainedXGBClassifier.fit` that are not about
            rows.

        Raises
        ------
        TypeError, ValueError
            If an argument is no Dask collection, has other partitions than X, or is one that only
            one machine takes.
        MachineError
            If a worker raises an error or is lost; names the worker.
        """
        rows = DaskRows(X, y, sample_weight, sensitive_features)
        sets = _evaluation_rows(eval_set, sample_weight_eval_set, sensitive_features_eval_set)
        return self._train(client, rows, sets, fit)


class ConstrainedLGBMClassifier(DaskClassifierMixin, of_lightgbm.ConstrainedLGBMClassifier):
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

    def fit(  # type: ignore[override]
        self,
        X: Any,
        y: Any,
        sample_weight: Any = None,
        *,
        eval_set: Sequence[tuple[Any, Any]] | None = None,
        eval_sample_weight: Sequence[Any] | None = None,
        sensitive_features: Any = None,
        sensitive_features_eval_set: Sequence[Any] | None = None,
        client: Client | None = None,
        **fit: Any,
    ) -> ConstrainedLGBMClassifier:
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
        eval_sample_weight : list, default=None
            Weights of each evaluation set.
        sensitive_features : Dask DataFrame, Series or Array, or dict of these, default=None
            Columns that constraints may group by, in the partitions of X.
        sensitive_features_eval_set : list, default=None
            Sensitive features of each evaluation set.
        client : distributed.Client, default=None
            Cluster to train on; by default that of the current client.
        **fit
            Arguments of :meth:`gbm_constrained.ConstrainedLGBMClassifier.fit` that are not about
            rows.

        Raises
        ------
        TypeError, ValueError
            If an argument is no Dask collection, has other partitions than X, or is one that only
            one machine takes.
        MachineError
            If a worker raises an error or is lost; names the worker.
        """
        rows = DaskRows(X, y, sample_weight, sensitive_features)
        sets = _evaluation_rows(eval_set, eval_sample_weight, sensitive_features_eval_set)
        return self._train(client, rows, sets, fit)
