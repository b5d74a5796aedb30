"""`import tilelet.compat.pypto` makes `import pypto.language` and `from golden import run` work.

`tilelet run` does the same for the script it runs. Nothing else installs the aliases.
"""

from __future__ import annotations

from tilelet.compat.aliases import install

install()
