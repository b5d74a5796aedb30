"""`python -m tilelet.cli` is `tilelet`."""

import sys

from tilelet.cli.entry import main

sys.exit(main())
