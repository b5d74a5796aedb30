"""Programs that ship with Tilelet."""
