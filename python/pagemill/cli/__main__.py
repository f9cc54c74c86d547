"""`python -m pagemill.cli`."""

import sys

from pagemill.cli import main

sys.exit(main())
