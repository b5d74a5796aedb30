"""On-chip memory: addresses of tiles, limits of a machine, tile sizes that would fit."""
