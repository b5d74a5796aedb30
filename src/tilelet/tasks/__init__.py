"""The record of a run: its tasks, their windows, and their data-dependent control flow."""
