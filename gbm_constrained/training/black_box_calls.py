"""How the calls of a black-box metric are shared out in a fit."""

from __future__ import annotations

from dataclasses import dataclass

from gbm_constrained.solvers.post_shift import N_PASSES

SHARE_OF_THRESHOLDS = 20  # One call in so many looks for the best threshold,
SHARE_OF_GROUPS = 10  # one in so many for the thresholds of groups,
SHARE_OF_REPORT = 15  # and one in so many is for the intervals of the report.
MOST_THRESHOLDS = 50  # More of them follow the validation rows too closely,
THRESHOLDS_OF_GROUP = 10  # and so do more of them in each pass over the groups.
LEAST_THRESHOLDS = 4
MOST_REPLICATES = 50  # Of the bootstrap; a standard error from so many is known to a tenth.
N_REPORTED = 4  # Models in the report.
N_TRIALS = 2  # Calls before training, one on the validation rows and one on those of evidence.


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
        asked = min(self.max_calls // SHARE_OF_THRESHOLDS, MOST_THRESHOLDS)
        return max(asked, LEAST_THRESHOLDS)

    @property
    def group_thresholds(self) -> int:
        """Calls that look for the best threshold of each group."""
        n_searches = N_PASSES * self.n_groups
        if not n_searches:
            return 0
        asked = min(self.max_calls // SHARE_OF_GROUPS // n_searches, THRESHOLDS_OF_GROUP)
        return n_searches * max(asked, LEAST_THRESHOLDS)

    @property
    def replicates(self) -> int:
        """Replicates of the bootstrap for each reported model."""
        return min(self.max_calls // SHARE_OF_REPORT // N_REPORTED, MOST_REPLICATES)

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
        return (self.max_calls - N_TRIALS - self.of_report) // self.n_searches

    def kept_back(self, n_searches: int) -> int:
        """Count the calls that are left for so many further searches, and for the report."""
        return n_searches * self.of_search + self.of_report
