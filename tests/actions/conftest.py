"""Clusters that tests of this directory use one after the other."""

from tests.postgres.pool import pool_closed, reused_cluster

__all__ = ["pool_closed", "reused_cluster"]
