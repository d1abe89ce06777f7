"""Clusters of Dask and Spark on this computer, on the loopback address."""

import os
import sys
import warnings
from contextlib import contextmanager

from distributed import Client, LocalCluster


@contextmanager
def dask_cluster(n_workers, *, processes=False):
    """Run workers of one thread each, as threads of this process or as processes."""
    cluster = LocalCluster(
        n_workers=n_workers,
        threads_per_worker=1,
        processes=processes,
        protocol="tcp",
        host="127.0.0.1",
        dashboard_address="127.0.0.1:0",
        silence_logs="CRITICAL",
    )
    with cluster, Client(cluster) as client:
        yield client


@contextmanager
def spark_session(n_cores):
    """Run a session of Spark with some cores of this computer, and tasks of this interpreter."""
    from pyspark.sql import SparkSession

    before = os.environ.get("PYSPARK_PYTHON")
    os.environ["PYSPARK_PYTHON"] = sys.executable  # Spark would take the first on the path.

    builder = SparkSession.builder.master(f"local[{n_cores}]")
    settings = {
        "spark.driver.bindAddress": "127.0.0.1",
        "spark.driver.host": "127.0.0.1",
        "spark.sql.shuffle.partitions": "2",
        "spark.ui.enabled": "false",
        "spark.ui.showConsoleProgress": "false",
    }
    for name, value in settings.items():
        builder = builder.config(name, value)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        session = builder.getOrCreate()
    session.sparkContext.setLogLevel("OFF")
    try:
        yield session
    finally:
        session.stop()
        if before is None:
            del os.environ["PYSPARK_PYTHON"]
        else:
            os.environ["PYSPARK_PYTHON"] = before
