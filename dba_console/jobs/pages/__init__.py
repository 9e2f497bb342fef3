"""The panels of one dump or restore and of their history."""
