"""dba-console: watch, conclude, act and remember on a PostgreSQL host that is in trouble.

Importing this package loads nothing else: a command pays only for what it uses.
"""

__version__ = "0.1.0"
