"""Published measurements, the programs they were made with, and how the model fares on them."""
