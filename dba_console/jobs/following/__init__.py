"""Observe running dumps, restores and other long jobs from outside: processes, connections, pipes, files and logs.

Only reads, and never from a job's input: data taken from a pipe or tape would be lost. Position and size of open files
come from the kernel; of a job's files only its log and its archive's table of contents are opened, and no program is
run. Everything here may hang with a dead mount or a stopped process: it must run in a lane with a deadline.
"""
