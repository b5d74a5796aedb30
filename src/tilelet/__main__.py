"""`python -m tilelet` is the command `tilelet`."""

import sys

from tilelet.cli.entry import main

if __name__ == "__main__":
    sys.exit(main())
