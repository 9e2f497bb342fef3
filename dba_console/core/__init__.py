"""What every part uses: clock, units, errors, paths, text safety, redaction, configuration, target.

Knows neither PostgreSQL's views nor a screen.
"""
