"""Simulation of a recorded run: tasks as arrays, dependencies, L2, the event loop."""
