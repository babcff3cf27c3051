"""Passes deeply nested filters to every way of filtering, in its own process, which may crash.

Prints one line of JSON: the result of each way.
"""

import functools
import json
import pickle
import sys

import pyarrow.compute as pc

import intarsia as ia

A = pc.field("a")
DEPTH = int(sys.argv[2])
DEEP = {
    "not": lambda: functools.reduce(lambda x, _: ~x, range(DEPTH), A == 7),
    "or": lambda: functools.reduce(lambda x, i: x | (i == A), range(DEPTH), A == 7),
    "or_from_the_right": lambda: functools.reduce(lambda x, i: (i == A) | x, range(DEPTH), A == 7),
    "and": lambda: functools.reduce(lambda x, i: x & (i != A), range(DEPTH), A == 7),
    "added": lambda: functools.reduce(lambda x, _: x + 1, range(DEPTH), A) > 7,
}


def ways(path, deep):
    data = ia.dataset(path)
    return {
        "read": lambda: ia.ParquetFile(path).read(filter=deep),
        "iter_batches": lambda: list(ia.ParquetFile(path).iter_batches(filter=deep)),
        "to_table": lambda: data.to_table(filter=deep),
        "to_batches": lambda: list(data.to_batches(filter=deep)),
        "filter": lambda: data.filter(deep).to_table(),
        "filter_of_filter": lambda: data.filter(A > 0).filter(deep).count_rows(),
        "count_rows": lambda: data.count_rows(filter=deep),
        "head": lambda: data.head(1, filter=deep),
        "take": lambda: data.take([0], filter=deep),
        "scanner": lambda: data.scanner(filter=deep).to_table(),
        "fragments": lambda: list(data.get_fragments(deep)),
        "fragment": lambda: next(data.get_fragments()).to_table(filter=deep),
        "explain": lambda: data.explain(filter=deep),
        "analyze": lambda: data.explain(filter=deep, analyze=True),
        "pickled": lambda: pickle.loads(pickle.dumps(data.filter(deep))).to_table(),
        "projected": lambda: data.to_table({"x": deep}),
        "skip": lambda: ia.dataset(path, on_corrupt="skip").to_table(filter=deep),
        "sql": lambda: ia.sql("SELECT count(*) FROM t", t=data.filter(deep)),
        "index": lambda: ia.add_indexes(path, [ia.Lookup(deep)]),
    }


def main():
    for name, make in DEEP.items():
        deep = make()
        asked = sys.argv[3:]
        for way, action in ways(sys.argv[1], deep).items():
            if asked and way not in asked:
                continue
            print(name, way, end="\t", flush=True)
            try:
                action()
            except ia.PredicateError as error:
                print(json.dumps(str(error)), flush=True)
            else:
                print(json.dumps("answered"), flush=True)


if __name__ == "__main__":
    main()
