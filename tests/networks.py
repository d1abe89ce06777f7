"""XGBoost's network, whose ranks are threads, on the loopback address."""

from concurrent.futures import ThreadPoolExecutor

from xgboost.collective import CommunicatorContext

from gbm_constrained.distributed.networks import CollectiveCommunicator, xgboost_network


def run_on_collective(work, n):
    """Call ``work(communicator)`` on each of n ranks; results by rank, or the first exception."""

    def run(rank, tracker):
        with CommunicatorContext(**tracker, dmlc_task_id=f"{rank:09d}"):
            return work(CollectiveCommunicator())

    with xgboost_network(n) as tracker, ThreadPoolExecutor(n) as pool:
        futures = [pool.submit(run, rank, tracker) for rank in range(n)]
        for future in futures:
            future.exception()  # All of them end before the network does.
    return [future.result() for future in futures]
