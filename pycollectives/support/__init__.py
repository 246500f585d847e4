"""Common code of all parts of the package; it uses no collective."""
