#!/usr/bin/env bash
# Everything that wants a GPU, in pieces of less than 10 minutes each, for a machine that may have no network.
#
#   bench/gpu.sh tests     the tests marked cuda
#   bench/gpu.sh seed      bench/fps.py over 01 to 05, 32 samples for each env step
#   bench/gpu.sh ladder    the same over 01 and 06 to 09
#   bench/gpu.sh nature    01, 07, 08 and 09 with 8 samples for each env step, and 09 with 16 to 256 games
#   bench/gpu.sh learner   the update of 09 alone, batch 32 to 4096, and with it where 09's time goes
#   bench/gpu.sh sweep     02 with N = 1 to 6
#   bench/gpu.sh pong      Pong to its end with 09, SEEDS (0 1 2 3 4) one after the other, at most 9 minutes in all
#   bench/gpu.sh record    the same with 11
#   bench/gpu.sh rainbow   updates of the eight variants, ways to draw by priority, checkpoints of a million frames
#   bench/gpu.sh variants  Pong with the eight variants of 10 (VARIANTS names fewer), at most 19 minutes in all
#   bench/gpu.sh first     the first four of them, at most 9 minutes; bench/gpu.sh second: the others
#   bench/gpu.sh breakout  Breakout with 10's rainbow for 8.5 minutes; bench/gpu.sh invaders: Space Invaders
#   bench/gpu.sh actors    actor-critics: 20, 21 and 22 with several players, 31, 41
#   bench/gpu.sh ranks     PPO on Pong over 1 to 8 ranks of one thread each on the processor's cores, and one with all of them
#   bench/gpu.sh sessions  32 with 1 to 16 sessions on the processor's cores; bench/gpu.sh humanoid: 16 of Humanoid-v5
#   bench/gpu.sh all       all of them, one after the other
#
# What fails is named at the end and makes the exit status 1; all the rest is done all the same.
# Results (JSON lines, plots, logs, the runs' folders) go to $RESULTS, by default bench/results/gpu. After each command of
# a piece, so that little is lost if it is cut off, they are packed into $ARCHIVE, a .tar.gz, if that is set, without
# networks.
# $PYTHON (python3) must have PyTorch with CUDA. What else is missing is installed from the wheels in $WHEELS,
# if that is set, into a folder of its own. DEVICE=cpu QUICK=1 tries the script itself out where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
RESULTS=${RESULTS:-bench/results/gpu}
SEEDS=${SEEDS:-0 1 2 3 4}
VARIANTS=${VARIANTS:-dqn n-step double noisy prioritized dueling distributional rainbow}
if [ -n "${QUICK:-}" ]; then
  seed=(--only 01,05) ladder=(--only 01,09) nature=(--only 07,09) games=8,16 batches="32 128" steps=1..2
  repeats=1 seconds=4 minutes=0.4 long=0.4 each=0.3 tests=(-k "by_hand") SEEDS=0
  VARIANTS="dqn rainbow" many=(--num-envs 8 --batch-size 4) actors="20,21 --players 2" sessions="1 2" ranks="1 2"
else
  seed=(--only 01,02,03,04,05) ladder=(--only 01,06,07,08,09) nature=(--only 01,07,08,09) games=16,32,64,128,256 batches="32 64 128 256 512 1024 2048 4096" steps=1..6
  repeats=2 seconds=8 minutes=1.7 long=8.5 each=2.2 tests=(-m cuda -n 4 --continue-on-collection-errors)
  many=(--num-envs 128 --steps 32 --batch-size 16) actors="20,21 --players 2,21 --players 8,22 --players 8,31,41" sessions="1 2 4 8 16" ranks="1 2 4 8"
fi
mkdir -p "$RESULTS"
RESULTS=$(cd "$RESULTS" && pwd)
FAILED=$RESULTS/failed.txt
rm -f "$FAILED"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

if [ -n "${WHEELS:-}" ]; then
  site=${TMPDIR:-/tmp}/fastdqn-wheels
  if [ ! -d "$site" ]; then
    rm -rf "$site.part"
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "$WHEELS"/*.whl
    mv "$site.part" "$site"
  fi
  export PYTHONPATH=$site:$PYTHONPATH
fi

pack() {
  [ -n "${ARCHIVE:-}" ] || return 0
  # 1: a log grew meanwhile
  tar -czf "$ARCHIVE.part" --exclude='*.safetensors' --exclude=checkpoints -C "$RESULTS" . || [ $? -eq 1 ]
  mv "$ARCHIVE.part" "$ARCHIVE"
}
trap pack EXIT

py() {  # run it with $PYTHON, and remember if it failed
  "$PYTHON" "$@" || echo "failed: $*" >> "$FAILED"
  pack
}

machine() {
  "$PYTHON" -c "
import json, torch
from fastdqn.runs.machine import environment
print(json.dumps(environment(torch.device('$DEVICE')), indent=2))" > "$RESULTS/machine.json"
  if command -v nvidia-smi > /dev/null; then nvidia-smi > "$RESULTS/nvidia-smi.txt"; fi
}

fps() {
  py bench/fps.py --device "$DEVICE" --out "$RESULTS" --seconds "$seconds" --warmup 2 "$@"
}

tests() {
  py -m pytest "${tests[@]}" -p no:cacheprovider 2>&1 | tee "$RESULTS/tests.log"
}

seed() {
  fps "${seed[@]}" --repeats "$repeats" 2>&1 | tee "$RESULTS/seed.log"
}

ladder() {
  fps "${ladder[@]}" --repeats "$repeats" 2>&1 | tee "$RESULTS/ladder.log"
}

nature() {
  {
    fps "${nature[@]}" --repeats 1 -- --batch-size 8
    fps --only 09 --sweep "num-envs=$games" --repeats 1 -- --batch-size 8
  } 2>&1 | tee "$RESULTS/nature.log"
}

learner() {
  {
    for batch in $batches; do
      py bench/ceilings.py --what update --form fast --device "$DEVICE" --batch-size "$batch" --seconds "$seconds"
    done
    fps --only 09 --repeats 1 --profile -- --batch-size 8
  } 2>&1 | tee "$RESULTS/learner.log"
}

sweep() {
  fps --sweep "steps=$steps" --repeats 1 --replay-initial 200 2>&1 | tee "$RESULTS/sweep.log"
}

pong() {
  for seed in $SEEDS; do
    py experiments/09_cuda_graph.py --agent pong-fast --num-envs 64 --device "$DEVICE" --seed "$seed" --no-checkpoints \
      --runs-dir "$RESULTS/runs" --max-minutes "$minutes"
  done 2>&1 | tee "$RESULTS/pong.log"
}

record() {
  for seed in $SEEDS; do
    py experiments/11_pong_in_seconds.py --device "$DEVICE" --seed "$seed" --runs-dir "$RESULTS/runs" --no-checkpoints \
      --max-minutes "$minutes"
  done 2>&1 | tee "$RESULTS/record.log"
}

rainbow() {
  {
    for variant in $VARIANTS; do
      py bench/ceilings.py --what update --form fast --device "$DEVICE" --batch-size 128 --seconds "$seconds" \
        --variant "$variant"
    done
    py bench/priorities.py --device "$DEVICE"
    py bench/checkpoint.py --device "$DEVICE"
    fps --only 10 --repeats 1 --sweep "variant=dqn,prioritized,rainbow" -- --batch-size 8
  } 2>&1 | tee "$RESULTS/rainbow.log"
}

variants() {
  for variant in ${*:-$VARIANTS}; do
    case $variant in  # pong-fast has 5 steps already
      n-step | rainbow) n=5 ;;
      *) n=1 ;;
    esac
    py experiments/10_rainbow.py --agent pong-fast --variant "$variant" --n-step $n "${many[@]}" \
      --replay-size 50000 --learning-rate-decay 400000 --device "$DEVICE" --no-checkpoints \
      --runs-dir "$RESULTS/runs/$variant" --max-minutes "$each"
  done 2>&1 | tee -a "$RESULTS/variants.log"
  py -m fastdqn.cli.main plot "$RESULTS"/runs/*/*10_rainbow* --out "$RESULTS/variants.png"
}

first() {
  variants dqn n-step double noisy
}

second() {
  variants prioritized dueling distributional rainbow
}

play() {
  py experiments/10_rainbow.py --game "$1" --agent rainbow --num-envs 64 --steps 32 --no-checkpoints \
    --max-minutes "$long" --device "$DEVICE" --runs-dir "$RESULTS/runs/games" 2>&1 | tee "$RESULTS/$1.log"
  py -m fastdqn.cli.main plot "$RESULTS"/runs/games/*"$1"* --out "$RESULTS/$1.png"
}

actors() {
  fps --only "$actors" --repeats "$repeats" --replay-initial 300 2>&1 | tee "$RESULTS/actors.log"
}

sessions() {
  only=$(for count in $sessions; do printf '32 --sessions %s,' "$count"; done)
  py bench/fps.py --device cpu --out "$RESULTS" --seconds "$seconds" --warmup 2 --only "${only%,}" --repeats "$repeats" \
    --replay-initial 200 -- --threads 1 2>&1 | tee "$RESULTS/sessions.log"
}

ranks() {
  only=$(for count in $ranks; do printf '41 --processes %s --threads 1 --env-threads 1,' "$count"; done)
  py bench/fps.py --device cpu --out "$RESULTS" --seconds "$((2 * seconds))" --warmup 2 --only "${only}41" \
    --repeats "$repeats" --profile 2>&1 | tee "$RESULTS/ranks.log"
}

humanoid() {
  "$PYTHON" -c 'import mujoco' || { echo "failed: humanoid: there is no MuJoCo here" >> "$FAILED"; return 0; }
  py experiments/32_sac_hogwild.py --game Humanoid-v5 --device cpu --max-minutes "$long" --no-checkpoints \
    --runs-dir "$RESULTS/runs/humanoid" 2>&1 | tee "$RESULTS/humanoid.log"
}

breakout() {
  play breakout
}

invaders() {
  play invaders
}

case "${1:-}" in
  tests | seed | ladder | nature | learner | sweep | pong | record | rainbow | variants | first | second | breakout | invaders | actors | ranks | sessions | humanoid)
    machine
    "$1"
    ;;
  all)
    machine
    for piece in tests seed ladder nature learner sweep pong record rainbow variants breakout invaders actors ranks sessions humanoid; do
      "$piece"
    done
    ;;
  *) sed -n '2,/^set/{/^set/!p}' "$0" >&2; exit 2 ;;
esac
if [ -e "$FAILED" ]; then
  cat "$FAILED" >&2
  exit 1
fi
