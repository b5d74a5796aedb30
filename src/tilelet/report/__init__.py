"""The HTML page of a modelled run: packed data, one file, a local server."""
