"""What each command takes: its options, and the call that does the work.

Only here does anything know argparse's namespaces, and only the chosen command imports
what it needs.
"""
