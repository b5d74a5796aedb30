"""The reference interpreter and the record of tasks it makes."""
