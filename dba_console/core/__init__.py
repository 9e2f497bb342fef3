"""Shared by all packages: clock, units, errors, paths, sanitizing, redaction, configuration, target.

Depends neither on PostgreSQL's views nor on a screen.
"""
