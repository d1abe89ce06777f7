"""How the calls of a black-box metric are shared out in a fit."""

from __future__ import annotations

from dataclasses import dataclass

from gbm_constrained.solvers.post_shift import N_PASSES

# One call in so many looks for the best threshold, one for thresholds of groups, and one is for
# the intervals of the report.
SHARE = 15
# More thresholds follow the validation rows too closely. A standard error from as many replicates
# of the bootstrap is known to a tenth.
MOST_CALLS = 50
THRESHOLDS_OF_GROUP = 10  # In each pass over the groups, for the same reason.
LEAST_CALLS = 4  # A search for a threshold takes as many.
N_REPORTED = 4  # Models in the report.


@dataclass(frozen=True)
class CallPlan:
    """Numbers of calls for the parts of a fit; the search has those that are left.

    Parameters
    ----------
    max_calls : int
        Most calls.
    n_groups : int
        Number of groups of the metric.
    n_searches : int
        Number of searches that share the calls.
    n_compared : int
        Number of parameters that are compared anew after a search.
    """

    max_calls: int
    n_groups: int
    n_searches: int
    n_compared: int

    @property
    def thresholds(self) -> int:
        """Calls that look for the best threshold."""
        return max(min(self.max_calls // SHARE, MOST_CALLS), LEAST_CALLS)

    @property
    def group_thresholds(self) -> int:
        """Calls that look for the best threshold of each group."""
        n_searches = N_PASSES * self.n_groups
        if not n_searches:
            return 0
        asked = min(self.max_calls // SHARE // n_searches, THRESHOLDS_OF_GROUP)
        return n_searches * max(asked, LEAST_CALLS)

    @property
    def replicates(self) -> int:
        """Replicates of the bootstrap for each reported model."""
        return min(self.max_calls // SHARE // N_REPORTED, MOST_CALLS)

    @property
    def shifts(self) -> int:
        """Calls that look for all thresholds, and compare the best one with none."""
        return self.thresholds + 1 + self.group_thresholds

    @property
    def refinement(self) -> int:
        """Calls after a search: shifts of the mean of its last iterates, and comparisons."""
        return self.n_compared + N_REPORTED + self.shifts

    @property
    def of_report(self) -> int:
        """Calls on the rows of evidence."""
        return N_REPORTED * (1 + self.replicates)

    @property
    def of_search(self) -> int:
        """Calls of a search, with its thresholds and its refinement."""
        # Before training, the validation rows and those of evidence are tried twice each.
        return (self.max_calls - 4 - self.of_report) // self.n_searches

    def kept_back(self, n_searches: int) -> int:
        """Count the calls that are left for so many further searches, and for the report."""
        return n_searches * self.of_search + self.of_report
