#!/bin/bash
# What `oc adm must-gather` runs in the image, before it copies the directory.
exec /usr/bin/kubectl-listener gather --output /must-gather
