"""The words of the language that are no ops: types, markers of loops and scopes, enums."""
