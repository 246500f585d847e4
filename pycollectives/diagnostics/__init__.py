"""Flight records, traces, and which commit a result was made with."""
