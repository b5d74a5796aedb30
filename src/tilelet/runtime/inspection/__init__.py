"""`tilelet.check`, `tilelet.diverge`, `tilelet.profile`, and task budgets."""
