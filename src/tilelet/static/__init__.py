"""Programs in a file, read from its text: nothing in the file is executed."""
