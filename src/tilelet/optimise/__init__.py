"""Search rewritings and tile sizes together, with every accepted step shown to keep the results."""
