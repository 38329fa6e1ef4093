"""What an agent gives a tool: a job by either of its names, and errors that say what is taken."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from mcp.server.mcpserver import Context, MCPServer
from mcp.server.mcpserver.exceptions import ToolError
from mcp.types import CallToolResult, InputRequiredResult
from pydantic import ValidationError

# What says which job, checkpoint or results are meant; each tool takes one of them, or the other.
_NAMES = ("path", "job")


class Tools(MCPServer):
    """A server whose tools take `path` and `job` alike."""

    async def call_tool(
        self, name: str, arguments: dict[str, Any], context: Context[Any, Any] | None = None
    ) -> CallToolResult | InputRequiredResult:
        """See MCPServer. Raises ToolError, of wrong arguments in one line."""
        tool = self._tool_manager.get_tool(name)
        if tool is None:
            return await super().call_tool(name, arguments, context)
        given = _renamed(arguments, tool.parameters)
        wrong = _wrong(given, tool.parameters)
        if wrong:
            raise ToolError(f"{name}: {wrong}; {_usage(name, tool.parameters)}")
        try:
            return await super().call_tool(name, given, context)
        except ToolError as error:
            if not isinstance(error.__cause__, ValidationError):
                raise
            found = "; ".join(
                f"`{'.'.join(map(str, one['loc']))}`: {one['msg']}"
                for one in error.__cause__.errors()
            )
            raise ToolError(f"{name}: {found}; {_usage(name, tool.parameters)}") from error


def _renamed(arguments: Mapping[str, Any], schema: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments, the job's name by that which the tool has for it."""
    taken = schema["properties"]
    own = next((name for name in _NAMES if name in taken), None)
    other = next((name for name in _NAMES if name in arguments and name not in taken), None)
    if own is None or other is None or own in arguments:
        return dict(arguments)
    return {own if name == other else name: value for name, value in arguments.items()}


def _wrong(given: Mapping[str, Any], schema: Mapping[str, Any]) -> str:
    unknown = [
        f"there is no argument `{name}`" for name in given if name not in schema["properties"]
    ]
    missing = [f"`{name}` is missing" for name in schema.get("required", ()) if name not in given]
    return "; ".join([*missing, *unknown])


def _usage(name: str, schema: Mapping[str, Any]) -> str:
    """`call lines(job, line, source?, before?, after?)`."""
    required = schema.get("required", ())
    taken = (one if one in required else f"{one}?" for one in schema["properties"])
    return f"call {name}({', '.join(taken)})"
