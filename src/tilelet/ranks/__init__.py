"""Several ranks: host programs, windows, signals, and the scheduler that runs them."""
