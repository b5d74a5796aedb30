"""Running what a user names: a script, a module, or a program that ships with Tilelet."""
