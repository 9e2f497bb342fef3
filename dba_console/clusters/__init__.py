"""Clusters: state of their nodes, hosts and poolers, readiness for a cutover or failover, and its steps."""
