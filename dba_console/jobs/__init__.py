"""Dumps, restores and other long work: archive formats, following, history, tools, and their panels."""
