"""Suggested changes, each verified and modelled before it is proposed."""
