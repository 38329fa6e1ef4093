"""The tools of `diagnose` for coding agents, by the Model Context Protocol.

`server` speaks it (with the official SDK, extra `mcp`), `toolbox` says which tools there are; the
other modules each make the answer of one of them. Answers are bounded in `answer`, paths are kept
below the root in `root`, and log text is masked and marked as somebody else's words everywhere.
"""
