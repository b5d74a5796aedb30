"""What to change in a program, shown to be right and faster before it is proposed."""
