"""Reads this host's kernel files, processes and file systems, and a server's data directory, without a connection.

Whatever may hang (statvfs, another process's command line, files of a stalled disk) runs in a lane with a deadline.
What this kernel does not have is None with a note, never 0.
"""
