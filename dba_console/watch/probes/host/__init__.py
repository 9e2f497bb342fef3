"""The Linux side: /proc, /sys, file systems, and what a server's processes and files tell without a connection.

A probe only reads. What can hang (statvfs, another process's command line, files of a stalled disk) is read in a lane
with a deadline; what this kernel does not have is None and a sentence, never 0.
"""
