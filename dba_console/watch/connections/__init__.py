"""Connections against the limit: how many are free, how fast they are used up, who has them."""
