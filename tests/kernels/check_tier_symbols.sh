#!/bin/sh
# usage: check_tier_symbols.sh NM OBJECT...
#
# A weak symbol in a tier's object (an inline function or a template that was not kept in an unnamed namespace)
# may replace the baseline copy of the same function, which then runs instructions the CPU does not have.
set -eu
nm=$1
shift
[ $# -gt 0 ] || { echo "no objects given"; exit 1; }
status=0
for object in "$@"; do
    symbols=$("$nm" --defined-only "$object")
    [ -n "$symbols" ] || { echo "$object: no symbols; is this an object file?"; exit 1; }
    if echo "$symbols" | grep -E ' [WwVvu] '; then
        echo "$object: weak symbols (above)"
        status=1
    fi
done
exit $status
