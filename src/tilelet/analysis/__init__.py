"""What can be known of a program without running it: index arithmetic, aliases, overlap."""
