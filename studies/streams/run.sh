#!/bin/sh
# Run the study of plan.md: sh studies/streams/run.sh CORPUS [STAGE...]
# Finished runs are kept in records/; after any interruption the same command continues. JOBS=N sets the runs at a time.
set -e
here=$(cd "$(dirname "$0")" && pwd)
corpus=$1
shift
stages=${*:-1}

# What stage 1 has chosen: the learning rate of the plain network, and start and rate of those with streams.
plain=learning_rate=3e-3
streams=start=equal-streams,learning_rate=3e-3

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
    2) compare stage-2 "none@$plain" "none:as-wide@$plain" "identity@$streams" "go@$streams" --seeds 5 ;;
    2b) compare stage-2 "none@$plain" "none:as-wide@$plain" "identity@$streams" "go@$streams" --seeds 5 --equal-seconds ;;
    3) compare stage-3 "none@$plain" "go@$streams" "go:expressivity=1@$streams" "unconstrained@$streams" \
        "sinkhorn@$streams" "permutations@$streams" "kronecker@$streams" "orthogonal@$streams" --seeds "${SEEDS:-3}" ;;
    4) compare stage-4 "none@$plain" "go@$streams" "identity@$streams,num_streams=2" "go@$streams,num_streams=2" \
        "identity@$streams,num_streams=8" "go@$streams,num_streams=8" "go:expressivity=1@$streams,num_streams=8" \
        "kronecker@$streams,num_streams=8" "go@$streams,readout=learned" "identity@$streams,readout=learned" \
        "go@$streams,initial_scale=0.1" "go@$streams,dynamic=False" "go@$streams,total_leak=0.1" \
        "go@$streams,coefficient_learning_rate=1e-3" "go@$streams,coefficient_learning_rate=9e-3" \
        --seeds "${SEEDS:-3}" ;;
    *) echo "there is no stage $stage; plan.md lists them" >&2 && exit 1 ;;
    esac
done
