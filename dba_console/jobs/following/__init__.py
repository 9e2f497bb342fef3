"""Dumps, restores and other long work seen from outside: processes, their connections, pipes and files.

A probe only reads, and never what a job reads: a named pipe or a tape would lose what we take. Of open files their
place and size are told by the kernel; no file of a job is opened but the log its messages go to, and no program is run.
Everything here may hang with a dead mount or a stopped process: it belongs into a lane, whose deadline bounds it.
"""
