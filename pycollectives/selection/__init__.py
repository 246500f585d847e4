"""The choice of `algorithm="auto"`: tables of measurements, and a cost model."""
