"""From Python source text to IR.

`tilelet.language` comes first: its last line imports the decorators from here, so entering the
cycle from this side would find it half done.
"""

import tilelet.language as _language

_ = _language
