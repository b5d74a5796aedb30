"""The record of a run: its tasks, the windows they touch, and what data decides in them."""
