#!/bin/sh
# Run the study of plan.md: sh studies/streams/run.sh CORPUS [STAGE...]
# Finished runs are kept in records/; after any interruption the same command continues. JOBS=N sets the runs at a time.
set -e
here=$(cd "$(dirname "$0")" && pwd)
corpus=$1
shift
stages=${*:-1}

compare() { # STAGE METHOD... [OPTION...]
    stage=$1
    shift
    gomhc compare "$@" --corpus "$corpus" --out "$here/$stage" --records "$here/records" ${JOBS:+--jobs "$JOBS"} \
        --num-layers 6 --num-heads 4 --num-channels 96 --context-length 128 --batch-size 16 --steps 2000 \
        --warmup-steps 100 --evaluate-every 250 --evaluation-windows 256 --save-every 50 --learning-rate 3e-3 $EXTRA
}

for stage in $stages; do
    case $stage in
    1) compare stage-1 none identity@start=equal-streams go@start=equal-streams go@start=mean-stream --seeds 2 \
        --tune learning_rate=1.5e-3,3e-3,6e-3 --tuning-steps 500 ;;
    *) echo "no stage $stage yet; plan.md lists them" >&2 && exit 1 ;;
    esac
done
