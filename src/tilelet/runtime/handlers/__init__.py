"""Handlers of the programs that a script runs: execute, count, record, examine, export.

See docs/adr/0012-program-handlers.md.
"""
