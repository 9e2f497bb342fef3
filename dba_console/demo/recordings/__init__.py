"""Recorded incidents, replayed where the real incident needs root, and the script that records them."""
