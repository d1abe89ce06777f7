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
    """

    max_calls: int
    n_groups: int

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
    def before_search(self) -> int:
        """Calls before the search."""
        return N_TRIALS + self.thresholds + self.group_thresholds

    @property
    def after_search(self) -> int:
        """Calls that shift what was found, and those on the rows of evidence."""
        shifts = 3 + self.thresholds + self.group_thresholds
        return shifts + N_REPORTED * (1 + self.replicates)
