#!/bin/sh
# use-command.sh VERSION: uses the installed command, and finds its manual.
set -eu
[ "$(latchwork --version)" = "latchwork $1" ]
latchwork tour --path /usr/share/common-licenses
latchwork doctor
latchwork ps
# The libraries that the command loads into programs.
said=$(latchwork run --mutex=tp -- getconf PAGESIZE 2>&1)
echo "$said" | grep 'replaced by throughput locks'
latchwork run --heal -- getconf PAGESIZE
latchwork run --check --json -- getconf PAGESIZE
man -w latchwork
man -w latchwork-crashtest
man latchwork | grep -q 'EXIT STATUS'
[ -f /usr/share/doc/latchwork/copyright ]
zgrep -q '^- libc ' /usr/share/doc/latchwork/THIRD-PARTY.gz
# The library is in the dynamic linker's cache.
ldconfig -p | grep liblatchwork.so
