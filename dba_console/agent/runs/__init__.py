"""Runs of runbooks in the agent: executed in their own threads, disk access in lanes, shown to every console.

An agent without a run loads only `run_service`.
"""
