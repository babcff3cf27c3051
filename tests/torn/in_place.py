"""Adds an index, in a process whose files have a size limit."""

import resource
import sys

import intarsia as ia


def main():
    for name in ia.__all__:
        getattr(ia, name)  # imported before files are limited
    path, spec, most_bytes, sidecar = sys.argv[1:]
    if int(most_bytes):
        resource.setrlimit(resource.RLIMIT_FSIZE, (int(most_bytes), int(most_bytes)))
    print("ready", flush=True)
    sys.stdin.readline()
    try:
        ia.add_indexes(path, [spec], sidecar=sidecar == "sidecar")
    except ia.PathError as error:
        print(error)
        sys.exit(3)


if __name__ == "__main__":
    main()
