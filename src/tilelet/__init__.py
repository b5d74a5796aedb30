"""Tilelet: run, check and profile tile kernels written in the `pl` language, on any CPU.

Kernels import `tilelet.language as pl`; nothing heavy is imported here.
"""

__version__ = "0.1.0"
