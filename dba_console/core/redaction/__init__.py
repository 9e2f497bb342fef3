"""Parts of `core.redact`: names of secrets, statements, command lines, other text."""
