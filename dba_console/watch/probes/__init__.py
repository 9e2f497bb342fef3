"""Probes: read the server and the host, and change nothing."""
