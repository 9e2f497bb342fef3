"""The keeper (the process beside a long command), and its callers, which start it and read what it leaves.

The keeper is `__main__` with `command_loop`, `output_log` and `proc`: it imports only modules of the standard library
that load quickly. `launch`, `command_status` and `output_log_reader` are for its callers.
"""
