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
        --warmup-steps 100 --evaluate-every 250 --evaluation-windows 256 --save-every 50 --learning-rate 3e-3 \
        --coefficient-learning-rate None $EXTRA
}

# Stages 3 to 9: as many tokens in four times as many steps, and seeds that nothing was chosen with.
small_batches="--batch-size 4 --steps 8000 --warmup-steps 400 --evaluate-every 1000 --save-every 200 --seed 2"
lower=learning_rate=3e-3
with_streams=start=equal-streams,$lower,coefficient_learning_rate=3e-4
higher=learning_rate=6e-3
with_streams_higher=start=equal-streams,$higher,coefficient_learning_rate=6e-4

compare_in_small_batches() (
    EXTRA="$small_batches $EXTRA"
    compare "$@"
)

for stage in $stages; do
    if [ "$stage" != 1 ] && [ "$stage" != 1b ]; then
        chosen=$(python "$here/choose.py")
        eval "$chosen" # plain, identity and streams: options that stage 1 has chosen
    fi
    case $stage in
    1) compare stage-1 none identity@start=equal-streams go@start=equal-streams go@start=mean-stream --seeds 2 \
        --tune learning_rate=3e-3,6e-3,1.2e-2 coefficient_learning_rate=None,6e-5,2e-4,6e-4,2e-3 --tuning-steps 500 ;;
    1b) compare stage-1b none@learning_rate=3e-3 go@start=equal-streams,learning_rate=3e-3,coefficient_learning_rate=3e-4 \
        --seeds 2 ;;
    2) compare stage-2 "none@$plain" "none:as-wide=go@$plain" "identity@$identity" "go@$streams" --seeds 5 --equal-seconds ;;
    3) compare_in_small_batches stage-3 "none@$lower" "go@$with_streams" "go:expressivity=1@$with_streams" "unconstrained@$with_streams" \
        "sinkhorn@$with_streams" "permutations@$with_streams" "kronecker@$with_streams" "orthogonal@$with_streams" \
        --seeds "${SEEDS:-3}" ;;
    4) compare_in_small_batches stage-4 "none@$lower" "go@$with_streams" "identity@$with_streams,num_streams=2" \
        "go@$with_streams,num_streams=2" "identity@$with_streams,num_streams=8" "go@$with_streams,num_streams=8" \
        "go:expressivity=1@$with_streams,num_streams=8" "kronecker@$with_streams,num_streams=8" \
        "go@start=mean-stream,$lower,coefficient_learning_rate=3e-4" --seeds "${SEEDS:-3}" ;;
    7) compare_in_small_batches stage-7 "none@$lower" "go@$with_streams" "identity@$with_streams" \
        "go@$with_streams,readout=learned" "identity@$with_streams,readout=learned" "go@$with_streams,initial_scale=0.1" \
        "go@$with_streams,dynamic=False" "go@$with_streams,total_leak=0.1" \
        "go@$with_streams,coefficient_learning_rate=None" "identity@$with_streams,coefficient_learning_rate=None" \
        --seeds "${SEEDS:-3}" ;;
    8) compare_in_small_batches stage-8 "none@$lower" "go@$with_streams" \
        "none@learning_rate=6e-3" "go@start=equal-streams,learning_rate=6e-3,coefficient_learning_rate=6e-4" --seeds "${SEEDS:-3}" ;;
    8b) compare_in_small_batches stage-8b "none@$lower" "none@learning_rate=6e-3" "none@learning_rate=1.2e-2" --seeds 2 ;;
    8c) compare_in_small_batches stage-8c "none@$higher" "none@$lower" "go@$with_streams" --seeds 8 ;;
    9) compare_in_small_batches stage-9 "none@$higher" "none:as-wide=go@$higher" "identity@$with_streams_higher" \
        "go@$with_streams_higher" --seeds "${SEEDS:-3}" ;;
    5) compare_in_small_batches stage-5 "none@$lower" "none:as-wide=go@$lower" "identity@$with_streams" "go@$with_streams" \
        --seeds 8 --equal-seconds ;;
    6) compare_in_small_batches stage-6 "none:as-wide=go@$lower" "go@$with_streams" --seeds 12 ;;
    *) echo "there is no stage $stage; plan.md lists them" >&2 && exit 1 ;;
    esac
done
