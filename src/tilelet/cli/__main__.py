"""`python -m tilelet.cli` is `tilelet`."""

import sys

from tilelet.cli.main import main

sys.exit(main())
