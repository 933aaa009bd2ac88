#!/bin/sh
# Makes ./configure out of configure.ac.
set -e
cd "$(dirname "$0")"
mkdir -p m4 build-aux
autoreconf --install --force
