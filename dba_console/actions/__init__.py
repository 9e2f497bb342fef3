"""What changes the world: one module per action, and the gate all of them pass."""
