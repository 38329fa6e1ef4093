"""The tools of `diagnose` for coding agents, by the Model Context Protocol.

`server` speaks it (with the official SDK, extra `mcp`), `toolbox` says which tools there are;
`job_tools` and `lookup_tools` make their answers. These are bounded in `answer`, paths are kept
below the root in `jobs`, and log text is masked and marked as somebody else's words everywhere.
"""
