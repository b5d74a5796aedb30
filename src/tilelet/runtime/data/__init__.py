"""The user's data: arrays, specs, initial values, and array files."""
