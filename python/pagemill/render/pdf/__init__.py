"""PDF files as text, each read in a process of its own. `pages.read_pages` is the way in."""
