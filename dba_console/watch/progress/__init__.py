"""Dumps, restores and other long operations: how far they are, time left; whether one is overdue or missing."""
