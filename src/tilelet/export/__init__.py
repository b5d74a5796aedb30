"""A program as one self-contained script in the dialect of a public PyPTO release."""
