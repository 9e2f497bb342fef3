"""Runbooks: parse, check and compile documents, and walk a plan. Pure: the caller performs all I/O."""
