"""`dba-console doctor`: check what works on this host, what does not, its impact, and how to fix it.

Checks are pure functions of facts gathered once; nothing is changed, and every wait has a timeout.
"""
