"""One kernel on one machine: lowered to steps of pipes, its tiles, its cost."""
