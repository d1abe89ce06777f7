"""A fit on the rows of one of several machines, for any way in which these are started.

Every machine runs the same fit on its own rows. Numbers that depend on the rows of all machines
are sums of tables of cells, so that all machines take the same decisions. Rows never move.
"""

from __future__ import annotations

import pickle
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any, Literal, TypeAlias

from gbm_constrained._findings import Issued, collect_warnings, issue_again
from gbm_constrained._typing import Codes
from gbm_constrained.data.communicator import Communicator, Machine
from gbm_constrained.training.fitted_report import remove_report

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
    return RankResult(pickle.dumps(local), issued)


@contextmanager
def _make_classifier(plan: Plan) -> Iterator[Any]:
    """Make the classifier of a machine, in the network of its library; load no other library."""
    if plan.library == "xgboost":
        from gbm_constrained.boosters.xgboost.shard import ShardXGBClassifier

        yield ShardXGBClassifier(**plan.params)
        return
    from gbm_constrained.boosters.lightgbm.shard import ShardLGBMClassifier, join_network

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
