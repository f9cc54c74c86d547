"""What `pagemill simulate` simulates: devices, models, load; and how it reports."""
