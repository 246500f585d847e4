"""Adapters for other libraries; each module needs the library in its name, which the package itself never imports."""
