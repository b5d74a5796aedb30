"""Judge a candidate program against a reference, without executing the candidate's Python."""
