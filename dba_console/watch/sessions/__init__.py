"""Sessions: what each backend does, what it waits for, and what its process uses."""
