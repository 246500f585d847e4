"""Which algorithm `algorithm="auto"` means: tables of what was measured, and a cost model."""
