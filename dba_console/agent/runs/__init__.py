"""Runs of runbooks in the agent: walked in a thread of their own, performed in lanes, shown to every console.

An agent without a run loads none of it but `side`.
"""
