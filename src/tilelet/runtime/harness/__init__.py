"""`run`: compile a program, run it on specs, and compare it with its golden."""
