"""Parts for three rooms or more: input checks, labels, tables, calibration, files, journal, progress."""
