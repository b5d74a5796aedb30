"""A machine is data: one TOML file each, read and checked by `description`."""
