#!/usr/bin/env bash
# Everything that wants a GPU, in pieces, for a machine that may have no network.
#
#   bench/gpu.sh PIECE ...
#
#   host      the games alone, 16 at once: twice, so that a machine which others slow down shows it
#   start     which lines the start of 11 waits for, to its first updates: twice, as the first one reads the files
#   tests     the tests marked cuda
#   record    Pong to its end with 11, SEEDS (0 1 2 3 4) one after the other, and the fresh games of each (FRESH, 100)
#   ladder    bench/fps.py over 01 to 09, 32 samples for each env step, and 09 with 128 games
#   nature    01, 07, 08 and 09 with 8 samples for each env step, and 09 with 16 to 256 games; SHORT=1: 09 alone, with
#             one update a round
#   learner   the update of 09 alone, batch 32 to 4096, and with it where 09's time goes
#   rainbow   updates of the eight variants, checkpoints of a million frames
#   atari     Atari-100k, six games at once on the one GPU: 12 with AGENTS (100k-fast der)
#   ppo       Pong to its end with 41
#   actors    actor-critics: 20, 21 and 22 with several players, 31, 41
#   ranks     PPO on Pong over 1 to 8 ranks of one thread each on the processor's cores, and one with all of them
#   sessions  32 with 1 to 16 sessions on the processor's cores; humanoid: 16 of Humanoid-v5
#   pong      Pong to its end with 09, SEEDS one after the other
#   sweep     02 with N = 1 to 6
#   variants  Pong with the eight variants of 10 (VARIANTS names fewer); first: four of them; second: the others
#   breakout  Breakout with 10's rainbow for 8.5 minutes; invaders: Space Invaders
#   all       all of them, in this order
#
# SHORT=1 measures less and gives up sooner, for a machine that one has for a quarter of an hour: time for some pieces,
# not for all of them:
#   SHORT=1 bench/gpu.sh host ladder nature learner
#   SHORT=1 FRESH=0 KEEP=1 bench/gpu.sh record
#
# What fails, or takes longer than $LIMIT seconds, is named at the end and makes the exit status 1; all the rest is done
# all the same. Results (JSON lines, plots, logs, the runs' folders) go to $RESULTS, by default bench/results/gpu. They
# are packed into $ARCHIVE, a .tar.gz, if that is set, every ten seconds, so that little is lost if it is killed, without
# networks (KEEP=1 keeps those of ended runs, for bench/fresh.py), checkpoints and TensorBoard's files, which are large.
# $PYTHON (python3) must have PyTorch with CUDA. What else is missing is installed from the wheels in $WHEELS,
# if that is set, into a folder of its own; bench/wheels.sh makes them. FASTDQN_COMMIT names the commit where there is
# no .git. DEVICE=cpu QUICK=1 tries the script itself out where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
RESULTS=${RESULTS:-bench/results/gpu}
SEEDS=${SEEDS:-0 1 2 3 4}
VARIANTS=${VARIANTS:-dqn n-step double noisy prioritized dueling distributional rainbow}
AGENTS=${AGENTS:-100k-fast der}
ladder=(--only "01,02,03,04,05,06,07,08,09,09 --num-envs 128 --steps 32") nature=(--only 01,07,08,09) rounds="4 16" many=(--num-envs 128 --steps 32 --batch-size 16)
actors="20,21 --players 2,21 --players 8,22 --players 8,31,41" sessions="1 2 4 8 16" ranks="1 2 4 8"
hundred=(--games assault,boxing,breakout,krull,pong,road_runner --jobs 6 --cores 2) try=()
tests=(-m cuda -n 8 --timeout 120 --timeout-method thread --continue-on-collection-errors)
if [ -n "${QUICK:-}" ]; then
  ladder=(--only 01,09) nature=(--only 07,09) rounds=16 games=8,16 batches="32 128" steps=1..2
  repeats=1 seconds=4 warmup=2 minutes=0.4 long=0.4 each=0.3 tests=(-k "by_hand") SEEDS=0 patience=120 LIMIT=${LIMIT:-540}
  VARIANTS="dqn rainbow" many=(--num-envs 8 --batch-size 4) actors="20,21 --players 2" sessions="1 2" ranks="1 2"
  hundred=(--games pong,boxing --jobs 2) try=(--max-env-steps 2500 --evaluation-games 2)
elif [ -n "${SHORT:-}" ]; then
  ladder=(--only "01,05,08,09 --num-envs 128 --steps 32,09 --num-envs 128 --steps 64 --batch-size 8")
  nature=(--only "09 --num-envs 64 --steps 64,09 --num-envs 128 --steps 128") rounds="" games=""
  batches="32 128 512 2048" steps=1..6 repeats=1 seconds=3 warmup=1 minutes=1.4 long=3.5 each=1.2 patience=45 LIMIT=${LIMIT:-240}
  try=(--max-env-steps 10000 --evaluation-games 5)
else
  games=16,32,64,128,256 batches="32 64 128 256 512 1024 2048 4096" steps=1..6
  repeats=2 seconds=8 warmup=2 minutes=1.7 long=8.5 each=2.2 patience=120 LIMIT=${LIMIT:-1800}
fi
mkdir -p "$RESULTS"
RESULTS=$(cd "$RESULTS" && pwd)
FAILED=$RESULTS/failed.txt
rm -f "$FAILED"
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1
# Where PyTorch was installed without bytecode, into a folder that cannot be written, each start compiles all of it.
export PYTHONPYCACHEPREFIX=${TMPDIR:-/tmp}/fastdqn-bytecode
unset PYTHONDONTWRITEBYTECODE

if [ -n "${WHEELS:-}" ]; then
  site=${TMPDIR:-/tmp}/fastdqn-wheels
  if [ ! -d "$site" ]; then
    rm -rf "$site.part"
    "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site.part" "$WHEELS"/*.whl
    mv "$site.part" "$site"
  fi
  export PYTHONPATH=$site:$PYTHONPATH
fi

left_out=(--exclude=checkpoints --exclude='events.out.*')
[ -n "${KEEP:-}" ] || left_out+=(--exclude='*.safetensors')

pack() {  # into a file that is called $1 until it is whole
  [ -n "${ARCHIVE:-}" ] || return 0
  # 1: a log grew meanwhile
  tar -czf "$1" "${left_out[@]}" -C "$RESULTS" . || [ $? -eq 1 ]
  mv "$1" "$ARCHIVE"
}

{ while sleep 10; do pack "${ARCHIVE:-}.part" || true; done; } > /dev/null 2>&1 &
packer=$!
trap 'kill $packer || true; wait $packer || true; pack "${ARCHIVE:-}.last"' EXIT

py() {  # run it with $PYTHON, and remember if it failed
  timeout --foreground -k 15 "$LIMIT" "$PYTHON" "$@" || echo "failed ($?): $*" >> "$FAILED"
}

machine() {
  "$PYTHON" -c "
import json, torch
from fastdqn.runs.machine import environment
print(json.dumps(environment(torch.device('$DEVICE')), indent=2))" > "$RESULTS/machine.json"
  if command -v nvidia-smi > /dev/null; then nvidia-smi > "$RESULTS/nvidia-smi.txt"; fi
}

fps() {
  py bench/fps.py --device "$DEVICE" --out "$RESULTS" --seconds "$seconds" --warmup "$warmup" --patience "$patience" "$@"
}

host() {
  for _ in 1 2; do
    py bench/ceilings.py --what env --wrappers vector --num-envs 16 --seconds "$seconds"
  done 2>&1 | tee "$RESULTS/host.log"
}

start() {
  for _ in 1 2; do
    py bench/start.py experiments/11_pong_in_seconds.py --device "$DEVICE" --max-env-steps 5100 --fresh-games 0 \
      --no-checkpoints --runs-dir "$RESULTS/runs"
  done 2>&1 | tee "$RESULTS/start.log"
}

tests() {
  # shellcheck disable=SC2046 # names without spaces
  py -m pytest $(grep -rl "mark\.cuda" tests --include='test_*.py') "${tests[@]}" -p no:cacheprovider 2>&1 | tee "$RESULTS/tests.log"
}

ladder() {
  fps "${ladder[@]}" --repeats "$repeats" 2>&1 | tee "$RESULTS/ladder.log"
}

nature() {
  {
    if [ ${#nature[@]} -gt 0 ]; then fps "${nature[@]}" --repeats 1 -- --batch-size 8; fi
    for many_steps in $rounds; do
      fps --only 09 --sweep "num-envs=$games" --repeats 1 -- --batch-size 8 --steps "$many_steps"
    done
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
      --max-minutes "$minutes" --fresh-games "${FRESH:-100}"
  done 2>&1 | tee -a "$RESULTS/record.log"
}

atari() {
  py -m fastdqn.cli.main sweep 12 --agents "${AGENTS// /,}" "${hundred[@]}" --seeds 1 --into "$RESULTS/atari-100k" \
    -- --device "$DEVICE" "${try[@]}" 2>&1 | tee "$RESULTS/atari.log"
}

ppo() {
  py experiments/41_ppo_ranks.py --device "$DEVICE" --no-checkpoints --runs-dir "$RESULTS/runs/ppo" \
    --max-minutes "$long" 2>&1 | tee "$RESULTS/ppo.log"
}

rainbow() {
  {
    for variant in $VARIANTS; do
      py bench/ceilings.py --what update --form fast --device "$DEVICE" --batch-size 128 --seconds "$seconds" \
        --variant "$variant"
    done
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
  CUDA_VISIBLE_DEVICES='' py bench/fps.py --device cpu --out "$RESULTS" --seconds "$seconds" --warmup "$warmup" \
    --only "${only%,}" --repeats "$repeats" --replay-initial 200 -- --threads 1 2>&1 | tee "$RESULTS/sessions.log"
}

ranks() {
  only=$(for count in $ranks; do printf '41 --processes %s --threads 1 --env-threads 1,' "$count"; done)
  CUDA_VISIBLE_DEVICES='' py bench/fps.py --device cpu --out "$RESULTS" --seconds "$((2 * seconds))" --warmup "$warmup" --only "${only}41" \
    --repeats "$repeats" --profile 2>&1 | tee "$RESULTS/ranks.log"
}

humanoid() {
  "$PYTHON" -c 'import mujoco' || { echo "failed: humanoid: there is no MuJoCo here" >> "$FAILED"; return 0; }
  CUDA_VISIBLE_DEVICES='' py experiments/32_sac_hogwild.py --game Humanoid-v5 --device cpu --max-minutes "$long" --no-checkpoints \
    --runs-dir "$RESULTS/runs/humanoid" 2>&1 | tee "$RESULTS/humanoid.log"
}

breakout() {
  play breakout
}

invaders() {
  play invaders
}

pieces="host start tests record ladder nature learner rainbow atari ppo actors ranks sessions humanoid pong sweep variants breakout invaders"
[ "$*" = all ] && set -- $pieces
for piece in "$@"; do
  case " $pieces first second " in
    *" $piece "*) ;;
    *) set -- ;;
  esac
done
if [ $# -eq 0 ]; then
  sed -n '2,/^set/{/^set/!p}' "$0" >&2
  exit 2
fi
machine
for piece in "$@"; do
  echo "--- $piece, after $SECONDS s"
  "$piece"
done
if [ -e "$FAILED" ]; then
  cat "$FAILED" >&2
  exit 1
fi
