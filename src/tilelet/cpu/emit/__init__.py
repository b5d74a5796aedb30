"""Print planned kernels and the control program as C."""
