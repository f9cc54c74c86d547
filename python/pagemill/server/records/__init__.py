"""What is known of each HTTP request at its end, and what is done with it."""
