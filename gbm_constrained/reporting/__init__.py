"""What people look at: audits, pages, notebooks and figures."""
