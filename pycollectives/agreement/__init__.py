"""What ranks compare before anything is made, and the checks of `PYC_CHECK`."""
