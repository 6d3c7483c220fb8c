#!/usr/bin/env bash
# Everything that wants a GPU, in short pieces, for a machine that may have no network.
#
#   bench/gpu.sh tests     the tests marked cuda
#   bench/gpu.sh ladder    bench/fps.py over all scripts
#   bench/gpu.sh sweep     02 with N = 1 to 6
#   bench/gpu.sh pong      one training run on Pong with the fastest script, at most 9 minutes
#   bench/gpu.sh all       the four of them, one after the other
#
# Results (JSON lines, plots, logs, the run's folder) go to $OUT, by default bench/results/gpu.
# $PYTHON (python3) must have PyTorch with CUDA. What else is missing is installed from the wheels in $WHEELS,
# if that is set, into a folder of its own. DEVICE=cpu QUICK=1 tries the script itself out where there is no GPU.
set -euo pipefail
cd "$(dirname "$0")/.."
PYTHON=${PYTHON:-python3}
DEVICE=${DEVICE:-cuda}
OUT=${OUT:-bench/results/gpu}
if [ -n "${QUICK:-}" ]; then
  only=(--only 01,05) repeats=1 seconds=4 minutes=0.3 tests=(-k "by_hand")
else
  only=() repeats=3 seconds=8 minutes=9 tests=(-m cuda)
fi
mkdir -p "$OUT"
OUT=$(cd "$OUT" && pwd)
export PYTHONPATH=$PWD${PYTHONPATH:+:$PYTHONPATH} PYTHONUNBUFFERED=1

if [ -n "${WHEELS:-}" ]; then
  site=${TMPDIR:-/tmp}/fastdqn-wheels
  [ -d "$site" ] || "$PYTHON" -m pip install --quiet --no-index --no-deps --no-compile --target "$site" "$WHEELS"/*.whl
  export PYTHONPATH=$site:$PYTHONPATH
fi

machine() {
  "$PYTHON" -c "
import json, torch
from fastdqn.run import environment
print(json.dumps(environment(torch.device('$DEVICE')), indent=2))" > "$OUT/machine.json"
  if command -v nvidia-smi > /dev/null; then nvidia-smi > "$OUT/nvidia-smi.txt"; fi
}

tests() {
  "$PYTHON" -m pytest "${tests[@]}" -p no:cacheprovider 2>&1 | tee "$OUT/tests.log"
}

ladder() {
  "$PYTHON" bench/fps.py --device "$DEVICE" --out "$OUT" "${only[@]}" --repeats "$repeats" --seconds "$seconds" \
    2>&1 | tee "$OUT/ladder.log"
}

sweep() {
  "$PYTHON" bench/fps.py --device "$DEVICE" --out "$OUT" --sweep steps=1..6 --repeats 1 --seconds "$seconds" \
    --replay-initial 200 2>&1 | tee "$OUT/sweep.log"
}

pong() {
  "$PYTHON" experiments/05_opencv_wrappers.py --device "$DEVICE" --runs-dir "$OUT/runs" --max-minutes "$minutes" \
    2>&1 | tee "$OUT/pong.log"
}

case "${1:-}" in
  tests | ladder | sweep | pong) machine; "$1" ;;
  all) machine; tests; ladder; sweep; pong ;;
  *) sed -n '2,13p' "$0" >&2; exit 2 ;;
esac
