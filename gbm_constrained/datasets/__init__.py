"""Example data sets."""

from gbm_constrained.datasets.loaders import (
    load_adult,
    load_communities_crime,
    load_compas,
    load_credit,
    load_dry_bean,
)

__all__ = ["load_adult", "load_communities_crime", "load_compas", "load_credit", "load_dry_bean"]
