"""Machine descriptions: one TOML file each, read and validated by `description`."""
