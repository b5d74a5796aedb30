"""A modelled run as a page that people look at: packed data, one HTML file, a local server."""
