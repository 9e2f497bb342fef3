"""Follow a run without a screen: text lines or JSON, answers from the terminal or from options."""
