"""How large a disparity is, and how sure that is: estimates with intervals, audits, comparisons."""
