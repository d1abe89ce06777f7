"""Fits whose rows are on several machines, which are threads of one process."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from dealt_rows import list_deals
from networks import run_on_collective

from gbm_constrained.distributed.networks import find_free_ports, lightgbm_networks
from gbm_constrained.distributed.ranks import Plan, Shard, train_rank

N = 2400
QUIET = {"n_estimators": 16, "n_jobs": 1, "max_depth": 3}


class Problem:
    """Rows of few distinct values, for which all machines find the same bins."""

    def __init__(self, n_classes=2, is_weighted=False, seed=0):
        rng = np.random.default_rng(seed)
        self.sex = rng.choice(["F", "M"], N, p=[0.4, 0.6])
        self.X = rng.normal(size=(N, 5)).round(1)
        self.X[:, 0] += np.where(self.sex == "M", 0.5, 0.0)
        score = self.X[:, 0] + 0.5 * self.X[:, 1] + rng.normal(size=N)
        self.y = np.digitize(score, [0.8, 1.6][: n_classes - 1])
        self.weight = rng.gamma(2.0, size=N) if is_weighted else None

    def shard(self, rows, evaluation=()):
        weight = None if self.weight is None else self.weight[rows]
        columns = {"sex": self.sex[rows]}
        return Shard(self.X[rows], self.y[rows], rows, weight, columns, evaluation)

    def deals(self, seed=0):
        """Rows of each machine, by a name of the deal; one machine of four has none."""
        return list_deals(N, seed, self.sex)

    def with_evaluation(self, rows):
        """Set a fifth of the rows aside as an evaluation set, by their numbers."""
        held = rows % 5 == 0
        return self.shard(rows[~held], [self.shard(rows[held])])


def plan_of(library="xgboost", fit=None, **params):
    quiet = {"verbosity": -1} if library == "lightgbm" else {}
    silent = {"verbose": False} if library == "xgboost" else {}
    return Plan(library, {**QUIET, **quiet, **params}, {**silent, **(fit or {})})


def train_on(plan, shards):
    """Train on each machine; the results by rank."""
    networks = [{}] * len(shards)
    if plan.library == "lightgbm":
        ports = find_free_ports("127.0.0.1", len(shards))
        networks = lightgbm_networks([("127.0.0.1", port) for port in ports])

    def work(communicator):
        own = replace(plan, network=networks[communicator.rank])
        return train_rank(shards[communicator.rank], own, communicator)

    return run_on_collective(work, len(shards))
