"""Cuts by both choosers, under one to five rules: a part of `dataset_constraints.py`."""

from __future__ import annotations

import time
from functools import partial

import dataset_constraints_data as data
import numpy as np
from result_file import Measurements, column

from gbm_constrained import ConstrainedLinearSVC, error_rate, fpr, recall, selection_rate

N_ROWS, SEEDS = 3000, range(3)
MEN, WOMEN = {"sex": "male"}, {"sex": "female"}
RULES = (
    selection_rate(on=MEN) / selection_rate(on=WOMEN) <= 1.5,
    fpr() <= 0.05,
    error_rate(on=WOMEN) <= 0.1,
    recall(on=MEN) >= 0.45,
    error_rate(on=MEN) <= 0.22,
)
NAMES = ("rules", "chooser", "seed")
FIGURES = ("cuts", "steps", "seconds")


def measure(n_rules: int, chooser: str, seed: int) -> dict[str, float]:
    """Fit under the first rules on some rows of a9a, and count the cuts of all steps."""
    table = data.load_a9a("a9a")
    rows = np.random.default_rng(seed).permutation(table.y.size)[:N_ROWS]
    sex = np.where(data.is_in(table, data.MALE), "male", "female")[rows]
    model = ConstrainedLinearSVC(constraints=RULES[:n_rules], chooser=chooser)
    began = time.process_time()
    model.fit(*table.take(rows), sensitive_features={"sex": sex})
    seconds = time.process_time() - began
    cuts = float(model.certificate_["n_cuts"].sum())
    return {"cuts": cuts, "steps": float(model.n_iter_), "seconds": seconds}


def run(results: Measurements) -> None:
    """Measure one to five rules, and print means over the draws of rows."""
    print("means: rules, chooser, cuts and steps of a fit, CPU seconds")
    for n_rules in range(1, len(RULES) + 1):
        for chooser in ("maximum", "centroid"):
            found = [
                results.once(partial(measure, n_rules, chooser, seed), n_rules, chooser, seed)
                for seed in SEEDS
            ]
            means = [column(found, figure).mean() for figure in FIGURES]
            print(n_rules, chooser, " ".join(f"{mean:.1f}" for mean in means), flush=True)
