"""`tilelet bench`: how close the native engine comes to what this machine can do."""
