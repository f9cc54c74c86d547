"""What tests read of matrices that were rounded at load."""
