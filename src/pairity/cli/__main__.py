"""``python -m pairity.cli``."""

import sys

from pairity.cli import main

sys.exit(main())
