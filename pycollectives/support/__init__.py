"""What every part of the package uses; it knows no collective."""
