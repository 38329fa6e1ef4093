#!/bin/bash
#SBATCH --signal=B:USR1@600
#
# A job that collects what shows why it hangs, ten minutes before its time limit would end it:
#
#     sbatch --nodes=2 --ntasks-per-node=8 --time=24:00:00 slurm-job.sh python train.py
#
# At any other time: scancel --batch --signal=USR1 JOB

collect() {
    diagnose collect --slurm "$SLURM_JOB_ID" --force -o "diagnose-$SLURM_JOB_ID.tar.zst"
}
trap collect USR1

srun "$@" &
step=$!
wait "$step"
status=$?
while [ "$status" -eq 138 ]; do # the signal ended only the waiting
    wait "$step"
    status=$?
done
exit "$status"
