"""The keeper and its callers: what it is told, what it does with a command, how it is found and read afterwards.

Two sides. `keeper.py` and what it imports from here (`attending`, `command`, `stamping`, `outlog`, `rolling`, `files`,
`proc`) is the small process beside a long command: standard library only, and of that only what loads quickly. `spec`,
`launch`, `look` and `tail` are for whoever starts keepers and reads what they left.
"""
