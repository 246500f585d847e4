"""Written by the build: see setup.py."""

version: str
commit: str
