"""The language server: diagnostics, hover, lenses and actions for kernels, from their text."""
