"""`diagnose serve`: a page to paste into, a link to send, and an HTTP API.

One process speaks HTTP and keeps the results (`run`, `pages`, `api`, `store`); it never
reads a log. Logs are read in worker processes (`work`, started by `desk`), which a bound of time or
memory may end at any moment. In between stands the queue (`desk`).
"""
