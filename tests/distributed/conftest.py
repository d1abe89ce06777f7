"""A cluster of Dask whose workers are threads, for all tests."""

import pytest
from clusters import dask_cluster


@pytest.fixture(scope="package")
def client():
    with dask_cluster(2) as client:
        yield client
