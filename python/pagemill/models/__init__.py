"""Model families: each module builds one family's program from a configuration and weights."""
