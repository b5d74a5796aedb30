"""`tilelet bench`: the native engine compared with the peaks of this machine."""
