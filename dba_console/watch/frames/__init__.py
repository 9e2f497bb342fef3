"""What two samples mean: rates, ages, trends. Pure functions; nothing derived is stored as truth."""
