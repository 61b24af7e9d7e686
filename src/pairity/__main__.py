"""``python -m pairity``, the command where scripts are not on the path."""

import sys

from pairity.cli import main

sys.exit(main())
