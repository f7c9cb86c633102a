"""What three rooms or more need: input checks, labels, tables, calibration, files, journal, progress."""
