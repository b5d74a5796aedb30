"""A recorded run in modelled time: tasks as arrays, dependencies, L2, the event loop."""
