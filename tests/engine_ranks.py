"""Functions of ranks that an engine runs in its workers, and what they are given."""

import os
import pickle
import signal
import time

import numpy as np
import pandas as pd
import xgboost as xgb

from gbm_constrained.distributed.ranks import RankResult

N_ROUNDS = 10


def table(n=600, *, seed=0):
    """Make rows of two coarse features, whose cuts do not depend on where rows are."""
    rng = np.random.default_rng(seed)
    a, b = rng.integers(0, 40, (2, n))
    y = (a + rng.normal(0, 12, n) > 20).astype(int)
    group = np.where(b > 15, "x", "z")
    weight = rng.integers(1, 4, n).astype(float)
    return pd.DataFrame({"a": a, "b": b, "y": y, "group": group, "weight": weight})


def describe_shard(shard):
    """Turn all columns of a shard into lists by name."""
    columns = {"X": np.asarray(shard.X), "y": shard.y, "numbers": shard.numbers}
    columns |= {"weight": shard.sample_weight} if shard.sample_weight is not None else {}
    columns |= shard.sensitive_features or {}
    return {name: values.tolist() for name, values in columns.items()}


def describe(shard, plan, communicator):
    """Give back the rows of each rank, the evaluation rows, and the plan."""
    rows = communicator.gather(describe_shard(shard))
    sets = communicator.gather([describe_shard(one) for one in shard.evaluation])
    plans = communicator.gather((dict(plan.params), dict(plan.network)))
    return RankResult(pickle.dumps((rows, sets, plans)), ())


def boost(shard, plan, communicator):
    """Train a booster, and fail in the way that the plan says on rank 1 in the middle."""
    rounds = []

    def objective(scores, data):
        rounds.append(communicator.sum(np.array([scores.sum()])))
        if communicator.rank == 1 and len(rounds) == N_ROUNDS // 2:
            fail(plan.fit.get("failure"))
        p = 1 / (1 + np.exp(-scores))
        return p - data.get_label(), p * (1 - p)

    data = xgb.DMatrix(shard.X, label=shard.y)
    params = {"nthread": plan.params["n_jobs"], "max_depth": 3, "base_score": 0.5}
    booster = xgb.train(params, data, N_ROUNDS, obj=objective)
    return RankResult(pickle.dumps(booster.save_raw("json")), ())


def fail(kind):
    if kind == "raise":
        raise ValueError("the costs are negative")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)
    if kind == "wait":
        time.sleep(1000)
