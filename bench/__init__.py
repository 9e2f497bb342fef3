"""Benchmarks behind every figure in the documents, measured in one run with the peer. Not tests: nothing fails here."""
