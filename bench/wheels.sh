#!/usr/bin/env bash
# Make a folder of wheels for bench/gpu.sh: what fastdqn needs besides PyTorch and what usually comes with it, for a
# machine that has no network.
#
#   bench/wheels.sh FOLDER [PACKAGE ...]
#
# By default for Python 3.12 on x86_64 ($VERSION names another one), in the versions of constraints.txt where it has
# one. PyTorch, numpy and OpenCV are left out, as the machine's own must not be hidden; packages are added by name, with
# all that they need named, too. Fails above 60 MB.
set -euo pipefail
PYTHON=${PYTHON:-python3}
VERSION=${VERSION:-3.12}
MOST=60
if [ $# -eq 0 ]; then
  sed -n '2,/^set/{/^set/!p}' "$0" >&2
  exit 2
fi
folder=$1
shift
constraints=$(cd "$(dirname "$0")/.." && pwd)/constraints.txt
rm -rf "$folder.part"
platforms=()
for glibc in 2_34 2_31 2_28 2_27 2_26 2_24 2_17 2_12 2_5; do platforms+=(--platform "manylinux_${glibc}_x86_64"); done
"$PYTHON" -m pip download --quiet --no-deps --only-binary=:all: --implementation cp --python-version "$VERSION" \
  "${platforms[@]}" --platform manylinux2014_x86_64 --platform manylinux1_x86_64 --constraint "$constraints" \
  --dest "$folder.part" gymnasium farama-notifications cloudpickle ale-py tyro docstring-parser typeguard zstandard \
  filelock rich "$@"
size=$(du -sm "$folder.part" | cut -f1)
if [ "$size" -gt "$MOST" ]; then
  echo "$folder.part has $size MB, more than $MOST" >&2
  exit 1
fi
rm -rf "$folder"
mv "$folder.part" "$folder"
echo "$(ls "$folder" | wc -l) wheels, $size MB, in $folder"
