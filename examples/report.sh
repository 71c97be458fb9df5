#!/bin/sh
# Hands in three batches, two of them with broken calls, and adds up what the system has run; docs/commands.md says what
# a report has. Flags go to the report, such as --json or --since 1h.
#
#   dispatcher serve --with-worker --workspace default=.
#   sh examples/report.sh
set -eu
examples=$(dirname "$0")
for batch in anthropic-message.json gemini-response.json repair/openai-response.json; do
  dispatcher submit "$examples/$batch" >/dev/null
done
dispatcher report "$@"
