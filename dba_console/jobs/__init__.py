"""Dumps, restores and other long work: archive formats, observation of running jobs, history, tools, panels."""
