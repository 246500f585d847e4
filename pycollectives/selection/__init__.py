"""How `algorithm="auto"` chooses an algorithm: by tables of measurements, or by a cost model."""
