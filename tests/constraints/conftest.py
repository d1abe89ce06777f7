"""Copies that constraints survive."""

import copy
import pickle

import pytest
from sklearn.base import BaseEstimator, clone


class Holder(BaseEstimator):
    """Estimator that stores its constraints, which scikit-learn clones."""

    def __init__(self, constraints=()):
        self.constraints = constraints


COPIES = {
    "pickle": lambda x: pickle.loads(pickle.dumps(x)),
    "deepcopy": copy.deepcopy,
    "copy": copy.copy,
    "clone": lambda x: clone(Holder(x)).constraints,
    "clone of a list": lambda x: clone(Holder([x])).constraints[0],
}


@pytest.fixture(params=COPIES)
def make_copy(request):
    return COPIES[request.param]
