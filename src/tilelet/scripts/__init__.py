"""Run a target: a script, a module, or a shipped program."""
