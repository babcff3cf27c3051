"""The eight tables of TPC-H, small: columns, keys and values as in section 4.2.3 of its
specification.

NumPy draws the rows, so they differ from those of the official generator.
"""

import datetime as dt
from decimal import Decimal

import numpy as np
import pyarrow as pa

SUPPLIERS, PARTS, CUSTOMERS, ORDERS = 100, 400, 300, 3000
MONEY = pa.decimal128(15, 2)
START, END = dt.date(1992, 1, 1), dt.date(1998, 8, 2)
REGIONS = ["AFRICA", "AMERICA", "ASIA", "EUROPE", "MIDDLE EAST"]
NATIONS = [
    ("ALGERIA", 0), ("ARGENTINA", 1), ("BRAZIL", 1), ("CANADA", 1), ("EGYPT", 4), ("ETHIOPIA", 0),
    ("FRANCE", 3), ("GERMANY", 3), ("INDIA", 2), ("INDONESIA", 2), ("IRAN", 4), ("IRAQ", 4),
    ("JAPAN", 2), ("JORDAN", 4), ("KENYA", 0), ("MOROCCO", 0), ("MOZAMBIQUE", 0), ("PERU", 1),
    ("CHINA", 2), ("ROMANIA", 3), ("SAUDI ARABIA", 4), ("VIETNAM", 2), ("RUSSIA", 3),
    ("UNITED KINGDOM", 3), ("UNITED STATES", 1),
]  # fmt: skip
COLOURS = "almond azure blue forest frosted green ivory khaki lemon navy olive plum rose".split()  # noqa: SIM905
TYPES = [
    f"{a} {b} {c}"
    for a in ("STANDARD", "SMALL", "MEDIUM", "LARGE", "ECONOMY", "PROMO")
    for b in ("ANODIZED", "BURNISHED", "PLATED", "POLISHED", "BRUSHED")
    for c in ("TIN", "NICKEL", "BRASS", "STEEL", "COPPER")
]
CONTAINERS = [
    f"{a} {b}"
    for a in ("SM", "LG", "MED", "JUMBO", "WRAP")
    for b in ("CASE", "BOX", "BAG", "JAR", "PKG", "PACK", "CAN", "DRUM")
]
SEGMENTS = ["AUTOMOBILE", "BUILDING", "FURNITURE", "MACHINERY", "HOUSEHOLD"]
PRIORITIES = ["1-URGENT", "2-HIGH", "3-MEDIUM", "4-NOT SPECIFIED", "5-LOW"]
INSTRUCTIONS = ["DELIVER IN PERSON", "COLLECT COD", "NONE", "TAKE BACK RETURN"]
MODES = ["REG AIR", "AIR", "RAIL", "SHIP", "TRUCK", "MAIL", "FOB", "AIR REG"]
WORDS = "the special deposits wake quickly requests Customer sleep Complaints above foxes".split()  # noqa: SIM905


class _Draw:
    def __init__(self) -> None:
        self._random = np.random.default_rng(22)

    def numbers(self, low, high, size):
        return self._random.integers(low, high + 1, size)

    def money(self, low, high, size):
        cents = self.numbers(round(low * 100), round(high * 100), size)
        return pa.array([Decimal(int(cent)).scaleb(-2) for cent in cents], MONEY)

    def of(self, values, size):
        return [values[place] for place in self.numbers(0, len(values) - 1, size)]

    def comments(self, size):
        return [" ".join(self.of(WORDS, 6)) for _ in range(size)]

    def phones(self, nations):
        tails = self.numbers(1_000_000, 9_999_999, len(nations))
        return [f"{nation + 10}-{tail}" for nation, tail in zip(nations, tails, strict=True)]


def _days(offsets):
    return pa.array([START + dt.timedelta(int(offset)) for offset in offsets], pa.date32())


def tables():
    """All eight tables by name; orders and lineitem are sorted by their dates."""
    draw = _Draw()
    names, regions = zip(*NATIONS, strict=True)
    actual = {
        "region": pa.table(
            {"r_regionkey": range(5), "r_name": REGIONS, "r_comment": draw.comments(5)}
        ),
        "nation": pa.table(
            {
                "n_nationkey": range(25),
                "n_name": names,
                "n_regionkey": regions,
                "n_comment": draw.comments(25),
            }
        ),
    }
    supplied_from = draw.numbers(0, 24, SUPPLIERS)
    actual["supplier"] = pa.table(
        {
            "s_suppkey": range(1, SUPPLIERS + 1),
            "s_name": [f"Supplier#{key:09}" for key in range(1, SUPPLIERS + 1)],
            "s_address": draw.comments(SUPPLIERS),
            "s_nationkey": supplied_from,
            "s_phone": draw.phones(supplied_from),
            "s_acctbal": draw.money(-999, 9999, SUPPLIERS),
            "s_comment": draw.comments(SUPPLIERS),
        }
    )
    actual["part"] = pa.table(
        {
            "p_partkey": range(1, PARTS + 1),
            "p_name": [" ".join(draw.of(COLOURS, 5)) for _ in range(PARTS)],
            "p_mfgr": [f"Manufacturer#{n}" for n in draw.numbers(1, 5, PARTS)],
            "p_brand": draw.of(["Brand#12", "Brand#23", "Brand#34", "Brand#45"], PARTS),
            "p_type": draw.of(TYPES, PARTS),
            "p_size": pa.array(draw.numbers(1, 50, PARTS), pa.int32()),
            "p_container": draw.of(CONTAINERS, PARTS),
            "p_retailprice": draw.money(900, 2000, PARTS),
            "p_comment": draw.comments(PARTS),
        }
    )
    parts = np.repeat(np.arange(1, PARTS + 1), 4)
    suppliers = (parts + np.tile(np.arange(4), PARTS) * (SUPPLIERS // 4)) % SUPPLIERS + 1
    actual["partsupp"] = pa.table(
        {
            "ps_partkey": parts,
            "ps_suppkey": suppliers,
            "ps_availqty": pa.array(draw.numbers(1, 9999, len(parts)), pa.int32()),
            "ps_supplycost": draw.money(1, 1000, len(parts)),
            "ps_comment": draw.comments(len(parts)),
        }
    )
    bought_from = draw.numbers(0, 24, CUSTOMERS)
    actual["customer"] = pa.table(
        {
            "c_custkey": range(1, CUSTOMERS + 1),
            "c_name": [f"Customer#{key:09}" for key in range(1, CUSTOMERS + 1)],
            "c_address": draw.comments(CUSTOMERS),
            "c_nationkey": bought_from,
            "c_phone": draw.phones(bought_from),
            "c_acctbal": draw.money(-999, 9999, CUSTOMERS),
            "c_mktsegment": draw.of(SEGMENTS, CUSTOMERS),
            "c_comment": draw.comments(CUSTOMERS),
        }
    )
    return actual | _orders(draw)


def _orders(draw):
    ordered = np.sort(draw.numbers(0, (END - START).days, ORDERS))
    lines = draw.numbers(1, 7, ORDERS)
    of_order = np.repeat(np.arange(ORDERS), lines)
    count = len(of_order)
    part, fourth = draw.numbers(1, PARTS, count), draw.numbers(0, 3, count)
    ship = ordered[of_order] + draw.numbers(1, 121, count)
    receipt = ship + draw.numbers(1, 30, count)
    today = (dt.date(1995, 6, 17) - START).days
    returned = np.where(receipt <= today, draw.of(["R", "A"], count), "N")
    buyers = draw.numbers(1, CUSTOMERS * 2 // 3, ORDERS)
    orders = {
        "o_orderkey": np.arange(1, ORDERS + 1),
        "o_custkey": buyers,
        "o_orderstatus": np.where(ordered + 121 < today, "F", "O"),
        "o_totalprice": draw.money(1000, 400_000, ORDERS),
        "o_orderdate": _days(ordered),
        "o_orderpriority": draw.of(PRIORITIES, ORDERS),
        "o_clerk": [f"Clerk#{n:09}" for n in draw.numbers(1, 10, ORDERS)],
        "o_shippriority": pa.array([0] * ORDERS, pa.int32()),
        "o_comment": draw.comments(ORDERS),
    }
    lineitem = {
        "l_orderkey": of_order + 1,
        "l_partkey": part,
        "l_suppkey": (part + fourth * (SUPPLIERS // 4)) % SUPPLIERS + 1,
        "l_linenumber": pa.array(draw.numbers(1, 7, count), pa.int32()),
        "l_quantity": draw.money(1, 50, count),
        "l_extendedprice": draw.money(900, 100_000, count),
        "l_discount": draw.money(0, 0.10, count),
        "l_tax": draw.money(0, 0.08, count),
        "l_returnflag": returned,
        "l_linestatus": np.where(ship > today, "O", "F"),
        "l_shipdate": _days(ship),
        "l_commitdate": _days(ordered[of_order] + draw.numbers(30, 90, count)),
        "l_receiptdate": _days(receipt),
        "l_shipinstruct": draw.of(INSTRUCTIONS, count),
        "l_shipmode": draw.of(MODES, count),
        "l_comment": draw.comments(count),
    }
    return {"orders": pa.table(orders), "lineitem": pa.table(lineitem)}
