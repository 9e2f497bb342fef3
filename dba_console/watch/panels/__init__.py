"""How a frame is laid out as text: pure functions from Frame to lines and tables, shared by TUI, show and JSON."""
