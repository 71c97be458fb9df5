#!/bin/sh
# Runs a batch, waits until it is archived, and proves its log; docs/operate.md says what that proves.
#
#   dispatcher signing-key archive.nk                  # prints the public KEY
#   dispatcher serve --with-worker --workspace default=. --archive-after 1m --signing-key archive.nk
#   sh examples/verify.sh KEY
set -eu
key=$1
batch=proved-$$
dispatcher submit --id "$batch" "$(dirname "$0")/tokens/batch.json" >/dev/null
tries=150
# Status 1 is "not proven": the batch is not archived yet. Any other failure ends the script.
while status=0; dispatcher verify --key "$key" "$batch" || status=$?; [ "$status" -eq 1 ] && [ "$tries" -gt 0 ]; do
  tries=$((tries - 1))
  sleep 2
done
exit "$status"
