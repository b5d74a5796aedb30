"""Published measurements, their programs, and the accuracy of the model on them."""
