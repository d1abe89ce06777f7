"""LightGBM's classifier under constraints on the rows of one of several machines.

LightGBM's own network joins the histograms of the machines, so that each of them grows the same
trees. It has no call of Python for sums: these take another way.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from typing import Any

import lightgbm as lgb
import numpy as np
from sklearn.preprocessing import LabelEncoder

from gbm_constrained.boosters.lightgbm.adapter import LightGBMAdapter
from gbm_constrained.boosters.lightgbm.class_shares import find_class_weights
from gbm_constrained.boosters.lightgbm.classifier import ConstrainedLGBMClassifier
from gbm_constrained.boosters.lightgbm.parameters import find_parameter
from gbm_constrained.boosters.shards import ShardMixin
from gbm_constrained.data.communicator import Machine
from gbm_constrained.data.validation import check_labels
from gbm_constrained.training.evaluation_sets import EvaluationArguments
from gbm_constrained.training.fit import ConstrainedFit

MIN_ROWS = 2  # Fewest rows of a machine that LightGBM takes.
TREE_LEARNERS = ("data", "data_parallel", "serial")  # "serial" is the default of one machine.


@contextmanager
def join_network(network: Mapping[str, Any]) -> Iterator[dict[str, Any]]:
    """Join the network of LightGBM in this thread, for all boosters that are made inside.

    Parameters
    ----------
    network : mapping
        LightGBM's parameters ``machines``, ``num_machines``, ``local_listen_port`` and
        ``time_out``; empty for one machine.

    Yields
    ------
    dict
        Parameters of boosters that are grown by all machines together.
    """
    if not network:
        yield {}
        return
    # Each booster with the parameter ``machines`` would open a network of its own.
    X = np.arange(4.0)[:, None]
    quiet = {"verbosity": -1, "num_threads": 1}
    tiny = lgb.train(quiet, lgb.Dataset(X, X[:, 0], params=quiet), 1)
    n_machines = network["num_machines"]
    tiny.set_network(
        network["machines"], network["local_listen_port"], network["time_out"], n_machines
    )
    try:
        yield {"num_machines": n_machines, "tree_learner": "data", "pre_partition": True}
    finally:
        tiny.free_network()


class _ShardAdapter(LightGBMAdapter):
    """``BoosterAdapter`` of a machine that may lack classes and groups."""

    def __init__(self, model: Any, *given: Any, **options: Any) -> None:
        super().__init__(model, *given, **options)
        self.communicator = model.machine.communicator

    def check_parameters(self) -> None:
        """Refuse parameters that have no meaning under constraints, or on several machines."""
        super().check_parameters()
        learner = find_parameter(self.model, "tree_learner", "data")
        if learner not in TREE_LEARNERS:
            raise ValueError(
                f"tree_learner={learner!r} divides features or votes on them, and constraints are "
                f"sums over the rows of all machines: leave it out, which is 'data' here."
            )
        if len(self.y) < MIN_ROWS:
            raise ValueError(
                f"A machine has {len(self.y)} rows, and LightGBM needs {MIN_ROWS} on each: divide "
                f"the rows among fewer machines."
            )

    def bind(self, fit: ConstrainedFit) -> EvaluationArguments:
        """Check the arguments that depend on the rows, and list the evaluation sets."""
        bound = super().bind(fit)
        if bound.has_patience and fit.options.early_stopping_on == "metric":
            raise ValueError(
                "early_stopping_on='metric' compares values that LightGBM computes from the rows "
                "of one machine, so that machines would stop at different rounds: give "
                "early_stopping_on='constraints', whose values are of the rows of all machines."
            )
        self.metrics = [], []  # They would be of the rows of one machine.
        return bound


class _ShardParent(lgb.LGBMClassifier):
    """LightGBM's classifier, whose labels on a machine need not be of all classes."""

    machine: Machine
    network: Mapping[str, Any]

    def fit(self, X: Any, y: Any, *given: Any, **others: Any) -> Any:
        """Train with the other machines on the rows of all of them.

        The parent finds its classes among the labels of this machine, and is left out.
        """
        classes, codes = check_labels(y, communicator=self.machine.communicator)
        self._le = LabelEncoder().fit(classes)
        self._classes, self._n_classes = classes, classes.size
        self._class_map = {label: i for i, label in enumerate(classes.tolist())}
        if self.class_weight is not None:
            factor = find_class_weights(
                self.class_weight, classes, codes, self.machine.communicator
            )
            self._class_weight = dict(enumerate(factor))
        if self.objective is None:
            self._objective = None
        if others.get("eval_set") is not None:
            others["eval_set"] = [
                (X_i, self._le.transform(y_i)) for X_i, y_i in others["eval_set"]
            ]
        return lgb.LGBMModel.fit(self, X, codes, *given, **others)

    def _process_params(self, stage: str) -> dict[str, Any]:
        params: dict[str, Any] = super()._process_params(stage=stage)
        return {**params, **self.network} if stage == "fit" else params


class ShardLGBMClassifier(ShardMixin, ConstrainedLGBMClassifier, _ShardParent):
    """A classifier of LightGBM whose training rows are on several machines.

    Attributes
    ----------
    network : mapping
        Parameters that :func:`join_network` gives.
    """

    _adapter_class = _ShardAdapter
    _local_class = ConstrainedLGBMClassifier
    _of_shard = ("machine", "network")
