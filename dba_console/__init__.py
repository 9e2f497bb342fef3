"""dba-console: monitoring, findings, guided actions and recording for a PostgreSQL host in trouble.

Importing this package loads nothing else, so a command loads only what it uses.
"""

__version__ = "0.1.0"
