"""Tile sizes and layouts that are better, found with the model and checked on the CPU."""
