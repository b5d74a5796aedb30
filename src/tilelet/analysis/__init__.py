"""Static analyses: index arithmetic, aliases, overlap."""
