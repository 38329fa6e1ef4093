"""Every number by which hypotheses are weighed, in one place.

A score is about how much a hypothesis is worth by itself: 6 decisive, 4 strong, 2 weak. Rules give
them, `decide.ranking` compares them.
"""

from __future__ import annotations

# --- what the log states itself
OF_STRENGTH = {"decisive": 6.0, "strong": 4.0, "weak": 2.0}
CUT = -0.25  # the line breaks off in the message; still it says more than an exception's type
GENERIC = -0.5  # an entry that others know better
LATE = -1.0  # seen only after the first wait or teardown
LATE_ENDING = -3.5  # … where it is what launchers do to victims
RECOVERED = -3.0  # its rank went on afterwards
DOUBTED = -2.0  # other ranks went on for long
IN_TROUBLE = -1.0  # a user ended what had printed errors that no entry knows
OWN_EXCEPTION = 3.6  # at least, for one of a single rank before any wait: what it died of
EXIT_STATUS = 1.0  # of a process without any reason
KILLED_EARLY = 4.25  # before its first step

# --- who did not come to a collective
CONDITIONAL = 5.0  # ranks took different branches
MISMATCH = 4.5
SHIFTED = 3.5  # the same operation, one call apart
UNEVEN_WORK = 5.0  # it finished, or went on to the next phase
AHEAD = 4.75  # its stack is beyond the training loop
BUSY_SPANS_WAIT, BUSY_MOVING, BUSY_SEEN = 5.0, 4.0, 3.0  # what the late rank was doing
NOT_A_BARRIER = -1.0  # … while the others wait in something larger than a barrier
LEFT_ALONE = 2.5  # rank 0 waits where the job had ended
SILENT = 4.0  # for long, whoever ended it
LEFT_SILENTLY = 2.5  # every other rank lost a peer
EARLY_BARRIER = 2.5  # of the kind put around data preparation
APART_IN_STEPS = 2.25  # by bars; accumulation of gradients lets ranks be apart for a while
NEVER_JOINED, PERHAPS_NEVER_JOINED, NOBODY_NAMED = 4.0, 2.5, 1.5
ALL_JOINED = 2.0
STACKS_ONLY = 2.25
BUSY_AT_STORE, STORE = 3.5, 2.5
INCOMPLETE_GATHERING = 4.0
SHORT_TIMEOUT = 4.25  # that no job can keep
HOST_BLOCKED, HOSTS_BLOCKED = 3.5, 2.5

# --- dumps, stacks and checkpoints
DUMP_MISMATCH, DUMP_CYCLE, DUMP_MISSING, DUMP_STUCK, DUMP_NETWORK = 5.0, 4.25, 4.0, 4.25, 2.5
DUMP_ONE_HOST = 2.0  # an operation that all joined, on one node: not the network
DUMP_DOUBT = -0.75
STACK_OUTLIER, STACKS_DIFFER = 4.0, 3.25
STACK_ABSENT = 2.5  # all ranks wait that have one
STACK_AGREES = 0.75  # with what dumps say
NODE_PROVES, NODE_SUGGESTS = 4.25, 3.25  # what a node says of itself
NODE_CUT_OFF = 4.75  # by the connections of several nodes
DAMAGED_CHECKPOINT = 3.5  # beats an exception without a name, not one that says what it is

# --- known issues
OF_ISSUE = {"high": 5.5, "medium": 4.25, "low": 2.75}
OF_VERSION = 0.5  # more, where the log says the very version
UNCHECKED_ISSUE = 1.25  # where the log does not say the version
ISSUE_ALONE = 4.0  # at least, to tell of a hang that no line shows

# --- decision
RESEMBLES = 1.25  # a line that no entry knows, like an example
THRESHOLD = 1.0  # below it a hypothesis makes no verdict
CAN_EXPLAIN = 2.0  # a bare exit status or a guess explains nothing else
MARGIN = 2.5  # a strong cause may be this much weaker than what it explains away
STRONG = 3.5
HIGH, HIGH_MARGIN = 4.5, 1.0  # of evidence that proves its class, and its lead over all rivals
WEAK_HINT = 2.0
CORROBORATED = 0.25  # by another hypothesis of the class that is less than APART behind
APART = 3.0
