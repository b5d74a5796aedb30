"""Console lines, run directories, and bug reports."""
