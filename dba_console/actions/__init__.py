"""Actions: changes to servers and hosts, one module per action, and the permission gate all of them pass."""
