"""Rows of the server as the records of `samples.postgres`: pure functions, one module to a part.

A row is a tuple as `loaders` makes it: text as bytes, timestamps since 2000. What the server did not say stays None.
"""
