"""Builds indexes in its own process with limited memory. Arguments: a file, bytes."""

import resource
import sys

import pyarrow as pa
from memory_worker import data_bytes

import intarsia as ia


def main(path, allowed):
    for name in ia.__all__:
        getattr(ia, name)  # imported before memory is limited
    limit = data_bytes() + allowed
    resource.setrlimit(resource.RLIMIT_DATA, (limit, limit))
    told = []
    kinds = [ia.Lookup("k", granule_rows=1000), ia.MinMax("v", granule_rows=1000)]
    ia.add_indexes(path, kinds, progress=lambda *step: told.append(step[1:]))
    print(len(told), *told[-1])


if __name__ == "__main__":
    pa.set_cpu_count(2)
    pa.set_io_thread_count(2)
    main(sys.argv[1], int(sys.argv[2]))
