#!/bin/bash
# SPDX-License-Identifier: BSD-3-Clause
#
# One forward and backward pass against PyTorch (Debian's python3-torch,
# installed if missing): loss and every gradient, in float and double.
#
# usage: tests/torch/run.sh [BUILD_DIRECTORY]
set -eu
cd "$(dirname "$0")/../.."
build=${1:-build}
dpkg-query -W python3-torch >/dev/null 2>&1 || {
	apt-get update
	DEBIAN_FRONTEND=noninteractive apt-get install -y \
		--no-install-recommends python3-torch
} >/dev/null
exec /usr/bin/python3 tests/torch/compare.py "$build/bin/torch_dump" \
	"$build/bin/torch_dump_double"
