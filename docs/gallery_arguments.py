"""What the examples are run with for the gallery, so that all of them take a few minutes."""

from pathlib import Path
from typing import Any

SAMPLED = ["--rows", "12000", "--rounds", "60"]
LIGHT = {
    "adult_fairness": SAMPLED,
    "adult_false_positive_rates": [],
    "churn_and_recall": SAMPLED,
    "coverage_budget": SAMPLED,
    "compas_fairness": ["--rounds", "100"],
    "credit_neyman_pearson": ["--rounds", "100"],
    "dry_bean_neyman_pearson": ["--rounds", "60"],
    "optuna_search": ["--trials", "5", "--rows", "3000", "--rounds", "40"],
}


def light(gallery_conf: Any, script_vars: Any) -> list[str]:
    """Command-line arguments of an example: sphinx-gallery calls this before it runs one."""
    return [*LIGHT[Path(script_vars["src_file"]).stem], "--jobs", "1"]
