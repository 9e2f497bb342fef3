"""`dba-console stamp`: copy standard input to standard output, each line prefixed with its time, like logger and ts."""
