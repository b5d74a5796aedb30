"""What becomes of the programs that a script runs: executed, counted, recorded, examined, exported.

See docs/adr/0012-program-handlers.md.
"""
