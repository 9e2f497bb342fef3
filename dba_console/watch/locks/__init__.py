"""Locks: who waits for whom, and which sessions block others for too long."""
