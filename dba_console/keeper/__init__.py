"""The keeper: a small process that supervises one long command of a run and logs its output, also if the agent ends.

The keeper is `__main__` with `command_loop`, `output_log` and `proc`: it imports only modules of the standard library
that load quickly. `launch`, `command_status` and `output_log_reader` are for its callers.
"""
