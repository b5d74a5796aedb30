"""What fits on the chip: addresses of tiles, limits of a machine, tile sizes that would fit."""
