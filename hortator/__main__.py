"""`python -m hortator` is the command line."""

import sys

from hortator.actors.cli import main

if __name__ == "__main__":
    sys.exit(main())
