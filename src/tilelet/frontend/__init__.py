"""From Python source text to IR."""
