"""Reports of a modelled run: profile, traffic, critical path, trace, comparison."""
