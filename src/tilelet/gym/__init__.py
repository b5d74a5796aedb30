"""Tasks for those who write kernels: specifications with references, floors and scores."""
