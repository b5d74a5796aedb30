"""Time limits of tests."""

# Seconds after which a process counts as hung. A limit is there to end a test that would never
# end: on a machine with other work, every process may take many times as long as alone.
HUNG = 600.0
