#!/bin/sh
# What holds the processes of a job that even SIGKILL does not end: mostly a file system or a driver
# that does not answer. For slurm.conf, after which Slurm runs it on that node, as root:
#
#     UnkillableStepProgram=/etc/slurm/slurm-unkillable.sh
#     UnkillableStepTimeout=180

folder=${DIAGNOSE_FOLDER:-/var/log/diagnose}
mkdir -p -m 0700 "$folder" || exit 1
name=$folder/$SLURM_JOB_ID-${SLURMD_NODENAME:-$(hostname)}.tar.zst
exec timeout 170 diagnose collect --job "$SLURM_JOB_ID" --force -o "$name"
