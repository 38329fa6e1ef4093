#!/bin/sh
# Slurm's PrologSlurmctld or a job's own script: starts a watch of the job's logs, which
# epilog.sh ends. Both need DIAGNOSE_LOGS, a folder in which %j stands for the job's number, such as
# /shared/logs/%j; a job without it is left alone. A watch must never keep a job from running, so
# nothing here fails.
#
# What else the watch is to do goes into DIAGNOSE_WATCH_OPTIONS, one option a line.
run=${DIAGNOSE_RUN:-/run/diagnose}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9_]*) exit 0 ;; esac
[ -n "${DIAGNOSE_LOGS:-}" ] || exit 0
logs=$(printf '%s' "$DIAGNOSE_LOGS" | sed "s/%j/$job/g")
mkdir -p "$run" "$logs" || exit 0

set -- "$logs"
if [ -n "${DIAGNOSE_WATCH_OPTIONS:-}" ]; then
    saved=$IFS
    IFS='
'
    set -f
    # shellcheck disable=SC2086
    set -- "$@" $DIAGNOSE_WATCH_OPTIONS
    set +f
    IFS=$saved
fi
# A session of its own: the end of the prolog is not to be the end of the watch.
setsid diagnose watch "$@" >"$run/$job.log" 2>&1 </dev/null &
echo $! >"$run/$job.pid"
exit 0
