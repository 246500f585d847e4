"""Flight records, traces, and the commit with which a result was made."""
