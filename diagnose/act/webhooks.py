"""Decisions as the bodies of webhooks: one JSON object a line, the same decision once.

Text of logs stays text: Slack, Teams and Jira read markup of their own. What receivers deduplicate
by is `Action.key`: PagerDuty's `dedup_key`, a label in Jira; chats have no such thing, so it is in
the text. Sources: Slack's Block Kit, Adaptive Cards 1.4, PagerDuty's Events API v2, Jira's REST v3.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Mapping, Sequence
from typing import Any

from diagnose.act.record import Action
from diagnose.report.safe import escaped
from diagnose.report.slack import mrkdwn, section
from diagnose.report.words import names

_WHAT = {
    "exclude": "Leave out {nodes} at the next start of {job}",
    "drain": "Drain {nodes}",
    "retry": "Restart {job}",
    "retry_elsewhere": "Restart {job} on different hosts",
    "stop": "Fix the cause before restarting {job}",
}
_DONE = "Back in service: {nodes}"
_MARKS = str.maketrans({char: f"\\{char}" for char in "\\*_[]`"})


def headline(action: Action, undo: bool = False) -> str:
    """`Drain gpu-7`."""
    text = _DONE if undo and action.targets else _WHAT[action.action]
    return text.format(nodes=names(action.targets), job=action.job)


def slack(action: Action, undo: bool) -> dict[str, Any]:
    """A message for an incoming webhook."""
    title, text = headline(action, undo), mrkdwn(action.reason)
    body = f"*{mrkdwn(title)}*\n{text}\n_{mrkdwn(_foot(action))}_"
    return {"text": mrkdwn(title), "blocks": [section(body)]}


def teams(action: Action, undo: bool) -> dict[str, Any]:
    """A message with an Adaptive Card."""
    lines = [
        {"type": "TextBlock", "text": text.translate(_MARKS), "wrap": True} | more
        for text, more in (
            (headline(action, undo), {"weight": "Bolder"}),
            (action.reason, {}),
            (_foot(action), {"isSubtle": True}),
        )
    ]
    card = {
        "$schema": "http://adaptivecards.io/schemas/adaptive-card.json",
        "type": "AdaptiveCard",
        "version": "1.4",
        "body": lines,
    }
    kind = "application/vnd.microsoft.card.adaptive"
    return {"type": "message", "attachments": [{"contentType": kind, "content": card}]}


def pagerduty(action: Action, undo: bool) -> dict[str, Any]:
    """An event; the routing key is for the sender to put in."""
    return {
        "routing_key": "",
        "event_action": "resolve" if undo else "trigger",
        "dedup_key": action.key,
        "payload": {
            "summary": f"{headline(action, undo)}: {action.reason}"[:1024],
            "source": action.targets[0] if action.targets else action.job,
            "severity": "critical" if action.action == "drain" else "warning",
            "timestamp": action.made,
            "component": action.job,
            "class": action.cause,
            "custom_details": {
                "action": action.action,
                "targets": action.targets,
                "fingerprint": action.fingerprint,
                "expires": action.expires,
            },
        },
    }


def jira(action: Action, undo: bool) -> dict[str, Any]:
    """A new issue; the key of the project is for the sender to put in."""
    paragraphs = [action.reason, _foot(action)]
    return {
        "fields": {
            "project": {"key": ""},
            "issuetype": {"name": "Task"},
            "summary": headline(action, undo)[:255],
            "labels": ["diagnose", f"diagnose-{action.key}"],
            "description": {
                "type": "doc",
                "version": 1,
                "content": [
                    {"type": "paragraph", "content": [{"type": "text", "text": text}]}
                    for text in paragraphs
                ],
            },
        }
    }


def _foot(action: Action) -> str:
    return f"{action.job}, until {action.expires[:10]}, {action.key}"


WEBHOOKS: Mapping[str, Callable[[Action, bool], dict[str, Any]]] = {
    "webhook:slack": slack,
    "webhook:teams": teams,
    "webhook:pagerduty": pagerduty,
    "webhook:jira": jira,
}


def bodies(name: str, actions: Sequence[Action], undo: bool) -> str:
    """The bodies of all decisions, one a line."""
    made = [WEBHOOKS[name](one, undo) for one in {one.key: one for one in actions}.values()]
    return "".join(escaped(json.dumps(one, ensure_ascii=False)) + "\n" for one in made)
