"""The machine Tilelet runs on: its C compiler, the cache of compiled programs, its memory."""
