"""The native CPU engine: programs as C, compiled by the system's compiler (docs/adr/0002)."""
