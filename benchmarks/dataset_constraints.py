"""The experiments of "Satisfying Real-world Goals with Dataset Constraints" on public data.

- `fairness`: a9a by sex. Men are selected at most u times as often as women, for 24 values of u
  from 1 to 4, and for 5 with boosters. Zafar's covariance constraint is a path of 24 multipliers.
- `education`: the same by column 39, an education bin, which the authors' code takes for sex, for
  u from 1 to 6.5.
- `churn`: a9a and Default of credit. Errors on 10,000 labelled rows, under recall no worse than
  that of a deployed model of 3,000 rows, and churn of at most c on 10,000 unlabelled rows.
- `neyman_pearson`: Credit. The sum of both error rates, under a bound of the false positive rate.
- `held_out`: fairness by sex at equal ratios, on held-out parts of the training rows alone.
- `steps`: errors by the number of steps, on held-out parts of the training rows of a9a.
- `cuts`: those of both choosers of multipliers, on 3,000 rows of a9a under one to five rules.

    GBM_CONSTRAINED_DATA=FOLDER python benchmarks/dataset_constraints.py
        [fairness education churn neyman_pearson held_out steps cuts] [--results FOLDER]

Figures that begin with "random" are expected ones of decisions that are positive with the
probability of the ramp. All fits have C = 1 and the defaults. Each is a row of a CSV of its part,
and is not repeated while its row is there. `dataset_constraints_bars.py` reads these rows.
"""

from __future__ import annotations

import argparse
import warnings
from functools import partial
from pathlib import Path

import dataset_constraints_cuts as cuts
import dataset_constraints_data as data
import dataset_constraints_fairness as fairness
import dataset_constraints_rates as rates
import dataset_constraints_steps as steps
from result_file import Measurements, Part, add_parts

RESULTS = Path(__file__).parent / "results" / "dataset_constraints"
PARTS = {
    "fairness": Part(partial(fairness.run, column=data.MALE), fairness.NAMES, fairness.FIGURES),
    "education": Part(
        partial(fairness.run, column=data.EDUCATION), fairness.NAMES, fairness.FIGURES
    ),
    "churn": Part(rates.run_churn, rates.CHURN_NAMES, rates.CHURN_FIGURES),
    "neyman_pearson": Part(rates.run_neyman_pearson, rates.NP_NAMES, rates.NP_FIGURES),
    "held_out": Part(fairness.run_held_out, fairness.HELD_OUT_NAMES, fairness.HELD_OUT_FIGURES),
    "steps": Part(steps.run, steps.NAMES, steps.FIGURES),
    "cuts": Part(cuts.run, cuts.NAMES, cuts.FIGURES),
}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    add_parts(parser, "part", PARTS)
    parser.add_argument("--results", type=Path, default=RESULTS)
    arguments = parser.parse_args()
    warnings.simplefilter("ignore")  # Of constraints that are missed, which the figures show.
    for name in arguments.part:
        part = PARTS[name]
        print(f"\n{name}")
        part.run(Measurements(arguments.results / f"{name}.csv", part.names, part.figures))


if __name__ == "__main__":
    main()
