#!/bin/sh
# Makes configure and the generated sources from a fresh checkout.
set -e
cd "$(dirname "$0")"
contrib/gen-sources
# Its output is committed: without python3 it is taken as it is.
if command -v python3 >/dev/null; then contrib/gen-entries; fi
autoreconf --install --force --warnings=all,no-obsolete
