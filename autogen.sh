#!/bin/sh
# Makes configure and the generated sources from a fresh checkout.
set -e
cd "$(dirname "$0")"
contrib/gen-sources
autoreconf --install --force --warnings=all,no-obsolete
