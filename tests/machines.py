"""Two machines that each hold part of the rows, as two processes that exchange tables."""

from __future__ import annotations

import multiprocessing


class TwoProcesses:
    """A communicator that adds the tables of two processes in the order of their ranks."""

    def __init__(self, rank, pipe):
        self.rank, self.pipe = rank, pipe
        self.shapes = set()

    def sum(self, table):
        self.shapes.add(table.shape)
        self.pipe.send(table)
        tables = [table, self.pipe.recv()]
        return sum(tables if self.rank == 0 else reversed(tables))


def _answer(rank, pipe, answers, work, arguments):
    answers.send([work(rank, TwoProcesses(rank, pipe), *given) for given in arguments])


def run_on_two_processes(work, arguments):
    """Call ``work(rank, communicator, *given)`` in two processes for each of the arguments.

    Returns the results of both processes for each of them.
    """
    context = multiprocessing.get_context("spawn")
    pipes, answers, processes = context.Pipe(), [], []
    for rank, pipe in enumerate(pipes):
        ours, theirs = context.Pipe(duplex=False)
        answers.append(ours)
        given = (rank, pipe, theirs, work, arguments)
        processes.append(context.Process(target=_answer, args=given, daemon=True))
        processes[-1].start()
        theirs.close()
        pipe.close()  # So that a process notices if the other one has failed.
    try:
        return list(zip(*(answer.recv() for answer in answers), strict=True))
    finally:
        for process in processes:
            process.join(timeout=60)
            process.kill()
