#!/bin/sh
# Slurm's EpilogSlurmctld or the end of a job's own script: ends the watch that prolog.sh started.
# It has a few seconds to see the end of the job by itself and to send its last message.
run=${DIAGNOSE_RUN:-/run/diagnose}
job=${SLURM_JOB_ID:-}
case $job in '' | *[!0-9_]*) exit 0 ;; esac
[ -f "$run/$job.pid" ] || exit 0
read -r pid <"$run/$job.pid"
rm -f "$run/$job.pid"
case $pid in '' | *[!0-9]*) exit 0 ;; esac
left=${DIAGNOSE_WAIT:-20}
while kill -0 "$pid" 2>/dev/null; do
    if [ "$left" -le 0 ]; then
        kill -TERM "$pid" 2>/dev/null
        break
    fi
    left=$((left - 1))
    sleep 1
done
exit 0
