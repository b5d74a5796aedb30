"""The names of the language that are not ops: types, loop and scope markers, enums."""
