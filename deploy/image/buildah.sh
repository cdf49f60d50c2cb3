#!/bin/sh
# buildah with everything it writes below STORE, and no file system driver that
# a container or an old kernel may lack.
#
# Usage: buildah.sh STORE ARGUMENTS...
store=$(realpath -m "$1")
shift
exec buildah --root "$store/storage" --runroot "$store/run" --storage-driver vfs "$@"
