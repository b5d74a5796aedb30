"""Proofs that two programs compute the same for all inputs, by symbolic execution."""
