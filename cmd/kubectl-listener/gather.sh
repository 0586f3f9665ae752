#!/bin/bash
# What `oc adm must-gather` runs in the image, before it copies the directory. Its --since and --since-time set the
# variables.
exec /usr/bin/kubectl-listener gather --output /must-gather \
	${MUST_GATHER_SINCE:+--since "$MUST_GATHER_SINCE"} ${MUST_GATHER_SINCE_TIME:+--since-time "$MUST_GATHER_SINCE_TIME"}
