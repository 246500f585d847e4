"""Which algorithm `algorithm="auto"` means: tables of what was measured."""
