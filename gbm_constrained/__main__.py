"""``python -m gbm_constrained``: the command line."""

import sys

from gbm_constrained.cli.main import main

if __name__ == "__main__":
    sys.exit(main())
