"""Functions of ranks that processes import and run."""

import os
import signal
import time
from dataclasses import dataclass, field

import numpy as np

N_ROUNDS = 30


@dataclass
class Plan:
    library: str
    network: dict = field(default_factory=dict)
    failure: str = "none"  # Of rank 1, in the middle of its rounds.
    path: str = ""


def fail(kind):
    if kind == "raise":
        raise ValueError("the costs are negative")
    if kind == "kill":
        os.kill(os.getpid(), signal.SIGKILL)


def gradients(plan, communicator, sums):
    """Make the objective of a logistic model that adds a table in each round."""

    def objective(scores, data):
        labels = data.get_label()
        probabilities = 1 / (1 + np.exp(-scores))
        table = np.array([len(labels), labels.sum(), (scores > 0).sum()], dtype=float)
        sums.append(communicator.sum(table).tolist())
        if communicator.rank == 1 and len(sums) == N_ROUNDS // 2:
            fail(plan.failure)
        return probabilities - labels, probabilities * (1 - probabilities)

    return objective


def train(shard, plan, communicator):
    """Train a booster; its text, the sums of all rounds, and the process."""
    X, y = shard
    sums = []
    objective = gradients(plan, communicator, sums)
    if plan.library == "xgboost":
        import xgboost as xgb

        parameters = {"nthread": 1, "max_depth": 2, "base_score": 0.5, **plan.network}
        booster = xgb.train(parameters, xgb.DMatrix(X, label=y), N_ROUNDS, obj=objective)
        text = booster.save_raw("json").decode()
    else:
        import lightgbm as lgb

        parameters = {"objective": objective, "num_threads": 1, "verbosity": -1}
        parameters |= {"tree_learner": "data", "num_leaves": 4, **plan.network}
        text = lgb.train(parameters, lgb.Dataset(X, y), N_ROUNDS).model_to_string()
    return text, sums, os.getpid()


def note_process_and_wait(shard, plan, communicator):
    """Write down which process this is, and wait far too long."""
    with open(f"{plan.path}/rank{communicator.rank}", "w") as file:
        file.write(str(os.getpid()))
    communicator.sum(np.ones(1))
    time.sleep(1000)


def give_what_cannot_be_sent(shard, plan, communicator):
    return lambda: shard


class EndsWhoReadsIt:
    """A shard that ends the process to which it is sent."""

    def __reduce__(self):
        return os._exit, (7,)
