"""One kernel on one machine: lowering to pipe steps, storage of tiles, cost."""
