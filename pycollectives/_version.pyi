"""The version and the commit. The build writes this module: see setup.py."""

version: str
commit: str
